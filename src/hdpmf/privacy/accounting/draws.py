"""How much the recommender's draws h matter: quantiles of a sum of 1/h over independent h ~ Exp(1).

Given h, the paper's noise is Gaussian with a variance proportional to h, so that a small h is a round almost without
noise. The sum of 1/h has no mean; its median is a typical training run.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from hdpmf.errors import PrivacyError

_POINTS = 10_000  # no mutant: twice as many points give the same integral


@lru_cache(maxsize=64)
def inverse_sum_quantile(n: int, quantile: float = 0.5) -> float:
    """The quantile of the sum of 1/h over n draws, by inverting its characteristic function."""
    if n < 1 or not 0 < quantile < 1:
        raise PrivacyError(f"needs at least one draw and a quantile between 0 and 1, not {n} and {quantile}")
    # S / n is about ln n with a spread of order 1 and a tail like 1 / x above.
    low, high = 0.0, n * (math.log(n) + 3) + 10 * n / (1 - quantile)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _below(n, middle) < quantile else (low, middle)
    return (low + high) / 2


def _below(n: int, x: float) -> float:
    """P(S <= x) = 1/2 - 1/pi * integral of Im(exp(-itx) phi(t)^n) / t (Gil-Pelaez 1951)."""
    root, powers, weights = _characteristic(n)
    t = root**2
    # With t = root^2, dt / t = 2 droot / root, and the integrand is smooth at 0.
    integrand = 2 * np.imag(np.exp(-1j * t * x) * powers) / root
    return 0.5 - float(integrand @ weights) / math.pi


@lru_cache(maxsize=4)
def _characteristic(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from scipy.special import kve

    # |phi(t)| falls like exp(-pi t / 2) at first and like exp(-sqrt(2 t)) later: beyond both, nothing is left.
    end = math.sqrt(max(72 / (math.pi * n), (36 / n) ** 2 / 2))
    step = end / _POINTS
    root = (np.arange(_POINTS) + 0.5) * step
    z = 2 * np.sqrt(-1j * root**2)
    # E exp(it/h) = z K_1(z) with z = 2 sqrt(-it)
    logs = np.log(z * kve(1, z)) - z
    return root, np.exp(n * logs), np.full(_POINTS, step)
