"""The parameters that samplers really use: never less noise than asked for, and small enough for 64-bit sums."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from hdpmf.errors import PrivacyError
from hdpmf.privacy.sampling.discrete_gaussian import MAX_SIGMA

HALF_WORD: Final = 63
"""Probabilities of bits are whole multiples of 2 to the minus this."""

_LIMIT: Final = 1 << 40


def grid_scale(scale: float | Fraction) -> Fraction:
    """The scale that is really used: ``scale`` itself where its fraction is small enough, else the next larger.

    Rounding up means more noise than asked for, by less than 2^-39 of it for scales of at least 1/2.

    Raises:
        PrivacyError: The scale is not positive, not finite, or too large for 64-bit sums.
    """
    valid = isinstance(scale, (int, float, Fraction, np.number)) and not isinstance(scale, bool)
    if not valid or (not isinstance(scale, Fraction) and not math.isfinite(scale)) or scale <= 0:
        raise PrivacyError(f"the scale of noise must be a positive number of grid units, not {scale!r}")
    exactly = scale if isinstance(scale, Fraction) else Fraction(scale if isinstance(scale, int) else float(scale))
    if exactly >= _LIMIT:
        raise PrivacyError("the noise would be too large for 64-bit sums; use a larger epsilon or a coarser grid")
    if max(exactly.numerator, exactly.denominator) <= _LIMIT:
        return exactly
    whole = math.ceil(exactly)
    denominator = _LIMIT >> (whole - 1).bit_length()
    return Fraction(math.ceil(exactly * denominator), denominator)


def whole_sigmas(sigma: np.ndarray) -> np.ndarray:
    """The standard deviations that are really used, in whole grid units: never smaller than asked for.

    Raises:
        PrivacyError: One is negative, not a number, or too large for 64-bit sums.
    """
    whole = np.ceil(np.asarray(sigma, np.float64))
    if not bool(((whole >= 0) & (whole <= MAX_SIGMA)).all()):
        raise PrivacyError("the deviation of noise must be a number of grid units from 0 to 2^50")
    return whole.astype(np.int64)


def bit_thresholds(p_plus: np.ndarray, epsilon: np.ndarray | float | None = None) -> np.ndarray:
    """Probabilities as whole multiples of 2^-63, rounded towards one half; uint64 from 0 to 2^63.

    With ``epsilon`` (one number, or one for each bit) they are kept within [1/(1 + e^epsilon), e^epsilon/(1 +
    e^epsilon)], the ends rounded inwards by more than the error of computing them. Any two bits then differ in
    probability by a factor of at most e^epsilon, whatever rounding ``p_plus`` went through.

    Raises:
        PrivacyError: A probability is outside [0, 1], or an epsilon is negative or not a number.
    """
    p = np.atleast_1d(np.asarray(p_plus, np.float64))
    if not ((p >= 0) & (p <= 1)).all():
        raise PrivacyError("the probability of a bit must be between 0 and 1")
    unit = 2.0**HALF_WORD
    small = np.ceil(np.minimum(p, 1.0 - p) * unit).astype(np.uint64)  # the rarer side; 1 - p is exact for p >= 1/2
    if epsilon is not None:
        budget = np.asarray(epsilon, np.float64)
        if not (budget >= 0).all():
            raise PrivacyError("the epsilon of a bit must be 0 or more")
        least = (1.0 + 2.0**-40) / (1.0 + np.exp(np.minimum(budget, 700.0)))
        small = np.maximum(small, np.ceil(np.minimum(least, 0.5) * unit).astype(np.uint64))
    thresholds = np.where(p < 0.5, small, np.uint64(1 << HALF_WORD) - small)
    return thresholds.reshape(np.broadcast_shapes(np.shape(p_plus), np.shape(epsilon) if epsilon is not None else ()))


def share_shape(n_shares: int, count: int) -> Fraction:
    """The part of the whole noise that ``count`` of ``n_shares`` shares are."""
    for name, number in (("n_shares", n_shares), ("count", count)):
        if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or not 1 <= number < 1 << 32:
            raise PrivacyError(f"{name} must be a whole number from 1, not {number!r}")
    return Fraction(int(count), int(n_shares))
