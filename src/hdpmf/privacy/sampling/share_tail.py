"""The far tail of a noise share, for scales that no table reaches: exactly, for many draws at once.

NB(r, 1 - q) has P(k) proportional to f(k) = q^k Gamma(k + r) / Gamma(k + 1), which falls with k for r < 1. Beyond a
start the integers are cut into blocks that double in length, until the scale is reached, and the rest. A draw chooses a
block with a whole-number weight that is at least its length times the largest f in it, a place in it uniformly (in the
rest: geometrically), and is accepted with the ratio of f to that bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from hdpmf.privacy.sampling import decide
from hdpmf.privacy.sampling.exact import Words, below, geometric

SMALLEST_START = 16
"""From here on Stirling's series gives Gamma to the precision of a double."""

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_WEIGHT_BITS = 50


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Where blocks begin (the last is the rest), how often each is proposed, and what is left to decide there.

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


def _propose(words: Words, scale: Fraction, shape: Fraction, start: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    blocks = _blocks(scale, shape, start)
    chosen = below(words, np.full(n, blocks.cumulated[-1], np.uint64))
    block = np.searchsorted(blocks.cumulated, chosen, side="right")
    begin = blocks.starts[block]
    drawn = begin + below(words, begin.astype(np.uint64)).astype(np.int64)  # a block is as long as its start
    rest = np.flatnonzero(block == len(blocks.starts) - 1)
    drawn[rest] = begin[rest] + geometric(words, scale, len(rest))
    falls = (drawn - begin) / float(scale)
    falls[rest] = 0.0  # the geometric has seen to it
    r = float(shape)
    chances = np.exp(blocks.excess[block] - falls + log_gammas(drawn, r) - log_gammas(begin, r))

    def digits(place: int, context: Context) -> Decimal:
        at, k = int(block[place]), int(drawn[place])
        is_rest = at == len(blocks.starts) - 1
        first = int(blocks.starts[at])
        logs = context.subtract(_log_gammas(k, shape, context), _log_gammas(first, shape, context))
        if not is_rest:
            logs = context.subtract(logs, _ratio(Fraction(k - first) / scale, context))
        weight = int(blocks.cumulated[at]) - (int(blocks.cumulated[at - 1]) if at else 0)
        bound = _log_bound(scale, shape, start, first, is_rest, context)
        scaled = context.add(bound, _log(Fraction(1 << _WEIGHT_BITS, weight), context))
        return context.exp(context.add(logs, scaled))

    return drawn, decide.bernoulli(words, chances, digits)


@lru_cache(maxsize=64)
def _blocks(scale: Fraction, shape: Fraction, start: int) -> _Blocks:
    starts = [start]
    while starts[-1] < scale:
        starts.append(2 * starts[-1])
    context = Context(prec=50)  # no mutant: a digit more gives the same weights
    bounds = [_log_bound(scale, shape, start, first, first == starts[-1], context) for first in starts]
    # Rounded up, with room for the rounding of 50 digits: weights bound what they stand for.
    weights = [int(context.multiply(context.exp(bound), Decimal(1 << _WEIGHT_BITS))) + 2 for bound in bounds]
    excess = [
        float(context.add(bound, _log(Fraction(1 << _WEIGHT_BITS, weight), context)))
        for bound, weight in zip(bounds, weights, strict=True)
    ]
    return _Blocks(np.array(starts), np.cumsum(np.array(weights, np.uint64), dtype=np.uint64), np.array(excess))


def _log_bound(scale: Fraction, shape: Fraction, start: int, first: int, is_rest: bool, context: Context) -> Decimal:
    """Log of the block's length times f at its first place; lengths in units of the start, f in units of f(start)."""
    logs = context.subtract(_log_gammas(first, shape, context), _log_gammas(start, shape, context))
    logs = context.subtract(logs, _ratio(Fraction(first - start) / scale, context))
    if is_rest:  # the geometric's sum instead of a length: 1 / (1 - q)
        q = context.exp(_ratio(-1 / scale, context))
        logs = context.subtract(logs, context.ln(context.subtract(Decimal(1), q)))
        return context.subtract(logs, _log(Fraction(start), context))
    return context.add(logs, _log(Fraction(first, start), context))


def log_gammas(k: np.ndarray, r: float) -> np.ndarray:
    """log(Gamma(k + r) / Gamma(k + 1)) for k from 16, without subtracting large numbers from each other."""
    high, low = k + 1.0, k + r
    series = np.zeros(len(k))
    for power, coefficient in enumerate(_STIRLING):
        series += coefficient * (low ** -(2 * power + 1) - high ** -(2 * power + 1))
    return np.asarray((k + 0.5) * np.log1p((r - 1.0) / high) + (r - 1.0) * (np.log(low) - 1.0) + series)


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
            if abs(term) < Fraction(1, 10 ** (digits + 5)):
                break
        found = context.add(found, context.multiply(logs, Decimal(sign)))
    return found


def _log_gammas(k: int, r: Fraction, context: Context) -> Decimal:
    return _log_gammas_to(k, r, context.prec)


@lru_cache(maxsize=256)
def _bernoulli_number(n: int) -> Fraction:
    if n == 0:
        return Fraction(1)
    return -sum((math.comb(n + 1, k) * _bernoulli_number(k) for k in range(n)), start=Fraction(0)) / (n + 1)


def _ratio(number: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(number.numerator), Decimal(number.denominator))


def _log(number: Fraction, context: Context) -> Decimal:
    return context.subtract(context.ln(Decimal(number.numerator)), context.ln(Decimal(number.denominator)))
