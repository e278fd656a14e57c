"""Who rates what with whom, hidden: the whole numbers that are summed, how far a rating moves them,
and their noise.

A user's row has the privacy weights of what it rated among some much-rated items, the heads. It is
scaled down to a length of at most C where it is longer. The sum over users of row times row, above
the diagonal, is released with discrete Gaussian noise. One rating of weight W moves it by at most C
W, so that the noise for a weight of 1 gives every rating W times its epsilon. The proof, rounding
included, is ``proofs/hdp-sum-pairs.md``.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from hdpmf.common.privacy.coding import WEIGHT_UNITS
from hdpmf.errors import PrivacyError

ROW_UNITS = 1 << 18
"""A row is in whole multiples of one over this, rounded down; a product of two of them in
multiples of its square.
"""

PAIR_DELTA = 1e-6
"""The delta of the guarantee."""

LARGEST_BOUND = 8
"""The length C that rows are scaled down to is a whole number from 1 to this."""

MOST_HEADS = 1000

_SHORTER = 1.0 - 2.0**-40  # more than the floating-point error of scaling a row
_BLOCK = 1 << 13  # rows at a time; sums of so many products are below 2^53, so that they are exact


def scaled_rows(units: np.ndarray, bound: int) -> np.ndarray:
    """Rows of weights in 64ths as rows in ``ROW_UNITS``, none longer than ``bound``; int64.

    A row that is short enough stays what it is, exactly; others are scaled and rounded down.
    """
    squares = (units * units).sum(axis=1)
    whole = units * (ROW_UNITS // WEIGHT_UNITS)
    longer = squares > (bound * WEIGHT_UNITS) ** 2
    factor = bound * ROW_UNITS * _SHORTER / np.sqrt(squares[longer])
    whole[longer] = np.floor(units[longer] * factor[:, None]).astype(np.int64)
    return np.asarray(whole)


def pair_sums(units: np.ndarray, bound: int) -> np.ndarray:
    """For every pair of heads the sum over users of the product of their two entries, row after
    row; int64.
    """
    n_heads = units.shape[1]
    total = np.zeros((n_heads, n_heads), np.int64)
    for begin in range(0, len(units), _BLOCK):
        rows = scaled_rows(units[begin : begin + _BLOCK], bound).astype(np.float64)
        total += (rows.T @ rows).astype(np.int64)
    return np.asarray(total[np.triu_indices(n_heads, 1)])


def moved_at_most(bound: int, n_heads: int) -> float:
    """How far a rating of weight 1 moves the sums together, in products of weights; one of
    weight W, W times that.
    """
    return bound * (1.0 + 3.0 * WEIGHT_UNITS * math.sqrt(n_heads) / ROW_UNITS)


@lru_cache(maxsize=64)
def pair_rho(epsilon: float) -> float:
    """The rho of zero-concentrated differential privacy that is (epsilon, PAIR_DELTA), a little
    less at most.
    """
    from hdpmf.common.privacy.accounting.accountants import (
        epsilon_from_zcdp,
    )  # the accounting reads this module

    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PrivacyError(f"epsilon must be a positive number, not {epsilon}")
    low, high = 0.0, epsilon  # rho alone costs rho
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (
            (low, middle) if epsilon_from_zcdp(middle, PAIR_DELTA) > epsilon else (middle, high)
        )
    if low <= 0.0:
        raise PrivacyError(f"epsilon {epsilon:g} is too small for a delta of {PAIR_DELTA:g}")
    return low


def pair_sigma(epsilon: float, bound: int, n_heads: int) -> int:
    """Standard deviation of the noise on each sum, in products of ``ROW_UNITS``."""
    if not (1 <= bound <= LARGEST_BOUND and 2 <= n_heads <= MOST_HEADS):
        raise PrivacyError(
            f"pairs need a bound from 1 to {LARGEST_BOUND} and 2 to {MOST_HEADS} heads, not "
            f"{bound} and {n_heads}"
        )
    return math.ceil(
        moved_at_most(bound, n_heads) * ROW_UNITS**2 / math.sqrt(2.0 * pair_rho(epsilon))
    )
