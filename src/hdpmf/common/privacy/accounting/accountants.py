"""Privacy events, which say what was released, and accountants that say what they cost together.

Every size of an event is the change that one neighbour can make, in units of the noise: events know
nothing about ratings, weights or epsilon. Two neighbours differ in what a method was asked about (a
rating's value, its presence, ...).

``pure`` adds up pure epsilons, ``zcdp`` adds up rho, ``epsilon_at`` finds the best epsilon for a
delta that either, Gaussian releases, Renyi divergences or the releases' loss distributions prove.
The last are dp-accounting's (Doroshenko et al. 2022), imported only where a delta is asked for.
References: Bun and Steinke 2016 (zCDP; a pure epsilon is epsilon^2/2-zCDP), Kairouz, Oh and
Viswanath 2015 (anything epsilon-private is randomized response seen through a channel), Balle and
Wang 2018 (exact Gaussian), Mironov 2017 (Renyi curve of Laplace), Canonne, Kamath and Steinke 2020
(the conversion from Renyi to epsilon and delta).
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hdpmf.errors import PrivacyError


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
    """

    shift: float
    coordinates: int = 1

    def __post_init__(self) -> None:
        _check("shift", self.shift)


@dataclass(frozen=True, slots=True)
class PureRelease(Event):
    """Anything with a pure epsilon: discrete Laplace noise on whole numbers, or a randomized bit.

    Attributes:
        budget: That epsilon. Of discrete Laplace noise: how far numbers move together (in the sum
            of sizes), in scales of their noise.
        scale: Of discrete Laplace noise, where only one number moves, by ``budget * scale``; None
            where nothing but the budget is known.
    """

    budget: float
    scale: float | None = None

    def __post_init__(self) -> None:
        _check("budget", self.budget)
        if self.scale is not None and not (math.isfinite(self.scale) and self.scale > 0):
            raise PrivacyError(f"an event's scale must be a positive number, not {self.scale}")


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
class Repeated(Event):
    """A release repeated with fresh noise; later ones may depend on earlier ones."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        if self.times < 1:
            raise PrivacyError(f"a release is repeated at least once, not {self.times} times")


@dataclass(frozen=True, slots=True)
class Composed(Event):
    """Several releases with independent noise; later ones may depend on earlier ones."""

    events: tuple[Event, ...]


def _check(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise PrivacyError(f"an event's {name} must be a finite number from 0, not {value}")


_FINENESS = 2e-5
"""How much of epsilon the grid of loss distributions may cost, about."""

_ARITHMETIC = 1e-10
"""More of delta than Fourier transforms of so many points are off by."""


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


def pure(event: Event) -> float:
    """Pure epsilon; infinite where there is no finite one."""
    return math.fsum(times * _costs(one)[0] for one, times in _counted(event).items())


def zcdp(event: Event) -> float:
    """The rho of zero-concentrated differential privacy; infinite where there is no finite one."""
    return math.fsum(times * _costs(one)[1] for one, times in _counted(event).items())


@lru_cache(maxsize=256)
def epsilon_at(event: Event, delta: float) -> float:
    """The smallest proved epsilon at ``delta``: the least of all bounds that there are.

    That is the pure epsilon; the exact one of Gaussians; for everything else the one of composed
    loss distributions, or of Renyi divergences where these are not known.
    """
    if not 0 < delta < 1:
        raise PrivacyError(f"delta must be above 0 and below 1, not {delta}")
    if math.isinf(zcdp(event)):
        return math.inf
    if is_exact_guess(event):
        return min(pure(event), normal_epsilon(_distance(event), delta))
    counts = _counted(event)
    best = min(pure(event), _from_renyi(counts, delta))
    if delta <= _ARITHMETIC or not all(map(_has_law, counts)):
        return best
    return min(best, _from_losses(counts, delta))


def doubled(event: Event) -> Event:
    """Return the event of two such changes, whether they move the same numbers or others.

    Two releases with a pure epsilon, and one that is moved twice as far, have twice it together:
    what is known of that is no more than a bit's law.
    """
    found: list[Event] = []
    for release, times in _counted(event).items():
        match release:
            case PureRelease(budget):
                found.append(Repeated(PureRelease(2 * budget), times))
            case Unprotected():
                found.append(release)
            case _:
                raise PrivacyError(f"no accountant can say what {type(release).__name__} twice is")
    return Composed(tuple(found))


def guess(event: Event) -> float:
    """Return how often an observer tells two equally likely neighbours apart; exact for Gaussians.

    Otherwise an upper bound: from the pure epsilon (exp(e) / (1 + exp(e))), or from rho by the
    affinity of the two distributions, which is at least exp(-rho/4) for all events here and
    multiplies over releases.
    """
    if is_exact_guess(event):
        return normal_cdf(_distance(event) / 2)
    by_pure = 1 / (1 + math.exp(-pure(event)))
    by_affinity = (1 + math.sqrt(-math.expm1(-zcdp(event) / 2))) / 2
    return min(by_pure, by_affinity)


def is_exact_guess(event: Event) -> bool:
    """Check that ``guess`` is what the best observer reaches: all releases are Gaussian."""
    return all(isinstance(release, GaussianGivenH) for release in _counted(event))


def _distance(event: Event) -> float:
    """Return how far Gaussian releases move together, in standard deviations."""
    return math.sqrt(2 * zcdp(event))


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
        case _:
            return Counter([event])


def _costs(release: Event) -> tuple[float, float]:
    """Return pure epsilon and rho of one release."""
    match release:
        case Unprotected():
            return math.inf, math.inf
        case LaplaceSum(shift, coordinates):
            return shift * coordinates, coordinates * shift**2 / 2
        case PureRelease(budget):
            return budget, budget**2 / 2
        case GaussianGivenH(distance):
            return math.inf if distance > 0 else 0.0, distance**2 / 2
        case _:
            raise PrivacyError(f"no accountant can say what {type(release).__name__} costs")


def _has_law(release: Event) -> bool:
    """Check that a loss distribution is known.

    Not of Gaussian noise beside other releases, and not of Laplace noise on several numbers: that
    these move alike is the worst case of their Renyi divergence only.
    """
    return not isinstance(release, GaussianGivenH) and not (
        isinstance(release, LaplaceSum) and release.coordinates > 1
    )


def _from_losses(counts: Counter[Event], delta: float) -> float:
    """Compose the releases' loss distributions, rounded so that epsilon is never too small."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    spent = Counter({release: times for release, times in counts.items() if _costs(release)[0] > 0})
    if not spent:
        return 0.0
    rho = math.fsum(times * _costs(release)[1] for release, times in spent.items())
    # Splitting a loss between two grid points adds about width^2 / 8 to a release's epsilon.
    width = math.sqrt(8 * _FINENESS * rho / spent.total())
    total: Any = None
    for release, times in spent.items():
        match release:
            case LaplaceSum(shift, _):
                one = losses.from_laplace_mechanism(
                    1.0, shift, value_discretization_interval=width, use_connect_dots=True
                )
            case _:
                steps, scale = _moved(release)
                one = losses.from_discrete_laplace_mechanism(
                    1 / scale, steps, value_discretization_interval=width, use_connect_dots=True
                )
        often = one.self_compose(times)
        total = often if total is None else total.compose(often)
    found = float(total.get_epsilon_for_delta(delta - _ARITHMETIC))
    # The last digits of a processor's arithmetic are nobody's claim.
    return math.ceil(found * (1 + 1e-9) * 1e8) / 1e8 if math.isfinite(found) else math.inf


def _moved(release: Event) -> tuple[int, float]:
    """Return by how many whole numbers discrete Laplace noise is moved, and its scale.

    A release whose law is not told is counted as the bit that it is a post-processing of; a bit is
    noise that is moved by one.
    """
    if isinstance(release, PureRelease) and release.scale is not None:
        # Only arithmetic keeps a move from the grid.
        return math.ceil(release.budget * release.scale * (1 - 1e-9)), release.scale
    return 1, 1 / _costs(release)[0]


def _renyi_curve(counts: Counter[Event], orders: np.ndarray) -> np.ndarray:
    """Renyi divergences of releases together, at many orders."""
    total = np.zeros(len(orders))
    budgets: list[tuple[float, int]] = []
    for event, times in counts.items():
        match event:
            case Unprotected():
                total += math.inf
            case LaplaceSum(shift, coordinates):
                total += times * coordinates * _laplace(orders, shift)
            case GaussianGivenH(distance):
                total += times * orders * distance**2 / 2
            case _:
                budgets.append((_costs(event)[0], times))
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
