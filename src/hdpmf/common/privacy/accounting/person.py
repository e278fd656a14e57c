"""Privacy of a whole person: what everything sent about somebody costs, together and over runs.

The unit is mu of Gaussian differential privacy, with rho = mu^2 / 2: two histories of a person are
at most as easy to tell apart as N(0, 1) from N(mu, 1). Squares of mu add up, over parts and over
runs, also where later ones are chosen by what earlier ones released, so that a budget of rho is a
filter. Every number for people is rounded up, every budget down (``proofs/hdp-pairs.md``).

Noise is drawn from the discrete Gaussian, not from the Gaussian. How much that may tell is bounded
by the ``grain`` of the noise, the sum of 1 / s^4 over all numbers. Where this is large, the
conversion of Canonne, Kamath and Steinke (2020) is less, which holds for discrete Gaussian noise as
for any rho.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

from hdpmf.common.methods.registry import at_most
from hdpmf.common.privacy.accounting.accountants import normal_cdf, normal_delta
from hdpmf.errors import PrivacyError

PERSON_DELTA = 1e-5
"""The delta of a person's epsilon, in all tables."""

LIFE_EPSILON = 4.0
"""A person's budget for their whole life, all recommenders and runs together, by default."""

RUN_SHARE = 1 / 4
"""The most of the squares of a life's mu that one run may take, by default: half of mu."""

_ENOUGH = 20_000
"""People times the root of a run's rho, from where on more budget is no more accuracy."""

_CARE = 1e-9  # more, relatively, than floating-point arithmetic is off by


@dataclass(frozen=True, slots=True)
class Spent:
    """What releases about one person cost together; the sum of two is what both cost.

    Attributes:
        rho: Half the square of mu.
        grain: Of their noise; 0 for noise that is Gaussian, rounded or not.
    """

    rho: float = 0.0
    grain: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rho", "grain"):
            if not getattr(self, name) >= 0:
                raise PrivacyError(f"{name} must be a number from 0, not {getattr(self, name)}")

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.rho + other.rho, self.grain + other.grain)

    def times(self, factor: float) -> Spent:
        """Return the cost where rho is so many times as large under the same noise."""
        return Spent(self.rho * factor, self.grain)

    @property
    def mu(self) -> float:
        """The distance of two unit normal laws that are as hard to tell apart."""
        return math.sqrt(2 * self.rho)

    def epsilon(self, delta: float = PERSON_DELTA) -> float:
        """Return the smallest epsilon that is proved at ``delta``, rounded up."""
        if not 0 < delta < 1:
            raise PrivacyError(f"delta must be above 0 and below 1, not {delta}")
        if self.rho == 0 or math.isinf(self.rho):
            return self.rho
        exactly = _exactly(self, delta)
        return (min(exactly, _by_renyi(self.rho, delta)) if self.grain else exactly) * (1 + _CARE)

    @property
    def right(self) -> float:
        """How often a guess between the two histories is right, at most, where both are as likely.

        Phi(mu / 2), and not e^epsilon / (1 + e^epsilon), which is the law of pure epsilon.
        """
        if self.rho == 0:
            return 0.5  # whatever was sent, nothing of it depends on the history
        by_affinity = (1 + math.sqrt(-math.expm1(-self.rho / 2))) / 2
        exactly = normal_cdf(self.mu / 2) * math.exp(min(_far(self.grain), 1.0)) + _RARE
        return min(exactly, by_affinity, 1.0) * (1 + _CARE)

    @property
    def sure(self) -> float:
        """The share of cases, at most, in which somebody could be 99 % sure after an even start.

        Rightly or wrongly; or what Markov's inequality says of the best order of Renyi's
        divergence.
        """
        if self.rho == 0 or math.isinf(self.rho):
            return float(self.rho > 0)
        level = math.log(99)
        # Noise on a grid has steps: an outcome stands for all within half of one.
        far, root = _far(self.grain), math.sqrt(self.grain)
        steps = 2.15 * math.sqrt(root) + root * (3 * self.mu + 32) / 24
        level -= 2 * far + self.mu * steps
        exactly = sum(normal_cdf((sign * self.rho - level) / self.mu) for sign in (1, -1))
        if self.grain:
            exactly = exactly * math.exp(min(far, 1.0)) / (1 - 1e-4) + 4 * _RARE
        return min(sure_by_renyi(self.rho), exactly * (1 + _CARE))


def sure_by_renyi(rho: float) -> float:
    """As ``Spent.sure`` for anything with this rho: Markov's inequality at the best order."""
    if rho == 0:
        return 0.0
    return min(1.0, 1.02 * math.exp(-(max(0.0, math.log(99) - rho) ** 2) / (4 * rho)))


