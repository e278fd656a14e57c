"""The law of a noise share, enclosed between integers: NB(m/n, 1 - q) with q = exp(-1/scale).

Probabilities are fixed-point integers with far more bits than a draw compares, rounded down for a lower and up for an
upper bound, so that the true value of every cumulated probability is known to lie between the two. Everything is a
function of public parameters; there is no randomness here.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

MAX_LENGTH = 1 << 14
"""Longest table; what lies beyond is drawn by rejection, which is exact too and seldom needed."""

_GUARD = 128


@dataclass(frozen=True, slots=True)
class ShareTable:
    """Bounds on P(X <= k) for k = 0, 1, ... in units of 2^-bits, both rounded down.

    Attributes:
        low: Of the lower bounds.
        high: Of the upper bounds.
        bits: Bits of a draw that they are compared with.
    """

    low: np.ndarray | list[int]
    high: np.ndarray | list[int]
    bits: int

    @property
    def length(self) -> int:
        """How many values the table tells apart; the number itself stands for all larger ones."""
        return len(self.low)

    def find(self, prefix: int) -> int | None:
        """The value for a uniform number whose first bits are ``prefix``, or None where more bits are needed."""
        place = bisect_right(self.low, prefix)
        return None if place and prefix <= self.high[place - 1] else place


@lru_cache(maxsize=64)
def share_table(scale: Fraction, shape: Fraction, bits: int) -> ShareTable:
    """The table for a shape in (0, 1)."""
    m, n = shape.numerator, shape.denominator
    precision = bits + _GUARD + n.bit_length()
    whole = 1 << precision
    q_low, q_high = _exp_minus(1 / scale, precision)
    p_low = _power(_root(whole - q_high, n, precision)[0], m, precision)[0]
    p_high = _power(_root(whole - q_low, n, precision)[1], m, precision)[1]
    sum_low = sum_high = 0
    low: list[int] = []
    high: list[int] = []
    drop = precision - bits
    for k in range(1, MAX_LENGTH + 1):
        sum_low += p_low
        sum_high += p_high
        low.append(min(sum_low, whole - 1) >> drop)
        high.append(min(sum_high, whole - 1) >> drop)
        up, down = n * (k - 1) + m, n * k
        p_low = p_low * q_low * up // (down << precision)
        p_high = -(-p_high * q_high * up // (down << precision))
        if p_high >> (drop // 2) == 0:  # what is left is far below one unit of a draw
            break
    if bits > 64:
        return ShareTable(low, high, bits)
    return ShareTable(np.array(low, np.uint64), np.array(high, np.uint64), bits)


def _exp_minus(x: Fraction, precision: int) -> tuple[int, int]:
    """Bounds on 2^precision exp(-x), for x > 0."""
    halvings = max(0, (x.numerator // x.denominator).bit_length())
    work = precision + 2 * halvings + 16
    small = x / (1 << halvings)  # at most 1, where the series alternates with falling terms
    low = high = 0
    term_low = term_high = 1 << work
    k = 0
    while term_high > 1:
        low, high = (low + term_low, high + term_high) if k % 2 == 0 else (low - term_high, high - term_low)
        k += 1
        term_low = term_low * small.numerator // (small.denominator * k)
        term_high = -(-term_high * small.numerator // (small.denominator * k))
    low, high = max(low - term_high, 0), high + term_high  # the rest is smaller than the first term left out
    for _ in range(halvings):
        low, high = low * low >> work, -(-high * high >> work)
    drop = work - precision
    return low >> drop, -(-high >> drop)


def _power(x: int, exponent: int, precision: int) -> tuple[int, int]:
    """Bounds on (x / 2^precision)^exponent in the same units, for x up to 2^precision."""
    low = high = 1 << precision
    base_low = base_high = x
    while exponent:
        if exponent & 1:
            low, high = low * base_low >> precision, -(-high * base_high >> precision)
        exponent >>= 1
        base_low, base_high = base_low * base_low >> precision, -(-base_high * base_high >> precision)
    return low, high


def _root(x: int, n: int, precision: int) -> tuple[int, int]:
    """Bounds on (x / 2^precision)^(1/n) in the same units."""
    under, over = 0, 1 << precision  # the largest known to be too small or right, the smallest known not to be
    while over - under > 1:
        middle = (under + over) >> 1
        if _power(middle, n, precision)[1] <= x:
            under = middle
        else:
            over = middle
    low = under
    under, over = low, 1 << precision
    while over - under > 1:
        middle = (under + over) >> 1
        if _power(middle, n, precision)[0] >= x:
            over = middle
        else:
            under = middle
    return low, over
