"""One SGD step per rating: the procedure behind the published numbers, and biased MF.

For simulation only.

In the item pass users are fixed, so every item depends on its own ratings alone, and the pass runs
in parallel over items (the user pass over users) with exactly the distribution of the serial loop.
Each row takes its ratings in a fresh random order, drawn on the way (Fisher and Yates, in place).

The procedure draws K fresh normals for every rating in every epoch; a library call each would cost
more than the training. Here every lane runs its own xoshiro128++ generator and turns two uniform
words into two normals (Box and Muller). It is a seeded floating-point generator, and must never
make noise that is released.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from hdpmf.common.base.threads import Workers
from hdpmf.private.kernels.batch import GroupedRatings, lanes_of
from hdpmf.private.kernels.compiled import exchange, weighted
from hdpmf.private.kernels.simd import (
    bits_to_float,
    dot,
    float_to_bits,
    in_unit_ball,
    load,
    pick,
    splat,
    sqrt,
    store,
    to_float,
    zeros,
)

_U32 = np.uint32

_F32 = np.float32


@njit(inline="always")
def mix64(x: Any) -> Any:
    """A bijective scrambling of 64-bit words (the finaliser of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(inline="always")
def stream_key(seed: Any, epoch: Any, segment: Any) -> Any:
    """Return the 64-bit key of a ``segment``'s stream in ``epoch``.

    Streams do not depend on threads or order.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    key = mix64(np.uint64(seed) + golden)
    key = mix64(key ^ (np.uint64(epoch) + golden))
    return mix64(key + np.uint64(segment) * golden)


@njit(inline="always")
def _mix32(x: Any) -> Any:
    x = (x ^ (x >> _U32(16))) * _U32(0x7FEB352D)
    x = (x ^ (x >> _U32(15))) * _U32(0x846CA68B)
    return x ^ (x >> _U32(16))


@njit(inline="always")
def seed_streams(key: Any, lane_numbers: Any, lanes: Any) -> Any:
    """The four state words of every lane, from one key."""
    low = splat(_U32(key & np.uint64(0xFFFFFFFF)), lanes)
    high = splat(_U32(key >> np.uint64(32)), lanes)
    a = _mix32(low ^ (lane_numbers * _U32(0x9E3779B9)))
    b = _mix32(high + a)
    c = _mix32(a + b * _U32(3) + _U32(0x632BE5AB))
    # A state of four zeros would stay zero for ever.
    d = _mix32(b ^ (c + _U32(0x85157AF5))) | _U32(1)
    return a, b, c, d


@njit(inline="always")
def _rotate(x: Any, left: Any) -> Any:
    return (x << _U32(left)) | (x >> _U32(32 - left))


@njit(inline="always")
def _word(state: Any) -> Any:
    """The next 32 bits of every lane (xoshiro128++), and the new state."""
    a, b, c, d = state
    out = _rotate(a + d, 7) + a
    shifted = b << _U32(9)
    c = c ^ a
    d = d ^ b
    b = b ^ c
    a = a ^ d
    return out, (a, b, c ^ shifted, _rotate(d, 11))


@njit(inline="always")
def _minus_two_log(word: Any) -> Any:
    """-2 ln(u) for u uniform in (0, 1), from 24 of the word's bits."""
    # u is (k + 1/2) / 2^24: never 0 and never 1.
    u = to_float(word >> _U32(8)) * _F32(2.0**-24) + _F32(2.0**-25)
    bits = float_to_bits(u)
    # Split u = m * 2^e with m in [sqrt(1/2), sqrt(2)), the interval on which the series below is
    # short.
    shifted = bits - _U32(0x3F3504F3)
    exponent = to_float((shifted >> _U32(23)) | ((shifted >> _U32(31)) * _U32(0xFFFFFE00)))
    f = bits_to_float((shifted & _U32(0x007FFFFF)) + _U32(0x3F3504F3)) - _F32(1.0)
    # ln(1 + f) by a polynomial fitted to relative error below 4e-7 on that interval.
    p = f * _F32(-0.10223772) + _F32(0.16141084)
    p = p * f + _F32(-0.17166989)
    p = p * f + _F32(0.19910250)
    p = p * f + _F32(-0.24980570)
    p = p * f + _F32(0.33334691)
    p = p * f * f * f + f - f * f * _F32(0.5)
    return (p + exponent * _F32(0.69314718)) * _F32(-2.0)


@njit(inline="always")
def normal_pair(state: Any) -> Any:
    """Two independent vectors of standard normals, and the new state."""
    word, state = _word(state)
    radius = sqrt(_minus_two_log(word))
    word, state = _word(state)
    # Two bits choose a quadrant, the others an angle within +-45 degrees, where short polynomials
    # are exact enough.
    angle = to_float((word >> _U32(2)) - _U32(1 << 29)) * _F32(np.pi / 4 / 2**29)
    square = angle * angle
    sine = square * _F32(-1.9515296e-4) + _F32(8.3321609e-3)
    sine = sine * square + _F32(-1.6666655e-1)
    sine = sine * square * angle + angle
    cosine = square * _F32(2.4433157e-5) + _F32(-1.3887316e-3)
    cosine = cosine * square + _F32(4.1666646e-2)
    cosine = cosine * square * square - square * _F32(0.5) + _F32(1.0)
    turned = word & _U32(1)
    first = pick(turned, sine, cosine)
    second = pick(turned, cosine, sine)
    # The remaining freedom of the quadrant is one sign for each: a quarter turn maps (c, s) to (-s,
    # c).
    first_sign = (word ^ (word >> _U32(1))) << _U32(31)
    second_sign = (word & _U32(2)) << _U32(30)
    first = bits_to_float(float_to_bits(first) ^ first_sign) * radius
    second = bits_to_float(float_to_bits(second) ^ second_sign) * radius
    return first, second, state


@njit(inline="always")
def next_word(counter: Any) -> Any:
    """Advance a scalar SplitMix64 stream: (64 random bits, new counter)."""
    counter += np.uint64(0x9E3779B97F4A7C15)
    return mix64(counter), counter


_FAST = {"contract"}


@dataclass(frozen=True, slots=True)
class PassNoise:
    """The noise of one item pass.

    Attributes:
        spread: Standard deviation of one rating's noise, one row per item or one row for all
            (padded matrix).
        epoch: Selects the streams; the same number draws the same noise again.
    """

    spread: np.ndarray
    epoch: int


@njit(inline="always")
def swap_in(position: Any, end: Any, counter: Any, first: Any, second: Any, third: Any) -> Any:
    """Exchange the rating at ``position`` with a random one of those not yet visited."""
    word, counter = next_word(counter)
    chosen = position + np.int64(
        ((word >> np.uint64(32)) * np.uint64(end - position)) >> np.uint64(32)
    )
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
            state = seed_streams(
                stream_key(seed ^ np.uint64(0x5DEECE66D), noise_epoch, row),
                load(lane_numbers, 0, lanes),
                lanes,
            )
            deviation = load(spread, row if len(spread) > 1 else 0, lanes) * rate
            spare = zeros(own, lanes)
        fresh = True
        for position in range(start[row], start[row + 1]):
            # Noise that is drawn once belongs to its rating, so the order of the ratings must then
            # stay.
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
    by_item: GroupedRatings,
    U: np.ndarray,
    V: np.ndarray,
    rate: float,
    reg: float,
    seed: int,
    epoch: int,
    noise: PassNoise | None,
    workers: Workers,
) -> None:
    """Make one SGD step on v_j per rating of item j, noisy unless ``noise`` is None.

    Users stay fixed. Reorders ``by_item`` within items.
    """
    spread = None if noise is None else noise.spread
    noise_epoch = epoch if noise is None else noise.epoch
    _run(by_item, V, U, rate, reg, False, seed, 2 * epoch, spread, 2 * noise_epoch, workers)


