"""Pairs of user and item, the input of list models; the best number of epochs for them.

No rating's value and no test set is used: epochs are chosen by held-out pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hdpmf.common.model.list_model import ListModel

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


DAMPING = 20.0
"""Raters added to every item where items are compared, so that pairs of rare ones do not look
alike by chance.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Presence:
    """Pairs of user and item, each once."""

    users: np.ndarray
    items: np.ndarray
    n_users: int
    n_items: int

    @cached_property
    def matrix(self) -> csr_matrix:
        """0/1, one row per user."""
        from scipy.sparse import csr_matrix

        ones = np.ones(len(self.users), np.float32)
        return csr_matrix((ones, (self.users, self.items)), shape=(self.n_users, self.n_items))

    @cached_property
    def raters(self) -> np.ndarray:
        """The number of users who rated each item."""
        return np.bincount(self.items, minlength=self.n_items)

    def gram(self) -> np.ndarray:
        """Return how many users rated both of two items."""
        return np.asarray((self.matrix.T @ self.matrix).todense(), np.float64)

    def only(self, heads: np.ndarray) -> Presence:
        """Return the pairs of some items (positions, ascending), with items renumbered."""
        positions = np.searchsorted(heads, self.items)
        known = heads[np.minimum(positions, len(heads) - 1)] == self.items
        return Presence(self.users[known], positions[known], self.n_users, len(heads))

    def hold_out(self, per_user: int, seed: int) -> tuple[Presence, Presence]:
        """Return the pairs to train on, and ``per_user`` held-out pairs of each user with enough.

        Enough is more than twice ``per_user``.
        """
        order = np.lexsort((np.random.default_rng(seed).random(len(self.users)), self.users))
        counts = np.bincount(self.users, minlength=self.n_users)
        position = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        apart = order[(position < per_user) & (np.repeat(counts, counts) > 2 * per_user)]
        chosen = np.zeros(len(order), bool)
        chosen[apart] = True
        return self.take(~chosen), self.take(chosen)

    def take(self, which: np.ndarray) -> Presence:
        """Return some of the pairs; users and items keep their numbers."""
        return Presence(self.users[which], self.items[which], self.n_users, self.n_items)


HELD_OUT = 3

PATIENCE = 4

_USERS = 1_000

_BLOCK = 250  # users scored at once

_TOP = 10


class Training(Protocol):
    """Something that is trained epoch by epoch."""

    def epoch(self) -> None:
        """Train for one more epoch."""

    def model(self) -> ListModel:
        """Return the model as it is now, for devices."""


def train_to_best(
    presence: Presence, begin: Callable[[Presence], Training], epochs: int, seed: int
) -> ListModel:
    """The model of all pairs after as many epochs as are best for pairs held out."""
    chosen = best_epoch(presence, begin, epochs, seed)
    training = begin(presence)
    for _ in range(chosen):
        training.epoch()
    model = training.model()
    model.about.update(epochs=chosen)
    return model


def best_epoch(
    presence: Presence, begin: Callable[[Presence], Training], epochs: int, seed: int
) -> int:
    """Return the number of epochs that is best for held-out pairs, by early stopping.

    Without pairs to hold out it is ``epochs``.
    """
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
    """Measure how well lists find what was held out, over some users."""
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
        top = np.take_along_axis(
            top, np.argsort(-np.take_along_axis(scores, top, 1), axis=1, kind="stable"), 1
        )
        found = np.take_along_axis(wanted.toarray(), top, 1) > 0
        best = np.cumsum(discounts)[np.minimum(np.diff(wanted.indptr), _TOP) - 1]
        total += float((found @ discounts[: top.shape[1]] / best).sum())
    return total / max(len(users), 1)
