"""Draws of a user's share of discrete Laplace noise: negative binomials of any shape, exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hdpmf.privacy.sampling.exact import Words, below, geometric
from hdpmf.privacy.sampling.negative_binomial import share_table
from hdpmf.privacy.sampling.share_tail import SMALLEST_START, tails

_CHUNK = 1 << 16  # no mutant: draws at a time


def negative_binomial(words: Words, scale: Fraction, shape: Fraction, n: int) -> np.ndarray:
    """``n`` draws of NB(shape, 1 - q) with q = exp(-1 / scale): P(k) = binom(k + shape - 1, k) (1 - q)^shape q^k.

    A geometric is NB(1, 1 - q), and shapes add up; what is left over after whole geometrics is drawn from a table.
    """
    whole, rest = divmod(shape, 1)
    total = np.zeros(n, np.int64)
    for _ in range(int(whole)):
        total += geometric(words, scale, n)
    if rest and n:
        total += _from_table(words, scale, rest, n)
    return total


def _from_table(words: Words, scale: Fraction, shape: Fraction, n: int) -> np.ndarray:
    """Inversion: a uniform number in [0, 1), as many bits of it as are needed, against the cumulated law.

    The table encloses every cumulated probability between integers. A word that falls into an enclosure (about once
    in 10^15 draws) gets further bits and a finer table, so that the law is exact and not only exact to 64 bits.
    """
    table = share_table(scale, shape, 64)
    everything = np.zeros(n, np.int64)
    drawn = words(n)
    # Most shares are zero, and those need no search.
    places = np.flatnonzero(drawn >= table.low[0])
    drawn = drawn[places]
    result = np.searchsorted(table.low, drawn, side="right")
    for place in np.flatnonzero(drawn <= table.high[result - 1]):
        result[place] = refine(words, scale, shape, int(drawn[place]), 64)
    # A finer table may be longer: what it finds beyond this one is drawn anew, as all that is beyond.
    beyond = np.flatnonzero(result >= table.length)
    if SMALLEST_START <= table.length < scale:
        result[beyond] = tails(words, scale, shape, table.length, len(beyond))
    else:
        for place in beyond:
            result[place] = _tail(words, scale, shape, table.length)
    everything[places] = result
    return everything


def refine(words: Words, scale: Fraction, shape: Fraction, prefix: int, bits: int) -> int:
    """The place of a uniform number whose first ``bits`` bits are known, drawing as many more as it takes."""
    while True:
        prefix, bits = (prefix << 64) | int(words(1)[0]), bits + 64
        found = share_table(scale, shape, bits).find(prefix)
        if found is not None:
            return found


def _tail(words: Words, scale: Fraction, shape: Fraction, start: int) -> int:
    """The law given that the draw is at least ``start``: a geometric beyond it, accepted with the right probability.

    With shape m/n, P(k) / P(k - 1) = q (n (k - 1) + m) / (n k), so a proposal ``start + g`` is accepted with the
    product of those rational factors: one integer comparison each.
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
