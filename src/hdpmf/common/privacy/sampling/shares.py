"""Exact shares of discrete Laplace noise: NB(m/n, 1 - q) with q = exp(-1/scale).

The table: probabilities are fixed-point integers with far more bits than a draw compares, rounded
down for a lower and up for an upper bound, so that every cumulated probability is known to lie
between the two. It is a function of public parameters.

The far tail, for scales that no table reaches: P(k) is proportional to f(k) = q^k Gamma(k + r) /
Gamma(k + 1), which falls with k for r < 1. Beyond a start the integers are cut into blocks that
double in length, until the scale is reached, and the rest. A draw chooses a block with a
whole-number weight that is at least its length times the largest f in it, a place in it uniformly
(in the rest: geometrically), and is accepted with the ratio of f to that bound.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from hdpmf.common.privacy.sampling import exact
from hdpmf.common.privacy.sampling.exact import Words, below, geometric

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
        """The number of values in the table; the number itself stands for all larger ones."""
        return len(self.low)

    def find(self, prefix: int) -> int | None:
        """Return the value for a uniform number's first bits, or None if more are needed."""
        position = bisect_right(self.low, prefix)
        return None if position and prefix <= self.high[position - 1] else position


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
        low, high = (
            (low + term_low, high + term_high) if k % 2 == 0 else (low - term_high, high - term_low)
        )
        k += 1
        term_low = term_low * small.numerator // (small.denominator * k)
        term_high = -(-term_high * small.numerator // (small.denominator * k))
    # The rest is smaller than the first term left out.
    low, high = max(low - term_high, 0), high + term_high
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
        base_low, base_high = (
            base_low * base_low >> precision,
            -(-base_high * base_high >> precision),
        )
    return low, high


def _root(x: int, n: int, precision: int) -> tuple[int, int]:
    """Bounds on (x / 2^precision)^(1/n) in the same units."""
    under = 0  # the largest known to be too small or right
    over = 1 << precision  # the smallest known not to be
    while over - under > 1:
        middle = (under + over) >> 1
        if _power(middle, n, precision)[1] <= x:
            under = middle
        else:
            over = middle
    low = under
    under, over = low, 1 << precision  # no mutant: the root is below, and is found all the same
    while over - under > 1:
        middle = (under + over) >> 1
        if _power(middle, n, precision)[0] >= x:
            over = middle
        else:
            under = middle
    return low, over


SMALLEST_START = 16
"""From here on Stirling's series gives Gamma to the precision of a double."""

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)

