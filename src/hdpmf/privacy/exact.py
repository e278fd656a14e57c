"""Exact samplers on integers: no floating-point number decides anything here.

All randomness comes as 64-bit words from a source; every comparison is between integers. The geometric law follows
Canonne, Kamath and Steinke, *The Discrete Gaussian for Differential Privacy* (2020), algorithms 1 and 2, run for many
draws at once.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from hdpmf.privacy.negative_binomial import share_table

Words = Callable[[int], np.ndarray]
"""Gives so many independent uniform 64-bit words, as uint64."""

_CHUNK = 1 << 16


def below(words: Words, bounds: np.ndarray) -> np.ndarray:
    """One uniform integer from 0 to ``bound - 1`` for each bound (uint64, at least 1)."""
    drawn = words(len(bounds))
    # Words under 2^64 mod bound would make small results more likely; they are drawn again.
    floor = (np.uint64(0) - bounds) % bounds
    redo = np.flatnonzero(drawn < floor)
    while len(redo):
        drawn[redo] = words(len(redo))
        redo = redo[drawn[redo] < floor[redo]]
    return np.asarray(drawn % bounds)


def bernoulli_exp(words: Words, numerators: np.ndarray, denominator: int) -> np.ndarray:
    """True with probability exp(-numerator / denominator), for numerators (uint64) up to the denominator."""
    result = np.zeros(len(numerators), bool)
    active = np.arange(len(numerators))
    trial = 1
    while len(active):
        bounds = np.full(len(active), denominator * trial, np.uint64)
        goes_on = below(words, bounds) < numerators[active]
        result[active[~goes_on]] = trial % 2 == 1
        active = active[goes_on]
        trial += 1
    return result


def geometric(words: Words, scale: Fraction, n: int) -> np.ndarray:
    """``n`` draws with P(k) proportional to exp(-k / scale) on 0, 1, 2, ...; int64."""
    t, s = scale.numerator, scale.denominator
    low = np.empty(n, np.uint64)
    todo = np.arange(n)
    while len(todo):
        candidates = below(words, np.full(len(todo), t, np.uint64))
        kept = bernoulli_exp(words, candidates, t)
        low[todo[kept]] = candidates[kept]
        todo = todo[~kept]
    high = np.zeros(n, np.uint64)
    active = np.arange(n)
    while len(active):
        active = active[bernoulli_exp(words, np.ones(len(active), np.uint64), 1)]
        high[active] += np.uint64(1)
    return ((low + np.uint64(t) * high) // np.uint64(s)).astype(np.int64)


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
    drawn = words(n)
    result = np.searchsorted(table.low, drawn, side="right")
    undecided = np.flatnonzero((result > 0) & (drawn <= table.high[np.maximum(result, 1) - 1]))
    for one in undecided:
        result[one] = refine(words, scale, shape, int(drawn[one]), 64)
    beyond = np.flatnonzero(result == table.length)
    for one in beyond:
        result[one] = _tail(words, scale, shape, table.length)
    return result.astype(np.int64)


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
