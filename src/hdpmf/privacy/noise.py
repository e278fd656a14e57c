"""The paper's noise: Laplace, made of shares that nobody holds alone (its Theorem 3).

The recommender draws ``h_j ~ Exp(1)^K`` for item j; each rater draws ``c ~ N(0, 1/n_j)^K`` and adds
``b sqrt(2 h_j) c``. The shares add up to ``b sqrt(2 h_j) N(0, 1)``, which is Laplace(b) with
``b = 2 sqrt(K) Delta / epsilon``. A device or server that holds several raters adds the sum of their shares, which it
draws at once: normals add up to a normal.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from hdpmf.errors import PrivacyError

H_FLOOR = 2.0**-23
"""The smallest h. A float32 draw of Exp(1) is 0 once in six million draws, and with h = 0 there would be no noise."""


def laplace_scale(n_factors: int, width: float, budget: float) -> float:
    """Scale ``b`` of the Laplace noise on each coordinate of an item's summed gradient.

    Args:
        n_factors: K, the length of a latent vector.
        width: Delta, the width of the *public* rating scale.
        budget: The epsilon that the noise pays for.
    """
    if not (math.isfinite(budget) and budget > 0):
        raise PrivacyError(f"a noise budget must be a positive number, not {budget}; choose epsilon > 0")
    return 2.0 * math.sqrt(n_factors) * width / budget


def noise_share(h: np.ndarray, c: np.ndarray, scale: float | np.floating[Any]) -> np.ndarray:
    """A rater's share of Laplace(scale) noise, from the recommender's ``h`` and its own ``c``."""
    share: np.ndarray = scale * np.sqrt(2.0 * h) * c
    return share


def dense_laplace_scale(n_factors: int, width: float, budget: float, rounds: int, step: float) -> Fraction:
    """Scale, in units of a grid, of the Laplace noise on every number of T rounds that share a budget.

    Where ``|u| <= 1`` a change of a rating's value moves the gradient ``2 W (u.v - R) u`` by at most
    ``2 W width sqrt(K)`` in the sum of sizes, which is what noise on each coordinate pays for. Computed in fractions
    and never rounded down.

    Args:
        n_factors: K.
        width: Delta, the width of the *public* rating scale.
        budget: The epsilon of all rounds together at weight 1.
        rounds: T.
        step: What 1 stands for on the grid.
    """
    if not (math.isfinite(budget) and budget > 0):
        raise PrivacyError(f"a noise budget must be a positive number, not {budget}; choose epsilon > 0")
    root = Fraction(math.isqrt((n_factors << 80) - 1) + 1, 1 << 40)
    return 2 * root * Fraction(width) * rounds / Fraction(budget) / Fraction(step)
