"""Models for lists by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from hdpmf.errors import ConfigError, MissingExtraError
from hdpmf.public.lists import ListModel
from hdpmf.recommender.lists.ease import DENSE_ITEMS, train_ease
from hdpmf.recommender.lists.presence import Presence
from hdpmf.recommender.lists.stopping import HELD_OUT, ndcg

EASE_SIZES = (DENSE_ITEMS, 20_000)
"""Of a larger catalogue EASE models so many of the most rated items: the first by the whole matrix, or the second from
their neighbours, whichever makes better lists of pairs held out of what was released."""

MOST_ITEMS = {"bpr": 5_000, "neural": 5_000, "knn": 5_000}
"""How many items these take at most: of larger catalogues the most rated ones, because devices have to hold them and
an item-item matrix of 5,000 has 0.2 GB. What is left out is what few people rated (docs/lists.md has what it costs)."""

LIST_MODELS = ("ease", "ials", "bpr", "neural", "knn", "popular")


def check_trainable(kind: str) -> None:
    """Raise before anybody is asked for anything, if this machine cannot train it."""
    if kind == "neural" and find_spec("torch") is None:
        raise MissingExtraError("a neural model needs PyTorch: pip install 'hdpmf[gpu]'")


def train_list_model(
    kind: str, presence: Presence, *, seed: int = 0, on: str = "cpu", n_threads: int | None = None, **options: Any
) -> ListModel:
    """Train a model for lists.

    Args:
        kind: One of ``LIST_MODELS``.
        presence: Who rated what.
        seed: Where something is drawn.
        on: ``cpu``, ``gpu`` or ``auto``, for ``neural``.
        n_threads: Threads of ``ials`` and ``ease``; every core by default. The result does not depend on it.
        **options: Of that kind; see its module.
    """
    check_trainable(kind)
    most = MOST_ITEMS.get(kind, presence.n_items)
    if presence.n_items > most:
        return of_most_rated(
            presence,
            most,
            lambda heads: train_list_model(kind, heads, seed=seed, on=on, n_threads=n_threads, **options),
        )
    if kind == "ease":

        def train(pairs: Presence) -> ListModel:
            return train_ease(pairs, n_threads=n_threads, **options)

        model = train(presence) if presence.n_items <= EASE_SIZES[0] else _large_ease(presence, train, seed)
    elif kind == "ials":
        from hdpmf.recommender.lists.ials import train_ials

        model = train_ials(presence, seed=seed, n_threads=n_threads, **options)
    elif kind == "bpr":
        from hdpmf.recommender.lists.bpr import train_bpr

        model = train_bpr(presence, seed=seed, **options)
    elif kind == "neural":
        from hdpmf.recommender.lists.neural import train_neural

        model = train_neural(presence, seed=seed, on=on, **options)
    elif kind in ("knn", "popular"):
        from hdpmf.recommender.lists.simple import popular_lists, train_knn

        model = train_knn(presence, **options) if kind == "knn" else popular_lists(presence.raters, **options)
    else:
        raise ConfigError(f"there is no model {kind!r} for lists; choose from {', '.join(LIST_MODELS)}")
    model.about.setdefault("kind", kind)
    return model


def _large_ease(presence: Presence, train: Callable[[Presence], ListModel], seed: int) -> ListModel:
    kept, held = presence.hold_out(HELD_OUT, seed)
    found = [ndcg(of_most_rated(kept, most, train), kept, held, seed) for most in EASE_SIZES]
    return of_most_rated(presence, EASE_SIZES[int(np.argmax(found))], train)


def of_most_rated(presence: Presence, most: int, train: Callable[[Presence], ListModel]) -> ListModel:
    """A model of only the most rated items; others come last."""
    heads = np.sort(np.argsort(-presence.raters, kind="stable")[:most]).astype(np.int32)
    return replace(train(presence.only(heads)), heads=heads, n_items=presence.n_items)
