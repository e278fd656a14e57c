"""The normal distribution's part of the accounting, in numbers that neither overflow nor vanish."""

from __future__ import annotations

import math


def normal_cdf(x: float) -> float:
    """Probability that a standard normal is at most x."""
    return math.erfc(-x / math.sqrt(2)) / 2


def normal_delta(distance: float, epsilon: float) -> float:
    """The exact delta of a Gaussian release whose neighbours are ``distance`` standard deviations apart.

    Balle and Wang 2018: cdf(d/2 - e/d) - exp(e) cdf(-d/2 - e/d). The second term is the density at d/2 - e/d times
    the Mills ratio at d/2 + e/d, which stays in range where exp(e) does not.
    """
    if distance == 0:
        return 0.0
    near, far = distance / 2 - epsilon / distance, distance / 2 + epsilon / distance
    density = math.exp(-(near**2) / 2) / math.sqrt(2 * math.pi)
    return max(0.0, normal_cdf(near) - density * _mills(far))


def normal_epsilon(distance: float, delta: float) -> float:
    """The exact epsilon at ``delta``: where ``normal_delta``, which falls in epsilon, meets it."""
    if math.isinf(distance):
        return math.inf
    if normal_delta(distance, 0.0) <= delta:
        return 0.0
    low, high = 0.0, distance**2 / 2 + distance * math.sqrt(2 * math.log(1 / delta)) + 1
    while high - low > 1e-10 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if normal_delta(distance, middle) > delta else (low, middle)
    return high


def _mills(x: float) -> float:
    """Tail over density of the standard normal."""
    if x < 6:
        return normal_cdf(-x) * math.sqrt(2 * math.pi) * math.exp(x**2 / 2)
    fraction = x
    for step in range(40, 0, -1):  # Laplace's continued fraction
        fraction = x + step / fraction
    return 1 / fraction
