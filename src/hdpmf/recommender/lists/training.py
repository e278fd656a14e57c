"""Models for lists by their names."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from hdpmf.errors import ConfigError, MissingExtraError
from hdpmf.public.lists import ListModel
from hdpmf.recommender.lists.presence import Presence

MOST_ITEMS = 5_000
"""A model of pairs of items takes this many at most: of larger catalogues the most rated ones. An item-item matrix of
5,000 has 0.2 GB; what is left out is what few people rated (docs/lists.md shows what that costs)."""

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
        n_threads: Threads of ``ials``; every core by default. The result does not depend on it.
        **options: Of that kind; see its module.
    """
    check_trainable(kind)
    if presence.n_items > MOST_ITEMS and kind in ("ease", "bpr", "neural", "knn"):
        most_rated = np.argsort(-presence.raters, kind="stable")[:MOST_ITEMS]
        heads = np.sort(most_rated).astype(np.int32)
        model = train_list_model(kind, presence.only(heads), seed=seed, on=on, n_threads=n_threads, **options)
        return replace(model, heads=heads, n_items=presence.n_items)
    if kind == "ease":
        from hdpmf.recommender.lists.ease import train_ease

        model = train_ease(presence, **options)
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
