"""Implicit ALS: rated items count 1, all others 0 with a small weight.

By Hu, Koren and Volinsky (2008). A row's ridge grows with how often it occurs (Rendle et al. 2021).
Training begins with the largest singular vectors of who rated what, which a few multiplications
find, and then takes a few passes; from random vectors it took some twelve. Devices get the item
factors, and each solves for its own vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from hdpmf.common.base.threads import Workers
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.untrusted.recommender.lists.presence import HELD_OUT, Presence, ndcg

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


# Sums may be reordered and fused, so that they are vectors' work; nothing is assumed about
# infinities or NaN.
_FAST = {"reassoc", "contract", "nsz"}

_NOTHING_LEFT = np.float32(1e-12)


@njit(cache=True, nogil=True, fastmath=_FAST)
def add_gram(first: int, end: int, vectors: np.ndarray, out: np.ndarray) -> None:
    """Add vectors^T vectors of some rows to ``out``."""
    rank = vectors.shape[1]
    for row in range(first, end):
        vector = vectors[row]
        for j in range(rank):
            factor, line = vector[j], out[j]
            for k in range(rank):
                line[k] += factor * vector[k]


@njit(cache=True, nogil=True, fastmath=_FAST)
def sum_partners(
    first: int,
    end: int,
    start: np.ndarray,
    partners: np.ndarray,
    vectors: np.ndarray,
    out: np.ndarray,
) -> None:
    """For some rows, the sum of their partners' vectors."""
    rank = vectors.shape[1]
    for row in range(first, end):
        line = out[row]
        line[:] = 0.0
        for position in range(start[row], start[row + 1]):
            vector = vectors[partners[position]]
            for k in range(rank):
                line[k] += vector[k]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _multiply(
    own: np.ndarray,
    fixed: np.ndarray,
    gram: np.ndarray,
    ridge: np.float32,
    vector: np.ndarray,
    target: np.float32,
    out: np.ndarray,
) -> None:
    """Write the system times ``vector``, less ``target`` times the partners' sum, to ``out``.

    Takes four partners at a time.
    """
    rank = len(vector)
    for k in range(rank):
        out[k] = ridge * vector[k]
    for j in range(rank):
        factor, line = vector[j], gram[j]
        for k in range(rank):
            out[k] += factor * line[k]
    whole = len(own) - len(own) % 4
    for position in range(0, whole, 4):
        p = fixed[own[position]]
        q = fixed[own[position + 1]]
        r = fixed[own[position + 2]]
        s = fixed[own[position + 3]]
        a, b, c, d = -target, -target, -target, -target
        for k in range(rank):
            a += p[k] * vector[k]
            b += q[k] * vector[k]
            c += r[k] * vector[k]
            d += s[k] * vector[k]
        for k in range(rank):
            out[k] += a * p[k] + b * q[k] + c * r[k] + d * s[k]
    for position in range(whole, len(own)):
        p = fixed[own[position]]
        a = -target
        for k in range(rank):
            a += p[k] * vector[k]
        for k in range(rank):
            out[k] += a * p[k]


@njit(cache=True, nogil=True, fastmath=_FAST)
def solve_rows(
    first: int,
    end: int,
    start: np.ndarray,
    partners: np.ndarray,
    fixed: np.ndarray,
    free: np.ndarray,
    gram: np.ndarray,
    ridge: np.float32,
    ridge_per_partner: np.float32,
    steps: int,
) -> None:
    """Improve some rows of ``free`` by ``steps`` steps of conjugate gradients."""
    rank = fixed.shape[1]
    residual = np.empty(rank, np.float32)
    direction = np.empty(rank, np.float32)
    image = np.empty(rank, np.float32)
    for row in range(first, end):
        own, solution = partners[start[row] : start[row + 1]], free[row]
        if len(own) == 0:
            solution[:] = 0.0
            continue
        weight = ridge + ridge_per_partner * np.float32(len(own))
        _multiply(own, fixed, gram, weight, solution, np.float32(1.0), image)
        size = np.float32(0.0)
        for k in range(rank):
            residual[k] = -image[k]
            direction[k] = residual[k]
            size += residual[k] * residual[k]
        for _ in range(steps):
            if size < _NOTHING_LEFT:
                break
            _multiply(own, fixed, gram, weight, direction, np.float32(0.0), image)
            curvature = np.float32(0.0)
            for k in range(rank):
                curvature += direction[k] * image[k]
            length, left = size / curvature, np.float32(0.0)
            for k in range(rank):
                solution[k] += length * direction[k]
                residual[k] -= length * image[k]
                left += residual[k] * residual[k]
            for k in range(rank):
                direction[k] = residual[k] + left / size * direction[k]
            size = left


# On ratings held out within training parts .003 is best of ML-1M, .009 of ML-100K, .0006 of the
# Yelp sample.
_REGS = (0.0006, 0.0015, 0.003, 0.006, 0.009)

_POWER_STEPS = 3

_CG_STEPS = 3

