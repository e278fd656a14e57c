"""Exact samplers on integers: geometric, Bernoulli and discrete Gaussian.

All randomness comes as 64-bit words from a source. The geometric law follows Canonne, Kamath and
Steinke, *The Discrete Gaussian for Differential Privacy* (2020), algorithms 1 and 2, run for many
draws at once; every comparison is between integers.

Bernoulli decisions compare a uniform number in [0, 1) with a probability that is known to any
precision: its first 64 bits with the probability as a double, which is certain unless the two are
closer than ``BAND``. Only then (once in 10^11 decisions) are further bits drawn and the probability
computed with more digits. So the law is exact, not only to the precision of a double.

The discrete Gaussian has P(x) proportional to exp(-x^2 / (2 sigma^2)). With a whole sigma, x = k
sigma + j has x^2 / (2 sigma^2) = k^2/2 + (j/sigma)(k + j/(2 sigma)): draw k with probability
proportional to exp(-k^2/2), j uniformly below sigma, a sign, and accept with exp(-(j/sigma)(k +
j/(2 sigma))); a zero with a minus is drawn again. That is the method of Karney (2016) with a grid
step for its unit; about 0.71 of the proposals are accepted, whatever sigma is.
"""

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

Words = Callable[[int], np.ndarray]
"""Gives so many independent uniform 64-bit words, as uint64."""


def below(words: Words, bounds: np.ndarray) -> np.ndarray:
    """One uniform integer from 0 to ``bound - 1`` for each bound (uint64, at least 1)."""
    drawn = words(len(bounds))
    # Words under 2^64 mod bound would make small results more likely; they are drawn again. They
    # are below the bound.
    redo = np.flatnonzero(drawn < bounds)
    while len(redo):
        redo = redo[drawn[redo] < (np.uint64(0) - bounds[redo]) % bounds[redo]]
        drawn[redo] = words(len(redo))
    return np.asarray(drawn % bounds)


def bernoulli_exp(words: Words, numerators: np.ndarray, denominator: int) -> np.ndarray:
    """True with probability exp(-numerator / denominator); uint64 up to the denominator."""
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


BAND = 2.0**-38
"""More than the error of a probability computed in doubles, by far."""

Digits = Callable[[int, Context], Decimal]
"""Computes the probability at a place in a context, to an error below 10^(8 - digits)."""


def bernoulli(words: Words, probabilities: np.ndarray, digits: Digits) -> np.ndarray:
    """True with these probabilities (doubles, right to within ``BAND``)."""
    drawn = words(len(probabilities))
    distance = drawn.astype(np.float64) * 2.0**-64 - probabilities
    result: np.ndarray = distance < 0
    for index in np.flatnonzero(np.abs(distance) <= BAND).tolist():
        result[index] = uniform_below(words, int(drawn[index]), 64, partial(digits, index))
    return result


def uniform_below(
    words: Words, prefix: int, bits: int, value: Callable[[Context], Decimal]
) -> bool:
    """Compare a uniform number with a value; bits beyond the first are drawn as needed."""
    while True:
        prefix, bits = (prefix << 64) | int(words(1)[0]), bits + 64
        context = Context(prec=bits // 3 + 20)
        error = Decimal(10) ** (8 - context.prec)
        low = context.divide(Decimal(prefix), Decimal(1 << bits))
        high = context.divide(Decimal(prefix + 1), Decimal(1 << bits))
        number = value(context)
        if high < context.subtract(number, error):
            return True
        if low > context.add(number, error):
            return False


MAX_SIGMA = 1 << 50


def discrete_gaussian(words: Words, sigmas: np.ndarray) -> np.ndarray:
    """One draw for each sigma (whole numbers from 1 to ``MAX_SIGMA``, int64)."""
    result = np.empty(len(sigmas), np.int64)
    todo = np.arange(len(sigmas))
    tries = 1
    while len(todo):
        drawn, accepted = _propose(words, np.repeat(sigmas[todo], tries))
        accepted = accepted.reshape(len(todo), tries)
        # The first that is accepted; several at once for the few that were not spares going round
        # for each.
        first = accepted.argmax(axis=1)
        done = accepted[np.arange(len(todo)), first]
        result[todo[done]] = drawn.reshape(len(todo), tries)[done, first[done]]
        todo = todo[~done]
        tries = 4
    return result


def _propose(words: Words, sigmas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = len(sigmas)
    minus = np.unpackbits(words(-(-n // 64)).view(np.uint8), count=n).astype(bool)
    k = _steps(words, n)
    j = below(words, sigmas.astype(np.uint64)).astype(np.int64)
    part = j / sigmas

    def acceptance(index: int, context: Context) -> Decimal:
        ratio = context.divide(Decimal(int(j[index])), Decimal(int(sigmas[index])))
        exponent = context.multiply(
            ratio, context.add(Decimal(int(k[index])), context.divide(ratio, Decimal(2)))
        )
        return context.exp(context.minus(exponent))

    accepted = bernoulli(words, np.exp(-part * (k + 0.5 * part)), acceptance)
    size = k * sigmas + j
    return np.where(minus, -size, size), accepted & ~(minus & (size == 0))


def _steps(words: Words, n: int) -> np.ndarray:
    """``n`` draws with P(k) proportional to exp(-k^2/2) on 0, 1, 2, ..."""
    table = _table()
    drawn = words(n)
    found = np.searchsorted(table, drawn, side="right")
    # A word that equals an entry, or lies beyond the last, needs further bits to be told from its
    # neighbours.
    unclear = (drawn == table[np.maximum(found, 1) - 1]) | (found == len(table))
    for index in np.flatnonzero(unclear).tolist():
        found[index] = _locate(words, int(drawn[index]), 64)
    return found


def _locate(words: Words, prefix: int, bits: int) -> int:
    """The k of a uniform number; bits beyond the first are drawn as needed."""
    while True:
        prefix, bits = (prefix << 64) | int(words(1)[0]), bits + 64
        digits = bits // 3 + 20
        context, error = Context(prec=digits), Decimal(10) ** (8 - digits)
        ends = prefix, prefix + 1  # no mutant: a wider one takes another word, once in 2^64 draws
        low, high = (context.divide(Decimal(end), Decimal(1 << bits)) for end in ends)
        k = 0
        while low > context.add(_cumulated(k, digits), error):
            k += 1
        if high < context.subtract(_cumulated(k, digits), error):
            return k


@lru_cache(maxsize=1)
def _table() -> np.ndarray:
    """P(X <= k) in units of 2^-64, rounded down, for the k that 64 bits tell apart."""
    context = Context(prec=60)
    return np.array(
        [int(context.multiply(_cumulated(k, 60), Decimal(1 << 64))) for k in range(9)], np.uint64
    )


@lru_cache(maxsize=256)
def _cumulated(last: int, digits: int) -> Decimal:
    """P(X <= last), with an error below 10^(8 - digits)."""
    context = Context(prec=digits)
    total = part = Decimal(0)
    k = 0
    while True:
        term = context.exp(Decimal(-k * k) / 2)
        total = context.add(total, term)
        if k <= last:
            part = total
        elif term < Decimal(10) ** -digits:
            return context.divide(part, total)
        k += 1
