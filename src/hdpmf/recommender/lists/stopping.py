"""How long to train, by pairs held out of what was released. No rating's value and no test set is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from hdpmf.public.lists import ListModel
from hdpmf.recommender.lists.presence import Presence

HELD_OUT = 3
PATIENCE = 4
_USERS = 1_000
_BLOCK = 250  # users scored at once
_TOP = 10


class Training(Protocol):
    """Something that is trained epoch by epoch."""

    def epoch(self) -> None:
        """Train on."""

    def model(self) -> ListModel:
        """As devices would get it now."""


def train_to_best(presence: Presence, begin: Callable[[Presence], Training], epochs: int, seed: int) -> ListModel:
    """The model of all pairs after as many epochs as are best for pairs held out."""
    chosen = best_epoch(presence, begin, epochs, seed)
    training = begin(presence)
    for _ in range(chosen):
        training.epoch()
    model = training.model()
    model.about.update(epochs=chosen)
    return model


def best_epoch(presence: Presence, begin: Callable[[Presence], Training], epochs: int, seed: int) -> int:
    """After how many epochs lists of pairs held out are best; it ends early when they stop getting better."""
    train, held = presence.hold_out(HELD_OUT, seed)
    if len(held.users) == 0:
        return epochs
    training = begin(train)
    best, chosen = -1.0, 1
    for number in range(1, epochs + 1):
        training.epoch()
        found = ndcg(training.model(), train, held, seed)
        if found > best:
            best, chosen = found, number
        elif number - chosen >= PATIENCE:
            break
    return chosen


def ndcg(model: ListModel, train: Presence, held: Presence, seed: int) -> float:
    """How well lists find what was held out, over some users."""
    users = np.unique(held.users)
    if len(users) > _USERS:
        users = np.random.default_rng(seed).choice(users, _USERS, replace=False)
    discounts = 1.0 / np.log2(np.arange(2, _TOP + 2))
    total = 0.0
    for block in np.array_split(users, -(-len(users) // _BLOCK)) if len(users) else []:
        rated, wanted = train.matrix[block], held.matrix[block]
        scores = model.many(rated)
        scores[rated.nonzero()] = -np.inf
        top = np.argpartition(-scores, min(_TOP, scores.shape[1] - 1), axis=1)[:, :_TOP]
        top = np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, 1), axis=1, kind="stable"), 1)
        found = np.take_along_axis(wanted.toarray(), top, 1) > 0
        best = np.cumsum(discounts)[np.minimum(np.diff(wanted.indptr), _TOP) - 1]
        total += float((found @ discounts[: top.shape[1]] / best).sum())
    return total / max(len(users), 1)
