"""Each user's own vector by weighted least squares with a Gaussian prior: normal equations, then Cholesky.

Every user is summed and solved by one thread in a fixed order, so the number of threads changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hdpmf.threads import Workers

_FAST = {"contract"}


@njit(nogil=True, cache=True, fastmath=_FAST)
def _accumulate(first: Any, end: Any, partner: Any, target: Any, X: Any, weight: Any, H: Any, g: Any, z: Any) -> None:
    """Add the ratings ``first:end`` to the lower triangle of H, to g and to z, four at a time."""
    size = X.shape[1]
    position = first
    while position + 4 <= end:
        i, j, k, m = partner[position], partner[position + 1], partner[position + 2], partner[position + 3]
        ui, uj, uk, um = weight[i], weight[j], weight[k], weight[m]
        ti, tj = ui * target[position], uj * target[position + 1]
        tk, tm = uk * target[position + 2], um * target[position + 3]
        for b in range(size):
            g[b] += (ti * X[i, b] + tj * X[j, b]) + (tk * X[k, b] + tm * X[m, b])
            z[b] += (X[i, b] + X[j, b]) + (X[k, b] + X[m, b])
        for a in range(size):
            wi, wj, wk, wm = ui * X[i, a], uj * X[j, a], uk * X[k, a], um * X[m, a]
            if wi != 0.0 or wj != 0.0 or wk != 0.0 or wm != 0.0:  # many features are zero for most items
                for b in range(a + 1):
                    H[a, b] += (wi * X[i, b] + wj * X[j, b]) + (wk * X[k, b] + wm * X[m, b])
        position += 4
    while position < end:
        i = partner[position]
        for a in range(size):
            wi = weight[i] * X[i, a]
            g[a] += wi * target[position]
            z[a] += X[i, a]
            for b in range(a + 1):
                H[a, b] += wi * X[i, b]
        position += 1


@njit(nogil=True, cache=True, fastmath=_FAST)
def _solve(H: Any, g: Any) -> None:
    """Solve H x = g in place of g, H positive definite in its lower triangle, which becomes its Cholesky factor."""
    size = len(g)
    for a in range(size):
        for b in range(a):
            total = H[a, b]
            for c in range(b):
                total -= H[a, c] * H[b, c]
            H[a, b] = total / H[b, b]
        total = H[a, a]
        for c in range(a):
            total -= H[a, c] * H[a, c]
        H[a, a] = np.sqrt(total)
    for a in range(size):
        for c in range(a):
            g[a] -= H[a, c] * g[c]
        g[a] /= H[a, a]
    for a in range(size - 1, -1, -1):
        for c in range(a + 1, size):
            g[a] -= H[c, a] * g[c]
        g[a] /= H[a, a]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _fit(
    first: Any, end: Any, start: Any, partner: Any, target: Any, X: Any, weight: Any, precision: Any, mean_map: Any,
    out: Any,
) -> None:  # fmt: skip
    size = X.shape[1]
    H, g, z = np.empty((size, size)), np.empty(size), np.empty(mean_map.shape[1])
    for user in range(first, end):
        H[:] = precision
        g[:] = 0.0
        z[:] = 0.0
        begin, stop = start[user], start[user + 1]
        _accumulate(begin, stop, partner, target, X, weight, H, g, z)
        describe(z, size, stop - begin)
        for a in range(size):
            for c in range(len(z)):
                g[a] += mean_map[a, c] * z[c]
        _solve(H, g)
        for a in range(size):
            out[user, a] = g[a]


@njit(inline="always")
def describe(z: Any, size: Any, n: Any) -> None:
    """Turn sums of features into what the prior's mean may depend on: mean features, and how many ratings."""
    for a in range(size):
        z[a] /= max(n, 1)
    amount = np.log(max(n, 1) / 80.0)
    z[size] = amount
    z[size + 1] = amount * amount


@njit(nogil=True, cache=True, fastmath=_FAST)
def _statistics(
    first: Any, end: Any, start: Any, partner: Any, target: Any, X: Any, weight: Any, H: Any, g: Any, z: Any, y2: Any
) -> None:
    size = X.shape[1]
    for user in range(first, end):
        begin, stop = start[user], start[user + 1]
        _accumulate(begin, stop, partner, target, X, weight, H[user], g[user], z[user])
        describe(z[user], size, stop - begin)
        for position in range(begin, stop):
            y2[user] += weight[partner[position]] * target[position] * target[position]


def fit_users(
    start: np.ndarray,
    partner: np.ndarray,
    target: np.ndarray,
    X: np.ndarray,
    weight: np.ndarray,
    precision: np.ndarray,
    mean_map: np.ndarray,
    out: np.ndarray,
    workers: Workers,
) -> None:
    """Write to each row of ``out`` the vector t that solves ``(precision + sum w x x') t = sum w x y + mean_map z``.

    Args:
        start: Where each user's ratings begin, and the end of the last.
        partner: The item of each rating.
        target: What is to be explained of each rating.
        X: Features, one row per item.
        weight: How much a rating of each item counts.
        precision: Of the prior, in the same units.
        mean_map: The precision times the map from a user's description z (see ``describe``) to the prior's mean.
        out: One row per user.
        workers: Threads.
    """
    workers.over_rows(
        start, lambda first, end: _fit(first, end, start, partner, target, X, weight, precision, mean_map, out)
    )


def user_statistics(
    start: np.ndarray, partner: np.ndarray, target: np.ndarray, X: np.ndarray, weight: np.ndarray, workers: Workers
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Per user ``sum w x x'`` (lower triangle), ``sum w x y``, its description z, and ``sum w y^2``."""
    n, size = len(start) - 1, X.shape[1]
    H, g, z, y2 = np.zeros((n, size, size)), np.zeros((n, size)), np.zeros((n, size + 2)), np.zeros(n)
    workers.over_rows(start, lambda first, end: _statistics(first, end, start, partner, target, X, weight, H, g, z, y2))
    return H, g, z, y2
