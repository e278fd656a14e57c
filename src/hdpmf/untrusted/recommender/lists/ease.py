"""EASE: predict each item from all others by ridge regression, in closed form (Steck 2019).

The regularisation grows with the root of how often an item was rated. The matrix has n_items
squared entries, too many for a device. A reduced-rank regression keeps the directions that matter
for the predictions (not for the matrix), and the largest entries that it misses are kept one by
one. Everything is in 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hdpmf.common.base.threads import one_blas_thread
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.errors import ConfigError
from hdpmf.untrusted.recommender.lists.presence import Presence

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

STRENGTH = 40.0
"""Regularisation of an item is this times the root of its raters: best of 10 to 160 on ratings held
out within the training parts of ML-100K and ML-1M (NDCG@10 .2186 and .1867)."""

_SAMPLE = 500  # users by whom the cost of compression is measured
_AT_ONCE = 100_000  # entries whose low-rank part is computed at once


DENSE_ITEMS = 5_000
"""The most items for which the whole matrix is computed (0.2 GB for each of a few copies)."""

NEIGHBOURS = 200
"""Of each item of a large catalogue. Held out within ML-100K, mean of three seeds: NDCG@10 .175
with 50, .180 with 100, .188 with 200, .189 with 400, .188 with all."""


@dataclass(frozen=True, eq=False, repr=False)
class ItemItem:
    """An item-item matrix, and what its compression needs.

    Attributes:
        matrix: B; its diagonal is zero. Of a large catalogue it is sparse.
        importance: B^T (G + Lambda) B: which directions of outputs carry the predictions. Of a
            large catalogue it is known by its products with vectors.
    """

    matrix: np.ndarray | csr_matrix
    importance: Any


def item_item(
    presence: Presence,
    strength: float = STRENGTH,
    *,
    neighbours: int | None = None,
    n_threads: int | None = None,
) -> ItemItem:
    """Return the item-item matrix: whole, or sparse with ``neighbours`` entries per item.

    Without ``neighbours`` it is whole up to ``DENSE_ITEMS`` items; larger ones have ``NEIGHBOURS``
    entries per item.
    """
    if neighbours is None and presence.n_items <= DENSE_ITEMS:
        return _whole(presence, strength)
    return _sparse(presence, strength, neighbours or NEIGHBOURS, n_threads)


def _sparse(
    presence: Presence, strength: float, neighbours: int, n_threads: int | None
) -> ItemItem:
    from scipy.sparse.linalg import LinearOperator

    from hdpmf.untrusted.recommender.lists.sparse_ease import sparse_item_item

    rated, n = presence.matrix, presence.n_items
    matrix = sparse_item_item(presence, strength, neighbours, n_threads)
    back = matrix.T.tocsr()
    users = rated.T.tocsr()
    ridge = strength * np.sqrt(np.maximum(presence.raters, 1))

    def important(vector: np.ndarray) -> np.ndarray:
        outputs = matrix @ vector.ravel()
        return np.asarray(back @ (users @ (rated @ outputs) + ridge * outputs))

    return ItemItem(matrix, LinearOperator((n, n), matvec=important, dtype=np.float64))


@one_blas_thread()  # with more the last digits, and what is kept by them, depend on their number
def _whole(presence: Presence, strength: float) -> ItemItem:
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


def ease_scores(presence: Presence, rows: csr_matrix, strength: float = STRENGTH) -> np.ndarray:
    """Return the scores of the whole matrix for people with these rows, without making it.

    It takes equations of as many unknowns as there are users, so it is for few of them.
    """
    from scipy.linalg import solve_triangular

    users = presence.matrix[np.flatnonzero(np.diff(presence.matrix.indptr))].astype(np.float64)
    scale = 1.0 / (strength * np.sqrt(np.maximum(presence.raters, 1)))
    scaled = users.multiply(scale).tocsr()
    system = np.asarray((scaled @ users.T).todense())
    system[np.diag_indices(len(system))] += 1.0
    # The inverse of X^T X + Lambda is diag(scale) - root^T root.
    root = solve_triangular(np.linalg.cholesky(system), scaled.toarray(), lower=True)
    own = rows.toarray().astype(np.float64)
    through = own * scale - (own @ root.T) @ root
    return np.asarray(own - through / (scale - (root**2).sum(axis=0)))


@one_blas_thread()  # products of the matrix with one vector after the other
def compress(whole: ItemItem, rank: int, per_item: int) -> ListModel:
    """Return the nearest model of ``rank`` directions and ``per_item`` entries, in 8 bits."""
    n = whole.matrix.shape[0]
    rank = min(rank, n)
    if 4 * rank < n or not isinstance(whole.importance, np.ndarray):
        from scipy.sparse.linalg import eigsh

        _, directions = eigsh(whole.importance, k=min(rank, n - 1), v0=np.ones(n))
    else:  # with this many directions it is faster to find all of them
        directions = np.linalg.eigh(whole.importance)[1][:, n - rank :]
    encode, decode = Bytes.of(np.asarray(whole.matrix @ directions)), Bytes.of(directions)
    entries = (
        _missed(whole.matrix, encode, decode, min(per_item, n - 1)) if per_item else Entries.none(n)
    )
    nothing = np.zeros(directions.shape[1], np.float32), np.zeros(n, np.float32)
    return ListModel("linear", encode, decode, entries, *nothing)


def _missed(
    matrix: np.ndarray | csr_matrix, encode: Bytes, decode: Bytes, per_item: int
) -> Entries:
    """Return the largest errors of the low-rank part in each column, as single entries.

    Of a sparse matrix only where it has entries.
    """
    n = matrix.shape[0]
    if isinstance(matrix, np.ndarray):
        missed = matrix - encode.rows(np.arange(n)) @ decode.rows(np.arange(n)).T
        np.fill_diagonal(missed, 0.0)
        return Entries.largest(missed, per_item)
    entries = matrix.tocsc().tocoo()
    rows, columns, values = entries.row, entries.col, entries.data.astype(np.float64)
    for first in range(0, len(values), _AT_ONCE):
        here = slice(first, first + _AT_ONCE)
        values[here] -= np.einsum("ek,ek->e", encode.rows(rows[here]), decode.rows(columns[here]))
    order = np.lexsort((-np.abs(values), columns))
    counts = np.bincount(columns, minlength=n)
    position = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = order[position < per_item]
    return Entries.of(rows[chosen], columns[chosen], values[chosen], n)


def train_ease(
    presence: Presence,
    *,
    rank: int = 128,
    per_item: int = 10,
    strength: float = STRENGTH,
    neighbours: int | None = None,
    n_threads: int | None = None,
) -> ListModel:
    """EASE, small enough for a device. It says what its compression costs.

    Args:
        rank: Directions that are kept.
        per_item: Single entries of each item that are kept besides.
        neighbours: Predict each item from this many others only; None: from all or, in large
            catalogues, from ``NEIGHBOURS``.
        n_threads: Threads for neighbours; every core by default. The result does not depend on it.
    """
    whole = item_item(presence, strength, neighbours=neighbours, n_threads=n_threads)
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
    exact = exact if isinstance(exact, np.ndarray) else exact.toarray()
    error = float(np.linalg.norm(compressed - exact) / max(float(np.linalg.norm(exact)), 1e-30))
    users, rated = some.nonzero()
    lists = []
    for scores in (exact, compressed):
        scores[users, rated] = -np.inf
        lists.append(np.argsort(-scores, axis=1, kind="stable")[:, :10])
    kept = [len(np.intersect1d(*pair)) for pair in zip(*lists, strict=True)]
    return {"score_error": round(error, 4), "kept_of_ten": round(float(np.mean(kept)), 2)}
