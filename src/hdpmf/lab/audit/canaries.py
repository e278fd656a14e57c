"""The canary game: one run, in which every rating of a person is a canary.

Each canary is the lowest or the highest value (or there or not), by a fair coin of its own. An
observer sees once what its view shows, and guesses the coins it is sure about. If a change of any
one rating changes the probability of whatever is seen by a factor of at most ``e^epsilon``, then
each guess is right with a probability of at most ``e^epsilon / (1 + e^epsilon)``, whatever the
others are: the number of right guesses among r is at most binomial (Steinke, Nasr and Jagielski
2023, for pure privacy). So c right guesses of r prove ``epsilon >= logit(p)``, p being Clopper and
Pearson's lower bound. How many guesses to make is not known beforehand: all, the surest half,
quarter, eighth and sixteenth are tried, each with a fifth of the error. No pilot runs are needed.

Beside the bound the size of the noise is measured, which finds a fault where no attack gets near
the claim (ten rounds of ten factors: a hundred numbers that each tell a hundredth): the observer
knows what it asked for, so what is left of the numbers is noise. Five standard deviations below
the expected mean are "too little noise" (by chance: 3 in 10 million).

Observers: `devices.DeviceAudit` (the recommender of real devices) and `two_servers.ServerAudit`
(the recommender with one of two servers).
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.common.methods import Claim
from hdpmf.common.privacy.coding import make_coding, sum_channels, weight_units
from hdpmf.common.protocol import Survey
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.scores import CONFIDENCE, STANDS, clopper_pearson, verdict

SCALE = RatingScale(1.0, 5.0, 1.0)
"""The scale of all ratings in this game."""

ENDS = np.array([SCALE.low, SCALE.high], np.float32)

TOO_LITTLE = "too little noise"

DEVIATIONS = 5.0
"""Noise is too little if its mean is so many standard deviations below the expected one."""

PARTS = (1, 2, 4, 8, 16)
"""One of so many canaries is guessed: the surest."""


@dataclass(frozen=True, slots=True)
class OneRunBound:
    """A lower bound on epsilon by right guesses.

    Attributes:
        epsilon: The lower bound; 0 where the guesses prove nothing.
        confidence: Probability, at least, that the bound is right.
    """

    epsilon: float
    right: int
    guesses: int
    canaries: int
    confidence: float


def one_run_bound(
    scores: np.ndarray, truth: np.ndarray, confidence: float = CONFIDENCE
) -> OneRunBound:
    """Bound epsilon by an attacker's guesses.

    A positive score guesses "high" (or "there"), and the larger, the surer; ``truth`` has the
    coins: which canaries are high, or there.
    """
    if len(scores) != len(truth) or len(truth) < PARTS[-1] or np.isnan(scores).any():
        raise ConfigError(f"a run needs {PARTS[-1]} canaries or more, with a score for each")
    # Equal scores in an order that has nothing to do with the coins: that of the items.
    surest = np.argsort(-np.abs(scores), kind="stable")
    right = np.cumsum(((scores > 0) == truth)[surest])
    best = (-1.0, 0, 0)
    for part in PARTS:
        guesses = len(truth) // part
        lower, _ = clopper_pearson(
            right[guesses - 1 : guesses], guesses, (1.0 - confidence) / len(PARTS)
        )
        best = max(best, (float(lower[0]), int(right[guesses - 1]), guesses))
    p, count, guesses = best
    epsilon = max(0.0, math.log(p / (1.0 - p))) if 0.0 < p < 1.0 else 0.0
    return OneRunBound(epsilon, count, guesses, len(truth), confidence)


def one_run_ceiling(canaries: int, confidence: float = CONFIDENCE) -> float:
    """Return the largest bound that so many canaries can prove."""
    truth = np.ones(canaries, np.bool_)
    return one_run_bound(np.ones(canaries), truth, confidence).epsilon


@dataclass(frozen=True, slots=True)
class CanaryNumbers:
    """Numbers that an observer saw about the canaries: one of two values each, and noise.

    Attributes:
        seen: A row per canary.
        ends: Their values without noise if the canary is low (or absent), and if it is high.
        scale: Scale of the Laplace noise in the proof.
    """

    seen: np.ndarray
    ends: tuple[float, float]
    scale: float

    def scores(self) -> np.ndarray:
        """Return log-likelihood ratios of the canaries."""
        low, high = self.ends
        return np.asarray(
            (np.abs(self.seen - low) - np.abs(self.seen - high)).sum(axis=1) / self.scale
        )

    def sizes(self, truth: np.ndarray) -> np.ndarray:
        """Return sizes of the noise, relative to their expectation."""
        return np.asarray(
            np.abs(self.seen - np.where(truth[:, None], self.ends[1], self.ends[0])) / self.scale
        )


@dataclass(frozen=True, slots=True)
class CanaryBits:
    """One bit about each canary.

    Attributes:
        plus: 1 or 0; -1 where none came.
        p: Probability of a 1 if the canary is low, and if it is high.
    """

    plus: np.ndarray
    p: tuple[float, float]

    def scores(self) -> np.ndarray:
        """Return log-likelihood ratios of the canaries."""
        low, high = self.p
        ratios = np.where(self.plus > 0, np.log(high / low), np.log((1.0 - high) / (1.0 - low)))
        return np.where(self.plus < 0, 0.0, ratios)

    def sizes(self, truth: np.ndarray) -> np.ndarray:
        """Return wrong bits, relative to their expectation."""
        return np.asarray((self.plus > 0) != truth) / self.p[0]


@dataclass(slots=True)
class ObservedCanaries:
    """Everything that an observer saw of the canaries.

    Attributes:
        others: Scores of other observers, by name.
    """

    about: list[CanaryNumbers | CanaryBits] = field(default_factory=list)
    others: dict[str, np.ndarray] = field(default_factory=dict)

    def scores(self) -> np.ndarray:
        """Return log-likelihood ratios by all numbers."""
        return np.asarray(np.sum([numbers.scores() for numbers in self.about], axis=0))

    def noise(self, truth: np.ndarray) -> tuple[float, float]:
        """Return the relative mean size of the noise, and its expected standard deviation."""
        sizes = np.concatenate([numbers.sizes(truth).ravel() for numbers in self.about])
        # The size of Laplace noise has the exponential law; a bit is wrong or not.
        variance = np.mean(
            [
                1.0 / numbers.p[0] - 1.0 if isinstance(numbers, CanaryBits) else 1.0
                for numbers in self.about
            ]
        )
        return float(sizes.mean()), float(np.sqrt(variance / len(sizes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryAudit(ABC):
    """Settings of an audit, and the observer that they describe.

    Attributes:
        adjacency: ``value``: a canary is the lowest or the highest rating. ``presence``: the
            highest or none.
        labels: True if sums are by taste labels (hdp-sum).
        canaries: Number of ratings of the audited person, and of items.
        noise_factor: 1 audits the real noise. Less plants a fault: a control.
        seed: Seed of the coins and of h. Noise comes from the operating system.
    """

    adjacency: str = "value"
    labels: bool = False
    canaries: int = 2_000
    epsilon: float = 1.0
    weight: float = 1.0
    noise_factor: float = 1.0
    confidence: float = CONFIDENCE
    seed: int = 0

    def __post_init__(self) -> None:
        if self.adjacency not in ("value", "presence"):
            raise ConfigError(
                f"cannot audit the adjacency {self.adjacency!r}; choose from value, presence"
            )

    @property
    @abstractmethod
    def promise(self) -> Claim:
        """The claim of this view."""

    @property
    def claimed(self) -> float:
        """Epsilon of a rating if the observer sees all of the noise."""
        factor = self.promise.presence if self.adjacency == "presence" else self.promise.value
        # Nominal claims, and messages with all of the noise in them: what the noise is made for.
        return self.epsilon * self.weight * (1.0 if factor is None else factor)

    @abstractmethod
    def observe(self, truth: np.ndarray, rng: np.random.Generator) -> ObservedCanaries:
        """Return what is seen of a person with these canaries."""


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """Result of an audit with canaries.

    Attributes:
        status: Status of the claim: ``proved``, ``nominal`` or ``none``.
        epsilon_claimed: Epsilon that the noise is made for.
        epsilon_lower_bound: Epsilon that the guesses prove.
        verdict: ``claim broken``, ``too little noise`` or ``not contradicted``.
        noise: Mean size of the noise, relative to its expectation.
        noise_deviation: Expected standard deviation of ``noise``.
        ceiling: The largest bound that so many canaries can prove.
        parts: Bounds of other observers: ``h`` knows h; ``share`` sees messages with one device's
            share of the noise.
    """

    audit: CanaryAudit
    status: str
    epsilon_claimed: float
    epsilon_lower_bound: float
    verdict: str
    noise: float
    noise_deviation: float
    right: int
    guesses: int
    ceiling: float
    parts: dict[str, float]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return a mapping for JSON."""
        return asdict(self)


