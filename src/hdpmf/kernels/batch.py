"""The passes of Algorithm 1: summed item gradients, and one step per user.

``item_gradients`` is what a shard sends (before noise); ``step_users`` is what a device does with the factors it
receives. Both go through grouped ratings and gather rows of the other side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hdpmf.kernels.grouping import Grouped, weighted
from hdpmf.kernels.simd import dot, in_unit_ball, lanes_of, load, prefetch, store, zeros
from hdpmf.threads import Workers

# Lets LLVM fuse multiply and add, as on every machine with FMA; NaN and infinity keep their meaning.
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
def _item_gradients(first: Any, end: Any, grouped: Any, U: Any, V: Any, out: Any, lanes: Any) -> None:
    two = U.dtype.type(2.0)
    for item in range(first, end):
        store(out, item, _residual_sum(item, load(V, item, lanes), grouped, U, lanes) * two)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _step_users(
    first: Any, end: Any, grouped: Any, U: Any, V: Any, steps: Any, reg: Any, unit_ball: Any, lanes: Any
) -> None:
    two = U.dtype.type(2.0)
    for user in range(first, end):
        u = load(U, user, lanes)
        gradient = (_residual_sum(user, u, grouped, V, lanes) + u * reg) * two
        u = u - gradient * steps[user]
        store(U, user, in_unit_ball(u) if unit_ball else u)


def item_gradients(by_item: Grouped, U: np.ndarray, V: np.ndarray, out: np.ndarray, workers: Workers) -> None:
    """Per item, the sum over its ratings of ``2 c (u.v - t) u``, written to ``out`` (padded matrices throughout)."""
    columns, lanes = by_item.columns, lanes_of(V)
    workers.over_rows(by_item.start, lambda first, end: _item_gradients(first, end, columns, U, V, out, lanes))


def step_users(
    by_user: Grouped,
    U: np.ndarray,
    V: np.ndarray,
    steps: np.ndarray,
    reg: float,
    unit_ball: bool,
    workers: Workers,
) -> None:
    """One gradient step of every user vector, in place, then (if asked) projection onto the unit ball."""
    columns, lanes, typed_reg = by_user.columns, lanes_of(V), U.dtype.type(reg)
    workers.over_rows(
        by_user.start,
        lambda first, end: _step_users(first, end, columns, U, V, steps, typed_reg, unit_ball, lanes),
    )
