"""Exact samplers on integers: no floating-point number decides anything here.

All randomness comes as 64-bit words from a source; every comparison is between integers. The geometric law follows
Canonne, Kamath and Steinke, *The Discrete Gaussian for Differential Privacy* (2020), algorithms 1 and 2, run for many
draws at once.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

Words = Callable[[int], np.ndarray]
"""Gives so many independent uniform 64-bit words, as uint64."""


def below(words: Words, bounds: np.ndarray) -> np.ndarray:
    """One uniform integer from 0 to ``bound - 1`` for each bound (uint64, at least 1)."""
    drawn = words(len(bounds))
    # Words under 2^64 mod bound would make small results more likely; they are drawn again. They are below the bound.
    redo = np.flatnonzero(drawn < bounds)
    while len(redo):
        redo = redo[drawn[redo] < (np.uint64(0) - bounds[redo]) % bounds[redo]]
        drawn[redo] = words(len(redo))
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
