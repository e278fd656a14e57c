"""Decisions with a probability that is known to any precision, made from whole random words.

A uniform number in [0, 1) is compared with the probability: its first 64 bits with the probability as a double, which
is certain unless the two are closer than ``BAND``. Only then (once in 10^11 decisions) are further bits drawn and the
probability computed with more digits. So the law is exact, not only exact to the precision of a double.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from functools import partial

import numpy as np

from hdpmf.privacy.sampling.exact import Words

BAND = 2.0**-38
"""More than the error of a probability computed in doubles, by far."""

Digits = Callable[[int, Context], Decimal]
"""Given a place and a context, the probability there, computed in that context with an error below 10^(8 - digits)."""


def bernoulli(words: Words, probabilities: np.ndarray, digits: Digits) -> np.ndarray:
    """True with these probabilities (doubles, right to within ``BAND``)."""
    drawn = words(len(probabilities))
    distance = drawn.astype(np.float64) * 2.0**-64 - probabilities
    result: np.ndarray = distance < 0
    for place in np.flatnonzero(np.abs(distance) <= BAND).tolist():
        result[place] = below(words, int(drawn[place]), 64, partial(digits, place))
    return result


def below(words: Words, prefix: int, bits: int, value: Callable[[Context], Decimal]) -> bool:
    """Whether a uniform number is below a value: its first ``bits`` bits are known, more are drawn as needed."""
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