def audit_canaries(audit: CanaryAudit) -> CanaryResult:
    """Play the game with the observer of an audit."""
    begin = time.perf_counter()
    rng = np.random.default_rng(audit.seed)
    truth = rng.random(audit.canaries) < 0.5
    observed = audit.observe(truth, rng)
    bound = one_run_bound(observed.scores(), truth, audit.confidence)
    noise, deviation = observed.noise(truth)
    found = verdict(audit.claimed, bound.epsilon)
    if found == STANDS and noise < 1.0 - DEVIATIONS * deviation:
        found = TOO_LITTLE
    return CanaryResult(
        audit=audit,
        status=audit.promise.status,
        epsilon_claimed=audit.claimed,
        epsilon_lower_bound=bound.epsilon,
        verdict=found,
        noise=noise,
        noise_deviation=deviation,
        right=bound.right,
        guesses=bound.guesses,
        ceiling=one_run_ceiling(audit.canaries, audit.confidence),
        parts={
            name: one_run_bound(scores, truth, audit.confidence).epsilon
            for name, scores in observed.others.items()
        },
        seconds=time.perf_counter() - begin,
    )


def canary_stars(adjacency: str, truth: np.ndarray) -> np.ndarray:
    """Return the audited person's ratings, one per item; 0 for none."""
    return np.where(truth, SCALE.high, 0.0 if adjacency == "presence" else SCALE.low)


def observed_sums(
    audit: CanaryAudit, survey: Survey, sums: np.ndarray, popularity: np.ndarray | None
) -> ObservedCanaries:
    """Return what the sums of a survey show: scores, weights, and popularity with labels."""
    n = audit.canaries
    coding = make_coding(survey.coding, SCALE, audit.epsilon)
    units = weight_units(np.full(2, audit.weight))
    channels = sum_channels(survey.design, coding, audit.epsilon, labels=audit.labels)
    low, high = (units * coding.encode(ENDS)).tolist()
    weight = float(units[0])
    absent = audit.adjacency == "presence"
    scored = (0.0 if absent else low, high)
    weighed = (0.0 if absent else weight, weight)
    observed = ObservedCanaries()
    if channels.popularity is not None and popularity is not None:
        scale = float(channels.popularity.scale)
        observed.about.append(CanaryNumbers(popularity[:, None], weighed, scale))
    observed.about += [
        CanaryNumbers(sums[:n, None], scored, float(channels.score.scale)),
        CanaryNumbers(sums[n : 2 * n, None], weighed, float(channels.weight.scale)),
    ]
    return observed
