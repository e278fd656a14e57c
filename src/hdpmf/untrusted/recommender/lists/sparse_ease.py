"""EASE for large catalogues: predict each item from its most similar items alone.

An item's column of the whole matrix takes the inverse of all of it. Here it is the ridge regression
on the items that are most often rated by the same people (the damped cosine), which takes a small
system for each item and memory for the answer only. The more neighbours, the nearer to EASE;
docs/lists.md has the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from hdpmf.common.base.threads import Workers
from hdpmf.untrusted.recommender.lists.presence import DAMPING, Presence

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def sparse_item_item(
    presence: Presence, strength: float, neighbours: int, n_threads: int | None = None
) -> csr_matrix:
    """Return the matrix: one column per item, with at most ``neighbours`` entries."""
    from scipy.sparse import csr_matrix

    by_user, by_item = presence.matrix, presence.matrix.T.tocsr()
    n, neighbours = presence.n_items, min(neighbours, presence.n_items - 1)
    found, values = np.full((n, neighbours), -1, np.int32), np.zeros((n, neighbours))
    ridge = strength * np.sqrt(np.maximum(presence.raters, 1))

    def part(first: int, end: int) -> None:
        _regress(
            first,
            end,
            by_user.indptr,
            by_user.indices,
            by_item.indptr,
            by_item.indices,
            ridge,
            DAMPING,
            found,
            values,
        )

    with Workers(n_threads) as workers:
        workers.over_rows(by_item.indptr, part)
    columns, positions = np.nonzero(found >= 0)
    return csr_matrix(
        (values[columns, positions], (found[columns, positions], columns)), shape=(n, n)
    )


@njit(cache=True, nogil=True)
def _regress(
    first: int,
    end: int,
    user_start: np.ndarray,
    user_items: np.ndarray,
    item_start: np.ndarray,
    item_users: np.ndarray,
    ridge: np.ndarray,
    damping: float,
    found: np.ndarray,
    values: np.ndarray,
) -> None:
    """Regress the items from ``first`` to ``end`` on their most similar items.

    Writes the neighbours of each to ``found`` and their coefficients to ``values``.
    """
    n_users, n_items, most = len(user_start) - 1, len(item_start) - 1, found.shape[1]
    together = np.zeros(n_items, np.int64)
    has = np.empty((n_users, most), np.int16)  # which neighbours each user has rated
    n_has = np.zeros(n_users, np.int32)
    for item in range(first, end):
        touched = np.empty(n_items, np.int64)
        n_touched = 0
        for position in range(item_start[item], item_start[item + 1]):
            user = item_users[position]
            for other in user_items[user_start[user] : user_start[user + 1]]:
                if other != item:
                    if together[other] == 0:
                        touched[n_touched] = other
                        n_touched += 1
                    together[other] += 1
        others = np.sort(touched[:n_touched])
        similar = np.empty(n_touched)
        right = np.empty(n_touched)
        for k in range(n_touched):
            other = others[k]
            similar[k] = together[other] / np.sqrt(
                item_start[other + 1] - item_start[other] + damping
            )
            right[k] = together[other]
            together[other] = 0
        if n_touched > most:
            chosen = np.sort(np.argsort(-similar, kind="mergesort")[:most])
            others, right = others[chosen], right[chosen]
        size = len(others)
        if size == 0:
            continue
        system = np.zeros((size, size))
        for k in range(size):
            for position in range(item_start[others[k]], item_start[others[k] + 1]):
                user = item_users[position]
                for j in range(n_has[user]):
                    system[k, has[user, j]] += 1.0
                has[user, n_has[user]] = k
                n_has[user] += 1
        for k in range(size):
            other = others[k]
            for position in range(item_start[other], item_start[other + 1]):
                n_has[item_users[position]] = 0
            system[k, k] = item_start[other + 1] - item_start[other] + ridge[other]
            for j in range(k):
                system[j, k] = system[k, j]
        solution = np.linalg.solve(system, right)
        for k in range(size):
            found[item, k] = others[k]
            values[item, k] = solution[k]
