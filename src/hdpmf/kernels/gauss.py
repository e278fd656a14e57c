"""Simulation noise drawn inside a kernel: sixteen streams of normals, a handful of instructions each.

The published procedure draws K fresh normals for every rating in every epoch, ten million for one epoch of ML-1M;
a library call each would cost more than the training. Here every lane runs its own xoshiro128++ generator and turns
two uniform words into two normals (Box and Muller), all lanes at once.

This is a seeded floating-point generator. It is for simulation and must never make noise that is released.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hdpmf.kernels.simd import bits_to_float, float_to_bits, pick, splat, sqrt, to_float

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
    """One 64-bit key for the stream of ``segment`` in ``epoch``; streams do not depend on threads or order."""
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
def seeded(key: Any, lane_numbers: Any, lanes: Any) -> Any:
    """The four state words of every lane, from one key."""
    low = splat(_U32(key & np.uint64(0xFFFFFFFF)), lanes)
    high = splat(_U32(key >> np.uint64(32)), lanes)
    a = _mix32(low ^ (lane_numbers * _U32(0x9E3779B9)))
    b = _mix32(high + a)
    c = _mix32(a + b * _U32(3) + _U32(0x632BE5AB))
    d = _mix32(b ^ (c + _U32(0x85157AF5))) | _U32(1)  # a state of four zeros would stay zero for ever
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
    # Split u = m * 2^e with m in [sqrt(1/2), sqrt(2)), the interval on which the series below is short.
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
    # Two bits choose a quadrant, the others an angle within +-45 degrees, where short polynomials are exact enough.
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
    # The remaining freedom of the quadrant is one sign for each: a quarter turn maps (c, s) to (-s, c).
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
