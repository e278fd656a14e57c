"""One SGD step per rating: the procedure behind the published numbers. For simulation only.

In the item pass users are fixed, so every item depends on its own ratings alone, and the pass runs in parallel over
items (the user pass over users) with exactly the distribution of the serial loop. Each row takes its ratings in a
fresh random order, drawn on the way (Fisher and Yates, in place).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from hdpmf.kernels.gauss import next_word, normal_pair, seeded, stream_key
from hdpmf.kernels.grouping import Grouped, exchange, weighted
from hdpmf.kernels.simd import dot, in_unit_ball, lanes_of, load, store, zeros
from hdpmf.threads import Workers

_FAST = {"contract"}


@dataclass(frozen=True, slots=True)
class PassNoise:
    """The noise of one item pass.

    Attributes:
        spread: Standard deviation of one rating's noise, one row per item or one row for all (padded matrix).
        epoch: Selects the streams; the same number draws the same noise again.
    """

    spread: np.ndarray
    epoch: int


@njit(inline="always")
def swap_in(position: Any, end: Any, counter: Any, first: Any, second: Any, third: Any) -> Any:
    """Exchange the rating at ``position`` with a random one of those not yet visited."""
    word, counter = next_word(counter)
    chosen = position + np.int64(((word >> np.uint64(32)) * np.uint64(end - position)) >> np.uint64(32))
    exchange(first, position, chosen)
    exchange(second, position, chosen)
    exchange(third, position, chosen)
    return counter


@njit(nogil=True, cache=True, fastmath=_FAST)
def _pass(
    first: Any,
    end_row: Any,
    grouped: Any,
    own: Any,
    others: Any,
    rate: Any,
    reg: Any,
    unit_ball: Any,
    seed: Any,
    epoch: Any,
    spread: Any,
    noise_epoch: Any,
    lane_numbers: Any,
    lanes: Any,
) -> None:
    start, partner, target, coefficient = grouped
    two_rate = own.dtype.type(2.0) * rate
    keep = own.dtype.type(1.0) - two_rate * reg
    for row in range(first, end_row):
        if start[row] == start[row + 1]:
            continue
        x = load(own, row, lanes)
        counter = stream_key(seed, epoch, row)
        if spread is not None:
            state = seeded(
                stream_key(seed ^ np.uint64(0x5DEECE66D), noise_epoch, row),
                load(lane_numbers, 0, lanes),
                lanes,
            )
            deviation = load(spread, row if len(spread) > 1 else 0, lanes) * rate
            spare = zeros(own, lanes)
        fresh = True
        for position in range(start[row], start[row + 1]):
            # Noise that is drawn once belongs to its rating, so the order of the ratings must then stay.
            if spread is None or noise_epoch == epoch:
                counter = swap_in(position, start[row + 1], counter, partner, target, coefficient)
            other = load(others, partner[position], lanes)
            residual = weighted(target[position] - dot(other, x), coefficient, position)
            x = x * keep + other * (residual * two_rate)
            if spread is not None:
                if fresh:
                    noise, spare, state = normal_pair(state)
                else:
                    noise = spare
                fresh = not fresh
                x = x - noise * deviation
            if unit_ball:
                x = in_unit_ball(x)
        store(own, row, x)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _joint_pass(
    users: Any,
    items: Any,
    target: Any,
    U: Any,
    V: Any,
    rate: Any,
    reg: Any,
    seed: Any,
    epoch: Any,
    lanes: Any,
) -> None:
    two_rate = U.dtype.type(2.0) * rate
    keep = U.dtype.type(1.0) - two_rate * reg
    counter = stream_key(seed, epoch, 0)
    n = len(users)
    for position in range(n):
        counter = swap_in(position, n, counter, users, items, target)
        u = load(U, users[position], lanes)
        v = load(V, items[position], lanes)
        step = (target[position] - dot(u, v)) * two_rate
        store(V, items[position], v * keep + u * step)
        store(U, users[position], in_unit_ball(u * keep + v * step))


def item_pass(
    by_item: Grouped,
    U: np.ndarray,
    V: np.ndarray,
    rate: float,
    reg: float,
    seed: int,
    epoch: int,
    noise: PassNoise | None,
    workers: Workers,
) -> None:
    """One noisy SGD step on v_j per rating of item j; users stay fixed. Reorders ``by_item`` within items."""
    spread = None if noise is None else noise.spread
    noise_epoch = epoch if noise is None else noise.epoch
    _run(by_item, V, U, rate, reg, False, seed, 2 * epoch, spread, 2 * noise_epoch, workers)


def user_pass(
    by_user: Grouped,
    U: np.ndarray,
    V: np.ndarray,
    rate: float,
    reg: float,
    seed: int,
    epoch: int,
    workers: Workers,
) -> None:
    """One SGD step on u_i per rating of user i, projected onto the unit ball. Reorders ``by_user`` within users."""
    _run(by_user, U, V, rate, reg, True, seed, 2 * epoch + 1, None, 2 * epoch + 1, workers)


def _run(
    grouped: Grouped,
    own: np.ndarray,
    others: np.ndarray,
    rate: float,
    reg: float,
    unit_ball: bool,
    seed: int,
    epoch: int,
    spread: np.ndarray | None,
    noise_epoch: int,
    workers: Workers,
) -> None:
    columns, lanes, typed = grouped.columns, lanes_of(own), own.dtype.type
    lane_numbers = np.arange(1, len(lanes) + 1, dtype=np.uint32).reshape(1, -1)
    workers.over_rows(
        grouped.start,
        lambda first, end: _pass(
            first, end, columns, own, others, typed(rate), typed(reg), unit_ball,
            np.uint64(seed), epoch, spread, noise_epoch, lane_numbers, lanes,
        ),
    )  # fmt: skip


def joint_pass(
    users: np.ndarray,
    items: np.ndarray,
    target: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    rate: float,
    reg: float,
    seed: int,
    epoch: int,
) -> None:
    """Non-private MF: one step per rating on u_i and v_j together, in random order, on one thread by its nature."""
    typed = U.dtype.type
    _joint_pass(users, items, target, U, V, typed(rate), typed(reg), np.uint64(seed), epoch, lanes_of(U))
