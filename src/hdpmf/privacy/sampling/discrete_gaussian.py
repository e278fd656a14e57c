"""The discrete Gaussian, P(x) proportional to exp(-x^2 / (2 sigma^2)) on the integers, exactly, for many draws at once.

With a whole sigma, x = k sigma + j has x^2 / (2 sigma^2) = k^2/2 + (j/sigma)(k + j/(2 sigma)): draw k with probability
proportional to exp(-k^2/2), j uniformly below sigma, a sign, and accept with exp(-(j/sigma)(k + j/(2 sigma))); a zero
with a minus is drawn again. That is the method of Karney (2016) with a grid step for its unit; about 0.71 of the
proposals are accepted, whatever sigma is.
"""

from __future__ import annotations

from decimal import Context, Decimal
from functools import lru_cache

import numpy as np

from hdpmf.privacy.sampling import decide
from hdpmf.privacy.sampling.exact import Words, below

MAX_SIGMA = 1 << 50


def discrete_gaussian(words: Words, sigmas: np.ndarray) -> np.ndarray:
    """One draw for each sigma (whole numbers from 1 to ``MAX_SIGMA``, int64)."""
    result = np.empty(len(sigmas), np.int64)
    todo = np.arange(len(sigmas))
    tries = 1
    while len(todo):
        drawn, accepted = _propose(words, np.repeat(sigmas[todo], tries))
        accepted = accepted.reshape(len(todo), tries)
        # The first that is accepted; several at once for the few that were not spares going round for each.
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

    def acceptance(place: int, context: Context) -> Decimal:
        ratio = context.divide(Decimal(int(j[place])), Decimal(int(sigmas[place])))
        exponent = context.multiply(ratio, context.add(Decimal(int(k[place])), context.divide(ratio, Decimal(2))))
        return context.exp(context.minus(exponent))

    accepted = decide.bernoulli(words, np.exp(-part * (k + 0.5 * part)), acceptance)
    size = k * sigmas + j
    return np.where(minus, -size, size), accepted & ~(minus & (size == 0))


def _steps(words: Words, n: int) -> np.ndarray:
    """``n`` draws with P(k) proportional to exp(-k^2/2) on 0, 1, 2, ..."""
    table = _table()
    drawn = words(n)
    found = np.searchsorted(table, drawn, side="right")
    # A word that equals an entry, or lies beyond the last, needs further bits to be told from its neighbours.
    unclear = (drawn == table[np.maximum(found, 1) - 1]) | (found == len(table))
    for place in np.flatnonzero(unclear).tolist():
        found[place] = _place(words, int(drawn[place]), 64)
    return found


def _place(words: Words, prefix: int, bits: int) -> int:
    """The k of a uniform number whose first ``bits`` bits are known, drawing as many more as it takes."""
    while True:
        prefix, bits = (prefix << 64) | int(words(1)[0]), bits + 64
        digits = bits // 3 + 20
        context, error = Context(prec=digits), Decimal(10) ** (8 - digits)
        low, high = (context.divide(Decimal(end), Decimal(1 << bits)) for end in (prefix, prefix + 1))
        k = 0
        while low > context.add(_cumulated(k, digits), error):
            k += 1
        if high < context.subtract(_cumulated(k, digits), error):
            return k


@lru_cache(maxsize=1)
def _table() -> np.ndarray:
    """P(X <= k) in units of 2^-64, rounded down, for the k that 64 bits tell apart."""
    context = Context(prec=60)
    return np.array([int(context.multiply(_cumulated(k, 60), Decimal(1 << 64))) for k in range(9)], np.uint64)


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