# A block's share of a Gram matrix; fixed, so that threads do not change the order of sums.
_GRAM_ROWS = 512


def train_ials(
    presence: Presence,
    *,
    rank: int = 128,
    unrated: float = 1.0,
    reg: float | None = None,
    epochs: int = 3,
    seed: int = 0,
    n_threads: int | None = None,
) -> ListModel:
    """Train implicit ALS.

    Args:
        rank: Length of the vectors.
        unrated: Weight of what was not rated.
        reg: Regularisation, times how often a user or item occurs (all else counting ``unrated``).
            None: the best one of some for pairs held out of what was released; the larger the
            catalogue, the smaller it is.
        epochs: Passes over users and items.
        seed: Of the vectors that the search for singular vectors begins with.
        n_threads: Threads; every core by default. The result does not depend on it.
    """
    rank = min(rank, presence.n_items)
    with Workers(n_threads) as workers:
        if reg is None:
            train, held = presence.hold_out(HELD_OUT, seed)
            found = {
                reg: ndcg(_fit(train, rank, unrated, reg, epochs, seed, workers), train, held, seed)
                for reg in _REGS
            }
            reg = max(_REGS, key=lambda reg: found[reg])
        return _fit(presence, rank, unrated, reg, epochs, seed, workers)


def _fit(
    presence: Presence,
    rank: int,
    unrated: float,
    reg: float,
    epochs: int,
    seed: int,
    workers: Workers,
) -> ListModel:
    training = AlternatingTraining(presence, rank, unrated, reg, seed, workers)
    for _ in range(epochs):
        training.epoch()
    # A device's own ridge: that of a user with a typical number of ratings.
    typical = float(np.median(np.diff(presence.matrix.indptr)))
    ridge = reg * (typical + unrated * presence.n_items)
    nothing = np.zeros((0, rank), np.int8), np.ones(rank, np.float32)
    return ListModel(
        "factors",
        Bytes(*nothing),
        Bytes.of(training.items),
        Entries.none(presence.n_items),
        np.zeros(rank, np.float32),
        np.zeros(presence.n_items, np.float32),
        (ridge, unrated),
        about={"kind": "ials", "epochs": epochs, "reg": reg},
    )


class AlternatingTraining:
    """Passes over users and items."""

    def __init__(
        self, presence: Presence, rank: int, unrated: float, reg: float, seed: int, workers: Workers
    ) -> None:
        self._by_user, self._by_item = presence.matrix, presence.matrix.T.tocsr()
        self._unrated, self._reg, self._workers = np.float32(unrated), np.float32(reg), workers
        self.users = np.zeros((presence.n_users, rank), np.float32)
        self.items = self._singular_vectors(rank, seed)

    def epoch(self) -> None:
        """Users by items, then items by users."""
        self._solve(self._by_user, self.items, self.users)
        self._solve(self._by_item, self.users, self.items)

    def _singular_vectors(self, rank: int, seed: int) -> np.ndarray:
        """Return the largest right singular vectors, times the root of their singular values.

        They are found by power iteration.
        """
        vectors = np.random.default_rng([seed, 12]).standard_normal((self._by_item.shape[0], rank))
        for _ in range(_POWER_STEPS):
            vectors = self._sums(self._by_item, self._sums(self._by_user, np.linalg.qr(vectors)[0]))
        vectors = np.linalg.qr(vectors)[0]
        values = np.linalg.norm(self._sums(self._by_user, vectors), axis=0)
        return np.ascontiguousarray(vectors * np.sqrt(values), np.float32)

    def _sums(self, rows: csr_matrix, vectors: np.ndarray) -> np.ndarray:

        vectors = np.ascontiguousarray(vectors, np.float32)
        out = np.empty((rows.shape[0], vectors.shape[1]), np.float32)
        self._workers.over_rows(
            rows.indptr,
            lambda first, end: sum_partners(first, end, rows.indptr, rows.indices, vectors, out),
        )
        return out

    def _solve(self, rows: csr_matrix, fixed: np.ndarray, free: np.ndarray) -> None:

        gram = self._unrated * self._gram(fixed)
        ridge = np.float32(self._unrated * self._reg * len(fixed))

        def part(first: int, end: int) -> None:
            solve_rows(
                first,
                end,
                rows.indptr,
                rows.indices,
                fixed,
                free,
                gram,
                ridge,
                self._reg,
                _CG_STEPS,
            )

        self._workers.over_rows(rows.indptr, part)

    def _gram(self, vectors: np.ndarray) -> np.ndarray:

        rank, edges = vectors.shape[1], [*range(0, len(vectors), _GRAM_ROWS), len(vectors)]
        parts = np.zeros((len(edges) - 1, rank, rank), np.float32)

        def part(first: int, end: int) -> None:
            for block in range(first, end):
                add_gram(edges[block], edges[block + 1], vectors, parts[block])

        self._workers.over_rows(np.arange(len(edges)), part)
        return np.asarray(parts.sum(axis=0))
