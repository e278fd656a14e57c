"""Privacy events, and accountants that say what they cost together, or refuse.

Events are immutable values that say what was released. Every size is the change that one neighbour
can make, in units of the noise: the events know nothing about ratings, weights or epsilon. Two
neighbours differ in what ``methods`` was asked about (a rating's value, its presence, ...).

``pure`` adds up pure epsilons, ``zcdp`` adds up rho, ``gaussian_distance`` adds up squared
distances of Gaussian releases (and refuses everything else), ``epsilon_at`` finds the best epsilon
for a delta that any of them proves. References: Bun and Steinke 2016 (zCDP; a pure epsilon is
epsilon^2/2-zCDP), Kairouz, Oh and Viswanath 2015 (anything epsilon-private is randomized response
seen through a channel), Balle and Wang 2018 (exact Gaussian), Mironov 2017 (Renyi curve of
Laplace), Canonne, Kamath and Steinke 2020 (the conversion from Renyi to epsilon and delta).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hdpmf.errors import PrivacyError, UnsupportedEventError


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that an observer gets to see, or that keeps it from seeing."""


@dataclass(frozen=True, slots=True)
class NothingSent(Event):
    """Nothing that depends on the ratings leaves the device."""


@dataclass(frozen=True, slots=True)
class Unprotected(Event):
    """Something goes out that a neighbour changes and no noise covers."""

    why: str


@dataclass(frozen=True, slots=True)
class LaplaceSum(Event):
    """Numbers with independent Laplace noise, each moved by the same amount.

    An equal move of every coordinate is the worst way to spread a given Euclidean distance
    (``proofs/theorem-2.md``).

    Attributes:
        shift: How far one number moves, in scales of its noise.
        coordinates: How many numbers.
    """

    shift: float
    coordinates: int = 1

    def __post_init__(self) -> None:
        _check("shift", self.shift)
        _check_count("coordinates", self.coordinates)


@dataclass(frozen=True, slots=True)
class DiscreteLaplaceRelease(Event):
    """Whole numbers with discrete Laplace noise.

    Attributes:
        shift: How far they move together (in the sum of sizes), in scales of their noise.
    """

    shift: float

    def __post_init__(self) -> None:
        _check("shift", self.shift)


@dataclass(frozen=True, slots=True)
class GaussianGivenH(Event):
    """Vectors with Gaussian noise of known variance: the paper's noise to whoever knows h.

    Attributes:
        distance: How far they move together, in standard deviations.
    """

    distance: float

    def __post_init__(self) -> None:
        _check("distance", self.distance)


@dataclass(frozen=True, slots=True)
class RandomizedBit(Event):
    """One bit whose probabilities differ by at most a factor exp(budget)."""

    budget: float

    def __post_init__(self) -> None:
        _check("budget", self.budget)


@dataclass(frozen=True, slots=True)
class NoiseFixedOverRounds(Event):
    """The same noise in every round: the difference of two rounds has none."""

    event: Event
    rounds: int

    def __post_init__(self) -> None:
        _check_count("rounds", self.rounds)


@dataclass(frozen=True, slots=True)
class Repeated(Event):
    """A release repeated with fresh noise; later ones may depend on earlier ones."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        _check_count("times", self.times)


@dataclass(frozen=True, slots=True)
class Composed(Event):
    """Several releases with independent noise; later ones may depend on earlier ones."""

    events: tuple[Event, ...]


def _check(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise PrivacyError(f"an event's {name} must be a finite number from 0, not {value}")


def _check_count(name: str, value: int) -> None:
    if value < 1:
        raise PrivacyError(f"an event's {name} must be at least 1, not {value}")


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
    match event:
        case NothingSent():
            return 0.0
        case Unprotected():
            return math.inf
        case LaplaceSum(shift, coordinates):
            return coordinates * _laplace(order, shift)
        case DiscreteLaplaceRelease() | RandomizedBit():
            return _randomized_response(order, pure(event))
        case GaussianGivenH(distance):
            return order * distance**2 / 2
        case _:
            return _together(event, lambda part: renyi(part, order), "a Renyi")


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
    """The smallest proved epsilon at ``delta``: pure, exact for Gaussians, or by Renyi."""
    if not 0 < delta < 1:
        raise PrivacyError(f"delta must be above 0 and below 1, not {delta}")
    if math.isinf(zcdp(event)):
        return math.inf
    best = pure(event)
    try:
        best = min(best, normal_epsilon(gaussian_distance(event), delta))
    except UnsupportedEventError:
        best = min(best, _from_renyi(event, delta))
    return best


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


def _laplace(order: float, shift: float) -> float:
    if shift == 0:
        return 0.0
    rising = math.log(order / (2 * order - 1)) + (order - 1) * shift
    falling = math.log((order - 1) / (2 * order - 1)) - order * shift
    return (rising + math.log1p(math.exp(falling - rising))) / (order - 1)


def _randomized_response(order: float, budget: float) -> float:
    """Of the bit that every mechanism with this pure epsilon is a post-processing of."""
    if budget == 0:
        return 0.0
    # ln(p^a q^(1-a) + q^a p^(1-a)) with p/q = exp(budget)
    likely = -math.log1p(math.exp(-budget))
    return (likely + (order - 1) * budget + math.log1p(math.exp(-(2 * order - 1) * budget))) / (
        order - 1
    )


def _from_renyi(event: Event, delta: float) -> float:
    alike = _counted(event)
    return _smallest(lambda order: renyi(alike, order), delta)


def _counted(event: Event) -> Event:
    """Count equal releases: a person may have a thousand ratings of few weights."""
    match event:
        case Composed(parts):
            counts = Counter(_counted(part) for part in parts)
            return Composed(tuple(Repeated(part, times) for part, times in counts.items()))
        case Repeated(part, times):
            return Repeated(_counted(part), times)
        case _:
            return event


def _smallest(curve: Callable[[float], float], delta: float) -> float:
    """Convert at the best order: a scan over orders, then golden sections around the best."""

    def epsilon(log_gap: float) -> float:
        gap = math.exp(log_gap)
        order = 1 + gap
        return curve(order) + (-math.log(order * delta)) / gap + math.log(gap / order)

    steps = [-9 + 0.25 * step for step in range(85)]
    best = min(steps, key=epsilon)
    low, high = best - 0.25, best + 0.25
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if epsilon(left) < epsilon(right) else (left, high)
    return max(0.0, min(epsilon(low), epsilon(best)))
