"""List models by name, and those of linear algebra: popularity, neighbours, iALS and EASE.

EASE predicts each item from all others by ridge regression, in closed form (Steck 2019). The
regularisation grows with the root of how often an item was rated. The matrix has n_items squared
entries, too many for a device. A reduced-rank regression keeps the directions that matter for the
predictions (not for the matrix), and the largest entries that it misses are kept one by one.
Everything is in 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from hdpmf.common.base.threads import one_blas_thread
from hdpmf.common.methods.options import LIST_KINDS
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.errors import ConfigError, MissingExtraError, needs
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


STRENGTH = 40.0
"""Regularisation of an item is this times the root of its raters: best of 10 to 160 on ratings held
out within the training parts of ML-100K and ML-1M (NDCG@10 .2186 and .1867)."""

_SAMPLE = 500  # users by whom the cost of compression is measured


@dataclass(frozen=True, eq=False, repr=False)
class ItemItem:
    """An item-item matrix, and what its compression needs.

    Attributes:
        matrix: B; its diagonal is zero.
        importance: B^T (G + Lambda) B: which directions of outputs carry the predictions.
    """

    matrix: np.ndarray
    importance: np.ndarray


@one_blas_thread()  # with more the last digits, and what is kept by them, depend on their number
def item_item(presence: Presence, strength: float = STRENGTH) -> ItemItem:
    """Return the item-item matrix."""
    from scipy.linalg.lapack import dpotrf, dpotri

    n = presence.n_items
    system = presence.gram()
    system[np.diag_indices(n)] += strength * np.sqrt(np.maximum(presence.raters, 1))
    factor, failed = dpotrf(system, lower=1)
    inverse, failed_too = dpotri(factor, lower=1)
    if failed or failed_too:
        raise ConfigError("the item-item regression is singular; use a larger regularisation")
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    scale = 1.0 / np.diag(inverse)
    # B = I - P D with P the inverse and D = diag(1 / P_jj); then B^T (G + Lambda) B = G + Lambda -
    # 2 D + D P D.
    importance = system + scale[:, None] * inverse * scale
    importance[np.diag_indices(n)] -= 2.0 * scale
    matrix = -inverse * scale
    np.fill_diagonal(matrix, 0.0)
    return ItemItem(matrix, importance)


@one_blas_thread()  # products of the matrix with one vector after the other
def compress(whole: ItemItem, rank: int, per_item: int) -> ListModel:
    """Return the nearest model of ``rank`` directions and ``per_item`` entries, in 8 bits."""
    n = whole.matrix.shape[0]
    rank = min(rank, n)
    if 4 * rank < n:
        from scipy.sparse.linalg import eigsh

        _, directions = eigsh(whole.importance, k=min(rank, n - 1), v0=np.ones(n))
    else:  # with this many directions it is faster to find all of them
        directions = np.linalg.eigh(whole.importance)[1][:, n - rank :]
    encode, decode = Bytes.of(np.asarray(whole.matrix @ directions)), Bytes.of(directions)
    entries = Entries.none(n)
    if per_item:
        missed = whole.matrix - encode.rows(np.arange(n)) @ decode.rows(np.arange(n)).T
        np.fill_diagonal(missed, 0.0)
        entries = Entries.largest(missed, min(per_item, n - 1))
    nothing = np.zeros(directions.shape[1], np.float32), np.zeros(n, np.float32)
    return ListModel("linear", encode, decode, entries, *nothing)


def train_ease(
    presence: Presence, *, rank: int = 128, per_item: int = 10, strength: float = STRENGTH
) -> ListModel:
    """EASE, small enough for a device. It says what its compression costs.

    Args:
        rank: Directions that are kept.
        per_item: Single entries of each item that are kept besides.
    """
    whole = item_item(presence, strength)
    model = compress(whole, rank, per_item)
    model.about.update(compression=cost(whole, model, presence))
    return model


def cost(whole: ItemItem, model: ListModel, presence: Presence) -> dict[str, float]:
    """Measure what is lost by compression, over some users of the training data.

    Returns:
        ``score_error``: the size of what scores are off by, relative to the scores.
        ``kept_of_ten``: how many of the first ten of the whole matrix's lists are in the model's
        first ten.
    """
    some = presence.matrix[:: max(1, presence.n_users // _SAMPLE)]
    exact, compressed = some @ whole.matrix, model.many(some)
    error = float(np.linalg.norm(compressed - exact) / max(float(np.linalg.norm(exact)), 1e-30))
    users, rated = some.nonzero()
    lists = []
    for scores in (exact, compressed):
        scores[users, rated] = -np.inf
        lists.append(np.argsort(-scores, axis=1, kind="stable")[:, :10])
    kept = [len(np.intersect1d(*pair)) for pair in zip(*lists, strict=True)]
    return {"score_error": round(error, 4), "kept_of_ten": round(float(np.mean(kept)), 2)}


MOST_ITEMS = dict.fromkeys(("ease", "bpr", "neural", "knn"), 5_000)
"""The most items that these take: of larger catalogues the most rated ones, because devices have
to hold them and an item-item matrix of 5,000 has 0.2 GB. What is left out is what few people rated
(docs/lists.md has what it costs)."""

LIST_MODELS = ("ease", "ials", "bpr", "neural", "knn", "popular")


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
    if kind == "neural" and find_spec("torch") is None:
        raise MissingExtraError("a neural model needs PyTorch: pip install 'hdpmf[gpu]'")
    most = MOST_ITEMS.get(kind, presence.n_items)
    if presence.n_items > most:
        # Only of the most rated items; others come last.
        heads = np.sort(np.argsort(-presence.raters, kind="stable")[:most]).astype(np.int32)
        model = train_list_model(kind, presence.only(heads), seed=seed, on=on, **options)
        return replace(model, heads=heads, n_items=presence.n_items)
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