_WEIGHT_BITS = 50


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Blocks of the tail; the last is the rest.

    Attributes:
        starts: First place of each block.
        cumulated: Weights, added up.
        excess: Log of the bound times length over the weight, a little below 0.
    """

    starts: np.ndarray
    cumulated: np.ndarray
    excess: np.ndarray


def tails(words: Words, scale: Fraction, shape: Fraction, start: int, n: int) -> np.ndarray:
    """``n`` draws of the law given that a draw is at least ``start`` (from 16, below the scale)."""
    result = np.empty(n, np.int64)
    todo = np.arange(n)
    while len(todo):
        drawn, accepted = _propose(words, scale, shape, start, len(todo))
        result[todo[accepted]] = drawn[accepted]
        todo = todo[~accepted]
    return result


def _propose(
    words: Words, scale: Fraction, shape: Fraction, start: int, n: int
) -> tuple[np.ndarray, np.ndarray]:
    blocks = _blocks(scale, shape, start)
    chosen = below(words, np.full(n, blocks.cumulated[-1], np.uint64))
    block = np.searchsorted(blocks.cumulated, chosen, side="right")
    begin = blocks.starts[block]
    # A block is as long as its start.
    drawn = begin + below(words, begin.astype(np.uint64)).astype(np.int64)
    rest = np.flatnonzero(block == len(blocks.starts) - 1)
    drawn[rest] = begin[rest] + geometric(words, scale, len(rest))
    falls = (drawn - begin) / float(scale)
    falls[rest] = 0.0  # the geometric has seen to it
    r = float(shape)
    chances = np.exp(blocks.excess[block] - falls + log_gammas(drawn, r) - log_gammas(begin, r))

    def digits(position: int, context: Context) -> Decimal:
        at, k = int(block[position]), int(drawn[position])
        is_rest = at == len(blocks.starts) - 1
        first = int(blocks.starts[at])
        logs = context.subtract(_log_gammas(k, shape, context), _log_gammas(first, shape, context))
        if not is_rest:
            logs = context.subtract(logs, _ratio(Fraction(k - first) / scale, context))
        weight = int(blocks.cumulated[at]) - (int(blocks.cumulated[at - 1]) if at else 0)
        bound = _log_bound(scale, shape, start, first, is_rest, context)
        scaled = context.add(bound, _log(Fraction(1 << _WEIGHT_BITS, weight), context))
        return context.exp(context.add(logs, scaled))

    return drawn, exact.bernoulli(words, chances, digits)


@lru_cache(maxsize=64)
def _blocks(scale: Fraction, shape: Fraction, start: int) -> _Blocks:
    starts = [start]
    while starts[-1] < scale:
        starts.append(2 * starts[-1])
    context = Context(prec=50)  # no mutant: a digit more gives the same weights
    bounds = [
        _log_bound(scale, shape, start, first, first == starts[-1], context) for first in starts
    ]
    # Rounded up, with room for the rounding of 50 digits: weights bound what they stand for.
    weights = [
        int(context.multiply(context.exp(bound), Decimal(1 << _WEIGHT_BITS))) + 2
        for bound in bounds
    ]
    excess = [
        float(context.add(bound, _log(Fraction(1 << _WEIGHT_BITS, weight), context)))
        for bound, weight in zip(bounds, weights, strict=True)
    ]
    return _Blocks(
        np.array(starts), np.cumsum(np.array(weights, np.uint64), dtype=np.uint64), np.array(excess)
    )


def _log_bound(
    scale: Fraction, shape: Fraction, start: int, first: int, is_rest: bool, context: Context
) -> Decimal:
    """Log of a block's length (in starts) times f at its first place (in f(start))."""
    logs = context.subtract(_log_gammas(first, shape, context), _log_gammas(start, shape, context))
    logs = context.subtract(logs, _ratio(Fraction(first - start) / scale, context))
    if is_rest:  # the geometric's sum instead of a length: 1 / (1 - q)
        q = context.exp(_ratio(-1 / scale, context))
        logs = context.subtract(logs, context.ln(context.subtract(Decimal(1), q)))
        return context.subtract(logs, _log(Fraction(start), context))
    return context.add(logs, _log(Fraction(first, start), context))


def log_gammas(k: np.ndarray, r: float) -> np.ndarray:
    """log(Gamma(k + r) / Gamma(k + 1)) for k from 16, without cancellation."""
    high, low = k + 1.0, k + r
    series = np.zeros(len(k))
    for power, coefficient in enumerate(_STIRLING):
        series += coefficient * (low ** -(2 * power + 1) - high ** -(2 * power + 1))
    return np.asarray(
        (k + 0.5) * np.log1p((r - 1.0) / high) + (r - 1.0) * (np.log(low) - 1.0) + series
    )


@lru_cache(maxsize=256)
def _log_gammas_to(k: int, r: Fraction, digits: int) -> Decimal:
    context = Context(prec=digits + 30)
    # Far enough out for the series: its error is below its first term left out.
    shift = max(0, 2 * digits - k)
    steps = math.prod((Fraction(k + 1 + i) / (k + r + i) for i in range(shift)), start=Fraction(1))
    found = _log(steps, context)
    for x, sign in ((k + shift + r, 1), (Fraction(k + shift + 1), -1)):
        logs = context.multiply(_ratio(x - Fraction(1, 2), context), _log(x, context))
        logs = context.subtract(logs, _ratio(x, context))
        for n in range(1, digits + 10):
            term = _bernoulli_number(2 * n) / (2 * n * (2 * n - 1) * x ** (2 * n - 1))
            logs = context.add(logs, _ratio(term, context))
            if abs(term) < Fraction(1, 10 ** (digits + 5)):  # no mutant: a term more or less
                break
        found = context.add(found, context.multiply(logs, Decimal(sign)))
    return found


