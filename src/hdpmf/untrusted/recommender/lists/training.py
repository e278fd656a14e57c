"""List models by name, and those that need little of their own: popularity, neighbours, iALS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from hdpmf.common.base.threads import one_blas_thread
from hdpmf.common.methods.options import LIST_KINDS
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.errors import ConfigError, MissingExtraError, needs
from hdpmf.untrusted.recommender.lists.ease import train_ease
from hdpmf.untrusted.recommender.lists.presence import DAMPING, HELD_OUT, Presence, ndcg

NEIGHBOURS = 200
"""Best of 20, 50, 200 and 500 on ratings held out within ML-100K (NDCG@10 .163, .166, .189, .180)
and ML-1M (.129, .131, .138, .137): ``python benchmarks/constants.py --only neighbours --users 1500
--seeds 2``."""


def popular_lists(popularity: np.ndarray) -> ListModel:
    """Return one order for everybody: by how often items are chosen."""
    n = len(popularity)
    order = log_popularity(popularity).astype(np.float32)
    empty = Bytes(np.zeros((n, 0), np.int8), np.zeros(0, np.float32))
    return ListModel("linear", empty, empty, Entries.none(n), np.zeros(0, np.float32), order)


def train_knn(presence: Presence, *, neighbours: int = NEIGHBOURS) -> ListModel:
    """Build nearest neighbours: for each item its most similar ones, by the damped cosine."""
    n = presence.n_items
    gram = presence.gram()
    length = np.sqrt(np.diag(gram) + DAMPING)
    similar = gram / length[:, None] / length
    np.fill_diagonal(similar, 0.0)
    empty = Bytes(np.zeros((n, 0), np.int8), np.zeros(0, np.float32))
    entries = Entries.largest(similar, min(neighbours, n - 1))
    return ListModel(
        "linear", empty, empty, entries, np.zeros(0, np.float32), np.zeros(n, np.float32)
    )


_REGS = (2.0, 5.0, 10.0, 20.0, 40.0)

_RATED = 2.0
"""Confidence of a rated item beside 1 of all others."""


def train_ials(
    presence: Presence,
    *,
    rank: int = 64,
    reg: float | None = None,
    epochs: int = 5,
    seed: int = 0,
) -> ListModel:
    """Train implicit alternating least squares by ``implicit``, on one thread.

    Args:
        rank: Length of the vectors.
        reg: Regularisation. None: the best one of some for pairs held out.
        epochs: Passes over users and items.
        seed: Of the first vectors.
    """
    if reg is None:
        train, held = presence.hold_out(HELD_OUT, seed)
        found = {
            reg: ndcg(_ials(train, rank, reg, epochs, seed), train, held, seed) for reg in _REGS
        }
        reg = max(_REGS, key=lambda reg: found[reg])
    return _ials(presence, rank, reg, epochs, seed)


def _ials(presence: Presence, rank: int, reg: float, epochs: int, seed: int) -> ListModel:
    with needs("implicit", "bench"):
        from implicit.cpu.als import AlternatingLeastSquares
    rank = min(rank, presence.n_items)
    with one_blas_thread():
        training = AlternatingLeastSquares(
            rank,
            regularization=reg,
            alpha=_RATED,
            iterations=epochs,
            num_threads=1,
            random_state=seed,
        )
        training.fit(presence.matrix, show_progress=False)
    return ListModel(
        "factors",
        Bytes(np.zeros((0, rank), np.int8), np.ones(rank, np.float32)),
        Bytes.of(training.item_factors),
        Entries.none(presence.n_items),
        np.zeros(rank, np.float32),
        np.zeros(presence.n_items, np.float32),
        (reg, 1.0),
        about={"kind": "ials", "epochs": epochs, "reg": reg},
    )


MOST_ITEMS = dict.fromkeys(("ease", "bpr", "neural", "knn"), 5_000)
"""The most items that these take: of larger catalogues the most rated ones, because devices have
to hold them and an item-item matrix of 5,000 has 0.2 GB. What is left out is what few people rated
(docs/lists.md has what it costs)."""

LIST_MODELS = ("ease", "ials", "bpr", "neural", "knn", "popular")


def check_trainable(kind: str) -> None:
    """Raise MissingExtraError if this machine cannot train a kind."""
    if kind == "neural" and find_spec("torch") is None:
        raise MissingExtraError("a neural model needs PyTorch: pip install 'hdpmf[gpu]'")


def train_list_model(
    kind: str, presence: Presence, *, seed: int = 0, on: str = "cpu", **options: Any
) -> ListModel:
    """Train a model for lists.

    Args:
        kind: One of ``LIST_MODELS``, or of those that packages add.
        seed: Where something is drawn.
        on: ``cpu``, ``gpu`` or ``auto``, for ``neural``.
        **options: Of that kind; see its module.
    """
    check_trainable(kind)
    most = MOST_ITEMS.get(kind, presence.n_items)
    if presence.n_items > most:
        return _of_most_rated(
            presence,
            most,
            lambda heads: train_list_model(kind, heads, seed=seed, on=on, **options),
        )
    if kind == "ease":
        model = train_ease(presence, **options)
    elif kind == "ials":
        model = train_ials(presence, seed=seed, **options)
    elif kind == "bpr":
        from hdpmf.untrusted.recommender.lists.sgd_models import train_bpr

        model = train_bpr(presence, seed=seed, **options)
    elif kind == "neural":
        from hdpmf.untrusted.recommender.lists.sgd_models import train_neural

        model = train_neural(presence, seed=seed, on=on, **options)
    elif kind == "knn":
        model = train_knn(presence, **options)
    elif kind == "popular":
        model = popular_lists(presence.raters)
    else:
        added = LIST_KINDS.get(kind)
        if added is None or added.train is None:
            known = dict.fromkeys((*LIST_MODELS, *LIST_KINDS))
            raise ConfigError(
                f"there is no model {kind!r} for lists; choose from {', '.join(known)}"
            )
        model = added.train(presence, seed=seed, **options)
        if not isinstance(model, ListModel) or model.n_items != presence.n_items:
            raise ConfigError(
                f"the model {kind!r} for lists must be a ListModel of {presence.n_items:,} items"
            )
    model.about.setdefault("kind", kind)
    return model


def _of_most_rated(
    presence: Presence, most: int, train: Callable[[Presence], ListModel]
) -> ListModel:
    """A model of only the most rated items; others come last."""
    heads = np.sort(np.argsort(-presence.raters, kind="stable")[:most]).astype(np.int32)
    return replace(train(presence.only(heads)), heads=heads, n_items=presence.n_items)
