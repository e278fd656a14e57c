"""Implicit ALS: what was rated counts 1, everything else 0 with a small weight (Hu, Koren and Volinsky 2008).

A row's ridge grows with how often it occurs (Rendle et al. 2021). The item factors are what devices get; each device
solves for its own vector.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from hdpmf.public.lists import Bytes, Entries, ListModel
from hdpmf.recommender.lists.presence import Presence


def train_ials(
    presence: Presence, *, rank: int = 64, unrated: float = 1.0, reg: float = 0.006, epochs: int = 12, seed: int = 0
) -> ListModel:
    """Train it.

    Args:
        presence: Who rated what.
        rank: Length of the vectors.
        unrated: Weight of what was not rated.
        reg: Regularisation, times how often a user or item occurs (all else counting ``unrated``).
        epochs: Passes over users and items.
        seed: Of the first item factors.
    """
    rng = np.random.default_rng([seed, 12])
    by_user, by_item = presence.matrix, presence.matrix.T.tocsr()
    items = (rng.standard_normal((presence.n_items, rank)) * 0.1 / np.sqrt(rank)).astype(np.float32)
    users = np.zeros((presence.n_users, rank), np.float32)
    for _ in range(epochs):
        _half(by_user.indptr, by_user.indices, items, users, unrated, reg)
        _half(by_item.indptr, by_item.indices, users, items, unrated, reg)
    # A device's own ridge: that of a user with a typical number of ratings.
    typical = float(np.median(np.diff(by_user.indptr)))
    ridge = reg * (typical + unrated * presence.n_items)
    nothing = np.zeros((0, rank), np.int8), np.ones(rank, np.float32)
    return ListModel(
        "factors",
        Bytes(*nothing),
        Bytes.of(items),
        Entries.none(presence.n_items),
        np.zeros(rank, np.float32),
        np.zeros(presence.n_items, np.float32),
        (ridge, unrated),
        about={"kind": "ials", "epochs": epochs},
    )


def _half(
    start: np.ndarray, partners: np.ndarray, fixed: np.ndarray, free: np.ndarray, unrated: float, reg: float
) -> None:
    wide = fixed.astype(np.float64)
    _solve_rows(start, partners, wide, free, unrated * (wide.T @ wide), reg, unrated * len(fixed) * reg)


@njit(cache=True, parallel=True)
def _solve_rows(
    start: np.ndarray,
    partners: np.ndarray,
    fixed: np.ndarray,
    free: np.ndarray,
    gram: np.ndarray,
    reg: float,
    base: float,
) -> None:
    rank = fixed.shape[1]
    for row in prange(len(start) - 1):
        first, last = start[row], start[row + 1]
        system = gram.copy()
        right = np.zeros(rank)
        own = fixed[partners[first:last]]
        if last > first:
            system += own.T @ own
            for k in range(rank):
                right[k] = own[:, k].sum()
        for k in range(rank):
            system[k, k] += base + reg * (last - first)
        free[row] = np.linalg.solve(system, right)
