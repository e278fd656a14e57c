"""Loops over all ratings of a row, compiled by Numba, for ``batch``."""

from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import overload

from hdpmf.private.kernels.simd import dot, in_unit_ball, load, prefetch, store, zeros


@njit(nogil=True, cache=True)
def starts(rows: Any, n_rows: Any) -> Any:
    """Where each row begins, and the end of the last one."""
    start = np.zeros(n_rows + 1, np.int64)
    for row in rows:
        start[row + 1] += 1
    for row in range(n_rows):
        start[row + 1] += start[row]
    return start


@njit(nogil=True, cache=True)
def scatter(rows: Any, values: Any, start: Any, out: Any) -> None:
    """Lay values out by rows, in each in their order."""
    cursor = start.copy()
    for position in range(len(rows)):
        row = rows[position]
        out[cursor[row]] = values[position]
        cursor[row] += 1


def weighted(residual: Any, coefficient: Any, position: Any) -> Any:
    """For kernels: the residual times its coefficient, where there are coefficients."""
    return residual if coefficient is None else residual * coefficient[position]


@overload(weighted, strict=False)
def _weighted(residual: Any, coefficient: Any, position: Any) -> Any:
    # Decided by type, so that kernels without coefficients neither load them nor ask.
    if isinstance(coefficient, types.NoneType):
        return lambda residual, coefficient, position: residual
    return lambda residual, coefficient, position: residual * coefficient[position]


def exchange(values: Any, first: Any, second: Any) -> None:
    """For kernels: swap two entries of a column, where there is one."""
    if values is not None:
        values[first], values[second] = values[second], values[first]


@overload(exchange, strict=False)
def _exchange(values: Any, first: Any, second: Any) -> Any:
    if isinstance(values, types.NoneType):
        return lambda values, first, second: None

    def swap(values: Any, first: Any, second: Any) -> None:
        values[first], values[second] = values[second], values[first]

    return swap


# Lets LLVM fuse multiply and add, as on every machine with FMA; NaN and infinity keep their
# meaning.
_FAST = {"contract"}

# Rows are asked for this many ratings ahead: about the time that a far cache takes to answer.
_AHEAD = 12


@njit(inline="always")
def _residual_sum(row: Any, own: Any, grouped: Any, others: Any, lanes: Any) -> Any:
    """Sum of coefficient * (other . own - target) * other over the ratings of one row."""
    start, partner, target, coefficient = grouped
    total = zeros(others, lanes)
    last = len(partner) - 1
    for position in range(start[row], start[row + 1]):
        prefetch(others, partner[min(position + _AHEAD, last)], lanes)
        other = load(others, partner[position], lanes)
        residual = weighted(dot(other, own) - target[position], coefficient, position)
        total = total + other * residual
    return total


@njit(nogil=True, cache=True, fastmath=_FAST)
def item_gradients_of(
    first: Any, end: Any, grouped: Any, U: Any, V: Any, out: Any, lanes: Any
) -> None:
    """Write the gradients of these items."""
    two = U.dtype.type(2.0)
    for item in range(first, end):
        store(out, item, _residual_sum(item, load(V, item, lanes), grouped, U, lanes) * two)


@njit(nogil=True, cache=True, fastmath=_FAST)
def step_users_of(
    first: Any,
    end: Any,
    grouped: Any,
    U: Any,
    V: Any,
    steps: Any,
    reg: Any,
    unit_ball: Any,
    lanes: Any,
) -> None:
    """Make one step of each of these users."""
    two = U.dtype.type(2.0)
    for user in range(first, end):
        u = load(U, user, lanes)
        gradient = (_residual_sum(user, u, grouped, V, lanes) + u * reg) * two
        u = u - gradient * steps[user]
        store(U, user, in_unit_ball(u) if unit_ball else u)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _accumulate(
    first: Any, end: Any, partner: Any, target: Any, X: Any, weight: Any, H: Any, g: Any, z: Any
) -> None:
    """Add the ratings ``first:end`` to the lower triangle of H, to g and to z, four at a time."""
    size = X.shape[1]
    position = first
    while position + 4 <= end:
        i = partner[position]
        j = partner[position + 1]
        k = partner[position + 2]
        m = partner[position + 3]
        ui, uj, uk, um = weight[i], weight[j], weight[k], weight[m]
        ti, tj = ui * target[position], uj * target[position + 1]
        tk, tm = uk * target[position + 2], um * target[position + 3]
        for b in range(size):
            g[b] += (ti * X[i, b] + tj * X[j, b]) + (tk * X[k, b] + tm * X[m, b])
            z[b] += (X[i, b] + X[j, b]) + (X[k, b] + X[m, b])
        for a in range(size):
            wi, wj, wk, wm = ui * X[i, a], uj * X[j, a], uk * X[k, a], um * X[m, a]
            # Many features are zero for most items.
            if wi != 0.0 or wj != 0.0 or wk != 0.0 or wm != 0.0:
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
    """Solve H x = g; g becomes x.

    H is positive definite. Only its lower triangle is used, which becomes its Cholesky factor.
    """
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
def fit_of(
    first: Any,
    end: Any,
    start: Any,
    partner: Any,
    target: Any,
    X: Any,
    weight: Any,
    precision: Any,
    mean_map: Any,
    out: Any,
) -> None:
    """Solve the normal equations of each of these users."""
    size = X.shape[1]
    H, g, z = np.empty((size, size)), np.empty(size), np.empty(size)
    for user in range(first, end):
        H[:] = precision
        g[:] = 0.0
        z[:] = 0.0
        begin, stop = start[user], start[user + 1]
        _accumulate(begin, stop, partner, target, X, weight, H, g, z)
        for a in range(size):
            for c in range(size):
                g[a] += mean_map[a, c] * z[c] / max(stop - begin, 1)
        _solve(H, g)
        for a in range(size):
            out[user, a] = g[a]