def user_pass(
    by_user: GroupedRatings,
    U: np.ndarray,
    V: np.ndarray,
    rate: float,
    reg: float,
    seed: int,
    epoch: int,
    workers: Workers,
) -> None:
    """Make one SGD step on u_i per rating of user i, each projected onto the unit ball.

    Items stay fixed. Reorders ``by_user`` within users.
    """
    _run(by_user, U, V, rate, reg, True, seed, 2 * epoch + 1, None, 2 * epoch + 1, workers)


def _run(
    grouped: GroupedRatings,
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
    """Make one step on u_i and v_j together per rating, in random order: non-private MF.

    It cannot be divided among threads.
    """
    typed = U.dtype.type
    _joint_pass(
        users, items, target, U, V, typed(rate), typed(reg), np.uint64(seed), epoch, lanes_of(U)
    )


@njit(nogil=True, cache=True, fastmath={"contract"})
def _biased_pass(
    users: Any,
    items: Any,
    target: Any,
    user_bias: Any,
    item_bias: Any,
    U: Any,
    V: Any,
    rate: Any,
    reg: Any,
    seed: Any,
    epoch: Any,
    lanes: Any,
) -> None:
    keep = U.dtype.type(1.0) - rate * reg
    counter = stream_key(seed, epoch, 0)
    n = len(users)
    for position in range(n):
        counter = swap_in(position, n, counter, users, items, target)
        user, item = users[position], items[position]
        u = load(U, user, lanes)
        v = load(V, item, lanes)
        step = (target[position] - user_bias[user] - item_bias[item] - dot(u, v)) * rate
        user_bias[user] = user_bias[user] * keep + step
        item_bias[item] = item_bias[item] * keep + step
        store(U, user, u * keep + v * step)
        store(V, item, v * keep + u * step)


def biased_pass(
    users: np.ndarray,
    items: np.ndarray,
    target: np.ndarray,
    user_bias: np.ndarray,
    item_bias: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    rate: float,
    reg: float,
    seed: int,
    epoch: int,
) -> None:
    """One epoch of MF with biases, in place, on one thread; ``target`` is less the mean of all.

    Reorders the ratings. Factors are padded.
    """
    typed = U.dtype.type
    _biased_pass(
        users, items, target, user_bias, item_bias, U, V,
        typed(rate), typed(reg), np.uint64(seed), epoch, lanes_of(U),
    )  # fmt: skip
