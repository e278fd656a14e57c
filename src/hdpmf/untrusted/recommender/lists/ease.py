"""EASE: predict each item from all others by ridge regression, in closed form (Steck 2019).

The regularisation grows with the root of how often an item was rated. The matrix has n_items
squared entries, too many for a device. A reduced-rank regression keeps the directions that matter
for the predictions (not for the matrix), and the largest entries that it misses are kept one by
one. Everything is in 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.common.base.threads import one_blas_thread
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.errors import ConfigError
from hdpmf.untrusted.recommender.lists.presence import Presence

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
