"""Loops over all ratings of a row, in NumPy, for ``batch`` on a device without Numba."""

from __future__ import annotations

from typing import Any

import numpy as np


def starts(rows: Any, n_rows: Any) -> Any:
    """Where each row begins, and the end of the last one."""
    return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n_rows)))).astype(np.int64)


def scatter(rows: Any, values: Any, start: Any, out: Any) -> None:
    """Lay values out by rows, in each in their order."""
    out[:] = np.asarray(values)[np.argsort(rows, kind="stable")]


def _residual_sum(row: Any, own: Any, grouped: Any, others: Any) -> Any:
    """Sum of coefficient * (other . own - target) * other over the ratings of one row."""
    start, partner, target, coefficient = grouped
    here = slice(start[row], start[row + 1])
    other = others[partner[here]]
    residual = other @ own - target[here]
    return (residual if coefficient is None else residual * coefficient[here]) @ other


def item_gradients_of(
    first: Any, end: Any, grouped: Any, U: Any, V: Any, out: Any, lanes: Any
) -> None:
    """Write the gradients of these items."""
    for item in range(first, end):
        out[item] = _residual_sum(item, V[item], grouped, U) * U.dtype.type(2)


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
    for user in range(first, end):
        gradient = (_residual_sum(user, U[user], grouped, V) + U[user] * reg) * U.dtype.type(2)
        u = U[user] - gradient * steps[user]
        square = u @ u
        U[user] = u / np.sqrt(square) if unit_ball and square > 1 else u


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
    for user in range(first, end):
        here = slice(start[user], start[user + 1])
        features, n = X[partner[here]], start[user + 1] - start[user]
        weighted = features * weight[partner[here], None]
        # Of the precision only the lower triangle counts, as in the compiled loop.
        lower = np.tril(weighted.T @ features + precision)
        whole = lower + np.tril(lower, -1).T
        right = weighted.T @ target[here] + mean_map @ (features.sum(0) / max(n, 1))
        out[user, : X.shape[1]] = np.linalg.solve(whole, right)