def gaussian(rho: float, noise: Iterable[tuple[float, int]] = ()) -> Spent:
    """Return the cost of sums with discrete Gaussian noise.

    Args:
        rho: The sum over numbers of (change / deviation)^2 / 2.
        noise: The deviation, and of how many numbers.

    Raises:
        PrivacyError: A deviation is below 2: such noise has no bound here.
    """
    grain = 0.0
    for sigma, count in noise:
        if not (sigma >= 2 and count >= 0):
            raise PrivacyError(f"noise has a deviation of at least 2 on the grid, not {sigma}")
        grain += count / sigma**4
    return Spent(rho, grain)


def pure(epsilon: float) -> Spent:
    """Return the cost of anything with a pure epsilon: mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)).

    Its trade-off curve lies above that of the two normal laws, which meet it in one point.
    """
    if not epsilon >= 0:
        raise PrivacyError(f"epsilon must be a number from 0, not {epsilon}")
    if epsilon > 700:
        return Spent(math.inf)
    mu = -2 * NormalDist().inv_cdf(math.exp(-epsilon) / (1 + math.exp(-epsilon)))
    return Spent(max(0.0, mu) ** 2 / 2 * (1 + _CARE))


def rho_of(epsilon: float, delta: float = PERSON_DELTA, grain: float = 0.0) -> float:
    """Return the largest rho, rounded down, with which ``epsilon`` at ``delta`` is kept."""
    if not 0 < epsilon < math.inf:
        raise PrivacyError(f"a person's epsilon must be a positive number, not {epsilon}")
    low, high = 0.0, 1.0
    while Spent(high, grain).epsilon(delta) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        fits = Spent(middle, grain).epsilon(delta) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def proposed_epsilon(people: int) -> float:
    """Return what a run should ask of a person, by how many there are; rounded down.

    Many people need little of each. No run takes more than its share of a life (ADR 30).
    """
    most = RUN_SHARE * rho_of(LIFE_EPSILON)
    asked = Spent(min(most, (_ENOUGH / max(people, 1)) ** 2)).epsilon()
    step = 10.0 ** (math.floor(math.log10(asked)) - 1)
    return round(math.floor(asked / step) * step, 12)


class Risk(Protocol):
    """How often a guess is right, at most, and in which share of cases somebody could be sure."""

    @property
    def right(self) -> float: ...  # noqa: D102

    @property
    def sure(self) -> float: ...  # noqa: D102


def sentence(none: Risk, other: Risk) -> str:
    """Say what a person risks: history against none, and against another one.

    Args:
        none: The cost of having a history at all.
        other: The cost of having this history and no other.
    """
    return (
        "whoever knows everything else and guesses whether a person has a history at all is right "
        f"at most {at_most(none.right)}, and which of two histories it is, at most "
        f"{at_most(other.right)} (a coin: 50 %); 99 % sure in at most {share(none.sure)} and "
        f"{share(other.sure)} of cases"
    )


def share(part: float) -> str:
    """A share of cases for people, in tenths of a percent and rounded up."""
    return f"{math.ceil(1000 * part) / 10:g} %"


_RARE = 1e-12
"""More than the chance that noise is further than ``_far`` from being Gaussian."""


def _far(grain: float, epsilon: float = 0.0) -> float:
    """How far the logarithms of the two laws of all noise are apart, but for e^(-30 - epsilon)."""
    x = 30 + epsilon
    return math.sqrt(grain) * (math.sqrt(x) + x) / 12 + 11 * grain


def _exactly(spent: Spent, delta: float) -> float:
    """Return where the Gaussian's exact delta, with what its grain adds, meets ``delta``."""

    def needed(epsilon: float) -> float:
        far = _far(spent.grain, epsilon)
        # A larger distance than 1 proves nothing that is of use.
        if far > 1 or epsilon < 2 * far:
            return 1.0
        rare = _RARE if spent.grain else 0.0
        return math.exp(far) * normal_delta(spent.mu, epsilon - 2 * far) + rare

    low, high = 0.0, spent.rho + spent.mu * math.sqrt(2 * math.log(1 / delta)) + 1
    if needed(low) <= delta:
        return low
    high += 2 * _far(spent.grain, 2 * high)
    if not needed(high) <= delta:
        return math.inf
    while high - low > 1e-11 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if needed(middle) > delta else (low, middle)
    return high


def _by_renyi(rho: float, delta: float) -> float:
    """Return the least over orders a of a rho + ln(1 - 1/a) - ln(a delta) / (a - 1).

    Every order gives a bound, so that a search that stops early is none the less safe.
    """

    def bound(log_gap: float) -> float:
        gap = math.exp(log_gap)
        order = 1 + gap
        return order * rho + math.log(gap / order) - math.log(order * delta) / gap

    low, high = -12.0, 24.0
    for _ in range(120):
        third = (high - low) / 3
        low, high = (
            (low, high - third) if bound(low + third) < bound(high - third) else (low + third, high)
        )
    return max(0.0, bound((low + high) / 2))