def _log_gammas(k: int, r: Fraction, context: Context) -> Decimal:
    return _log_gammas_to(k, r, context.prec)


@lru_cache(maxsize=256)
def _bernoulli_number(n: int) -> Fraction:
    if n == 0:
        return Fraction(1)
    return -sum(
        (math.comb(n + 1, k) * _bernoulli_number(k) for k in range(n)), start=Fraction(0)
    ) / (n + 1)


def _ratio(number: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(number.numerator), Decimal(number.denominator))


def _log(number: Fraction, context: Context) -> Decimal:
    return context.subtract(
        context.ln(Decimal(number.numerator)), context.ln(Decimal(number.denominator))
    )


_CHUNK = 1 << 16  # no mutant: draws at a time


def negative_binomial(words: Words, scale: Fraction, shape: Fraction, n: int) -> np.ndarray:
    """Draw ``n`` times NB(shape, 1 - q): P(k) = binom(k + shape - 1, k) (1 - q)^shape q^k.

    A geometric is NB(1, 1 - q), and shapes add up; what is left over after whole geometrics is
    drawn from a table.
    """
    whole, rest = divmod(shape, 1)
    total = np.zeros(n, np.int64)
    for _ in range(int(whole)):
        total += geometric(words, scale, n)
    if rest and n:
        total += _from_table(words, scale, rest, n)
    return total


def _from_table(words: Words, scale: Fraction, shape: Fraction, n: int) -> np.ndarray:
    """Draw by inversion: as many bits of a uniform number as are needed.

    The table encloses every cumulated probability between integers. A word that falls into an
    enclosure (about once in 10^15 draws) gets further bits and a finer table, so that the law is
    exact and not only exact to 64 bits.
    """
    table = share_table(scale, shape, 64)
    everything = np.zeros(n, np.int64)
    drawn = words(n)
    # Most shares are zero, and those need no search.
    positions = np.flatnonzero(drawn >= table.low[0])
    drawn = drawn[positions]
    result = np.searchsorted(table.low, drawn, side="right")
    for position in np.flatnonzero(drawn <= table.high[result - 1]):
        result[position] = refine(words, scale, shape, int(drawn[position]), 64)
    # A finer table may be longer: what it finds beyond this one is drawn anew, as all that is
    # beyond.
    beyond = np.flatnonzero(result >= table.length)
    if SMALLEST_START <= table.length < scale:
        result[beyond] = tails(words, scale, shape, table.length, len(beyond))
    else:
        for position in beyond:
            result[position] = _tail(words, scale, shape, table.length)
    everything[positions] = result
    return everything


def refine(words: Words, scale: Fraction, shape: Fraction, prefix: int, bits: int) -> int:
    """The value of a uniform number; bits beyond the first are drawn as needed."""
    while True:
        prefix, bits = (prefix << 64) | int(words(1)[0]), bits + 64
        found = share_table(scale, shape, bits).find(prefix)
        if found is not None:
            return found


def _tail(words: Words, scale: Fraction, shape: Fraction, start: int) -> int:
    """Draw given at least ``start``: a geometric beyond it, by rejection.

    With shape m/n, P(k) / P(k - 1) = q (n (k - 1) + m) / (n k), so a proposal ``start + g`` is
    accepted with the product of those rational factors: one integer comparison each.
    """
    m, n = shape.numerator, shape.denominator
    while True:
        end = start + int(geometric(words, scale, 1)[0])
        if _accepted(words, start + 1, end, m, n):
            return end


def _accepted(words: Words, first: int, last: int, m: int, n: int) -> bool:
    for begin in range(first, last + 1, _CHUNK):
        k = np.arange(begin, min(begin + _CHUNK, last + 1), dtype=np.uint64)
        limits = (k - np.uint64(1)) * np.uint64(n) + np.uint64(m)
        if not (below(words, k * np.uint64(n)) < limits).all():
            return False
    return True
