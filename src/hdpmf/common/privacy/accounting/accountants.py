"""Accountants that say what privacy events cost together, or refuse.

``pure`` adds up pure epsilons, ``zcdp`` adds up rho, ``gaussian_distance`` adds up squared
distances of Gaussian releases (and refuses everything else), ``epsilon_at`` finds the best epsilon
for a delta that any of them, or the releases' loss distributions (``loss_distributions``), prove.
References: Bun and Steinke 2016 (zCDP; a pure epsilon is epsilon^2/2-zCDP), Kairouz, Oh and
Viswanath 2015 (anything epsilon-private is randomized response seen through a channel), Balle and
Wang 2018 (exact Gaussian), Mironov 2017 (Renyi curve of Laplace), Canonne, Kamath and Steinke 2020
(the conversion from Renyi to epsilon and delta).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from hdpmf.common.privacy.accounting import loss_distributions
from hdpmf.common.privacy.accounting.events import (
    Composed,
    DiscreteLaplaceRelease,
    Event,
    GaussianGivenH,
    LaplaceSum,
    NoiseFixedOverRounds,
    NothingSent,
    RandomizedBit,
    Repeated,
    Unprotected,
)
from hdpmf.errors import PrivacyError, UnsupportedEventError


def normal_cdf(x: float) -> float:
    """Probability that a standard normal is at most x."""
    return math.erfc(-x / math.sqrt(2)) / 2


def normal_delta(distance: float, epsilon: float) -> float:
    """The exact delta of a Gaussian release; ``distance`` is in standard deviations.

    Balle and Wang 2018: cdf(d/2 - e/d) - exp(e) cdf(-d/2 - e/d). The second term is the density at
    d/2 - e/d times the Mills ratio at d/2 + e/d, which stays in range where exp(e) does not.
    """
    if distance == 0:
        return 0.0
    near, far = distance / 2 - epsilon / distance, distance / 2 + epsilon / distance
    density = math.exp(-(near**2) / 2) / math.sqrt(2 * math.pi)
    return max(0.0, normal_cdf(near) - density * _mills(far))


@lru_cache(maxsize=4096)  # reports ask for the same few some thousand times
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


_Cost = Callable[[Event], float]


def pure(event: Event) -> float:
    """Pure epsilon; infinite where there is no finite one."""
    match event:
        case NothingSent():
            return 0.0
        case Unprotected():
            return math.inf
        case LaplaceSum(shift, coordinates):
            return shift * coordinates
        case DiscreteLaplaceRelease(shift):
            return shift
        case RandomizedBit(budget):
            return budget
        case GaussianGivenH(distance):
            return math.inf if distance > 0 else 0.0
        case _:
            return _together(event, pure, "a pure-epsilon")


def zcdp(event: Event) -> float:
    """The rho of zero-concentrated differential privacy; infinite where there is no finite one."""
    match event:
        case NothingSent():
            return 0.0
        case Unprotected():
            return math.inf
        case LaplaceSum(shift, coordinates):
            return coordinates * shift**2 / 2
        case DiscreteLaplaceRelease(shift):
            return shift**2 / 2
        case RandomizedBit(budget):
            return budget**2 / 2
        case GaussianGivenH(distance):
            return distance**2 / 2
        case _:
            return _together(event, zcdp, "a zCDP")


def renyi(event: Event, order: float) -> float:
    """Renyi divergence of an order above 1."""
    if not order > 1:
        raise PrivacyError(f"a Renyi order must be above 1, not {order}")
    return float(_renyi_curve(_counted(event), np.array([order]))[0])


def gaussian_distance(event: Event) -> float:
    """Return the distance of neighbours in standard deviations, for Gaussian events only."""
    return math.sqrt(_squared_distance(event))


def _squared_distance(event: Event) -> float:
    match event:
        case NothingSent():
            return 0.0
        case GaussianGivenH(distance):
            return distance**2
        case Composed() | Repeated():
            return _together(event, _squared_distance, "a Gaussian")
        case _:
            raise _refused("a Gaussian", event)


def epsilon_at(event: Event, delta: float) -> float:
    """The smallest proved epsilon at ``delta``: the least of all bounds that there are.

    That is the pure epsilon; the exact one of Gaussians; for everything else the one of composed
    loss distributions, or of Renyi divergences where these are not known.
    """
    if not 0 < delta < 1:
        raise PrivacyError(f"delta must be above 0 and below 1, not {delta}")
    if math.isinf(zcdp(event)):
        return math.inf
    best = pure(event)
    try:
        return min(best, normal_epsilon(gaussian_distance(event), delta))
    except UnsupportedEventError:
        counts = _counted(event)
    best = min(best, _from_renyi(counts, delta))
    try:
        curve = loss_distributions.compose(_worst_cases(counts))
    except UnsupportedEventError:
        return best
    return min(best, 0.0 if curve is None else curve.epsilon(delta))


def renyi_epsilon(event: Event, delta: float) -> float:
    """The epsilon at ``delta`` by Renyi divergences alone, which any of these events has."""
    return _from_renyi(_counted(event), delta)


def guess(event: Event) -> float:
    """Return how often an observer tells two equally likely neighbours apart; exact for Gaussians.

    Otherwise an upper bound: from the pure epsilon (exp(e) / (1 + exp(e))), or from rho by the
    affinity of the two distributions, which is at least exp(-rho/4) for all events here and
    multiplies over releases.
    """
    try:
        return normal_cdf(gaussian_distance(event) / 2)
    except UnsupportedEventError:
        by_pure = 1 / (1 + math.exp(-pure(event)))
        by_affinity = (1 + math.sqrt(-math.expm1(-zcdp(event) / 2))) / 2
        return min(by_pure, by_affinity)


def is_exact_guess(event: Event) -> bool:
    """Check that ``guess`` is what the best observer reaches, not just a bound."""
    try:
        gaussian_distance(event)
    except UnsupportedEventError:
        return False
    return True


def _together(event: Event, cost_of: _Cost, who: str) -> float:
    """Costs that add up over releases."""
    match event:
        case Composed(parts):
            return math.fsum(map(cost_of, parts))
        case Repeated(part, times):
            return times * cost_of(part)
        case NoiseFixedOverRounds(part, rounds):
            cost = cost_of(part)
            return math.inf if rounds > 1 and cost > 0 else cost
        case _:
            raise _refused(who, event)


def _refused(who: str, event: Event) -> UnsupportedEventError:
    return UnsupportedEventError(
        f"{who} accountant cannot say what {type(event).__name__} costs; use another one"
    )


def _counted(event: Event) -> Counter[Event]:
    """Count equal releases: a person may have a thousand ratings of few weights."""
    match event:
        case NothingSent():
            return Counter()
        case Composed(parts):
            counts: Counter[Event] = Counter()
            for part in parts:
                counts.update(_counted(part))
            return counts
        case Repeated(part, times):
            return Counter({one: count * times for one, count in _counted(part).items()})
        case NoiseFixedOverRounds(part, 1):
            return _counted(part)
        case _:
            return Counter([event])


def _worst_cases(counts: Counter[Event]) -> Counter[Event]:
    """Replace releases whose law is not told by the bit that they are a post-processing of.

    Not Gaussian ones, and not Laplace noise on several numbers: that these move alike is the worst
    case of their Renyi divergence only.
    """
    found: Counter[Event] = Counter()
    for event, times in counts.items():
        match event:
            case LaplaceSum() | GaussianGivenH() | DiscreteLaplaceRelease(_, float()):
                found[event] += times
            case _:
                found[RandomizedBit(pure(event))] += times
    return found


def _renyi_curve(counts: Counter[Event], orders: np.ndarray) -> np.ndarray:
    """Renyi divergences of releases together, at many orders."""
    total = np.zeros(len(orders))
    budgets: list[tuple[float, int]] = []
    for event, times in counts.items():
        match event:
            case Unprotected() | NoiseFixedOverRounds():
                total += math.inf if pure(event) > 0 else 0.0
            case LaplaceSum(shift, coordinates):
                total += times * coordinates * _laplace(orders, shift)
            case GaussianGivenH(distance):
                total += times * orders * distance**2 / 2
            case DiscreteLaplaceRelease() | RandomizedBit():
                budgets.append((pure(event), times))
            case _:
                raise _refused("a Renyi", event)
    if budgets:
        sizes, often = np.array(budgets, np.float64).T
        total += _randomized_response(orders[:, None], sizes) @ often
    return total


def _laplace(orders: np.ndarray, shift: float) -> np.ndarray:
    if shift == 0:
        return np.zeros_like(orders)
    rising = np.log(orders / (2 * orders - 1)) + (orders - 1) * shift
    falling = np.log((orders - 1) / (2 * orders - 1)) - orders * shift
    return np.asarray((rising + np.log1p(np.exp(falling - rising))) / (orders - 1))


def _randomized_response(orders: np.ndarray, budgets: np.ndarray) -> np.ndarray:
    """Of the bits that mechanisms with these pure epsilons are a post-processing of."""
    # ln(p^a q^(1-a) + q^a p^(1-a)) with p/q = exp(budget)
    likely = -np.log1p(np.exp(-budgets))
    rest = np.log1p(np.exp(-(2 * orders - 1) * budgets))
    return np.asarray((likely + (orders - 1) * budgets + rest) / (orders - 1))


def _from_renyi(counts: Counter[Event], delta: float) -> float:
    """Convert at the best order: a scan over orders, then finer ones around the best."""

    def epsilons(log_gaps: np.ndarray) -> np.ndarray:
        gaps = np.exp(log_gaps)
        orders = 1 + gaps
        converted = -np.log(orders * delta) / gaps + np.log(gaps / orders)
        return np.asarray(_renyi_curve(counts, orders) + converted)

    steps = np.linspace(-9.0, 12.0, 85)
    best = math.inf
    while steps[1] - steps[0] > 1e-6:
        found = epsilons(steps)
        best = min(best, float(found.min()))
        middle, gap = steps[int(found.argmin())], steps[1] - steps[0]
        steps = np.linspace(middle - gap, middle + gap, 41)
    return max(0.0, best)
