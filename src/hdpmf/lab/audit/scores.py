"""From an attacker's scores to a lower bound on epsilon that holds with a stated confidence.

Epsilon-delta privacy means: whatever set of outcomes an attacker answers "high" to, its probability
in one world is at most ``e^epsilon`` times that in the other, plus delta. So one test with
true-positive rate TPR and false-positive rate FPR proves ``epsilon >= ln((TPR - delta) / FPR)``.
The test (which side, which threshold) is chosen on pilot scores; the rates are then measured on
scores that had no say in the choice, each bounded by Clopper and Pearson at half the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from hdpmf.errors import ConfigError

_FFT_SCALES = 15.0  # e^-15 is far above the transform's rounding errors


def log_discrete_laplace(k: np.ndarray, scale: float) -> np.ndarray:
    """Log probability of ``k`` under P(k) proportional to exp(-abs(k) / scale)."""
    return np.asarray(math.log(math.tanh(0.5 / scale)) - np.abs(k) / scale)


def log_share(k: np.ndarray, scale: float, n_shares: int) -> np.ndarray:
    """Log probability of ``k`` as one of ``n_shares`` shares that add up to discrete Laplace noise.

    The share is the difference of two negative binomials with r = 1/n_shares and q = exp(-1/scale),
    so its characteristic function is ((1-q)^2 / (1 - 2 q cos t + q^2))^r, which a fast Fourier
    transform inverts. Where probabilities sink below what that resolves, the tail's leading term
    takes over (right to a few percent there).
    """
    from scipy.fft import irfft
    from scipy.special import gammaln

    if n_shares == 1:
        return log_discrete_laplace(k, scale)
    r, q, far = 1.0 / n_shares, math.exp(-1.0 / scale), math.ceil(_FFT_SCALES * scale) + 1
    size = 1 << (2 * far + 64).bit_length()
    t = 2.0 * math.pi * np.arange(size // 2 + 1) / size
    # 1 - 2 q cos t + q^2 = (1-q)^2 + 4 q sin^2(t/2): no cancellation at t = 0.
    near = irfft(
        np.power(1.0 + 4.0 * q * (np.sin(0.5 * t) / -math.expm1(-1.0 / scale)) ** 2, -r), size
    )
    distance = np.abs(np.asarray(k, np.float64))
    log_p = np.log(
        np.maximum(near[np.minimum(distance, far).astype(np.int64)], np.finfo(float).tiny)
    )
    beyond = np.maximum(distance, 1.0)
    rising = gammaln(beyond + r) - gammaln(r) - gammaln(beyond + 1.0)
    tail = (
        r * math.log(math.tanh(0.5 / scale)) - beyond / scale + rising
    )  # (1-q)^2r / (1-q^2)^r = tanh(1/2s)^r
    return np.asarray(np.where(distance < far, log_p, tail))


def log_wide_share(distance: np.ndarray, scale: float, n_shares: int) -> np.ndarray:
    """The same for a scale of many units, up to a constant; ``distance`` and ``scale`` are in the
    same unit.

    Between the units the law is that of a share of Laplace noise, with density ``x^nu K_nu(x)`` for
    ``x = distance / scale``, ``nu = 1/n - 1/2`` and Bessel's K. For one share that is ``exp(-x)``.
    """
    from scipy.special import kve

    nu = 1.0 / n_shares - 0.5
    x = np.maximum(
        np.asarray(distance, np.float64) / scale, 1e-12
    )  # the density of a small share has a pole at 0
    return np.asarray(nu * np.log(x) + np.log(kve(nu, x)) - x)


CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Scores:
    """An attacker's scores in both worlds; larger speaks for the high rating.

    Attributes:
        low: Scores of runs in which the rating was the lowest value of the scale.
        high: Scores of runs in which it was the highest.
    """

    low: np.ndarray
    high: np.ndarray

    def __post_init__(self) -> None:
        for scores in (self.low, self.high):
            if scores.ndim != 1 or len(scores) == 0 or np.isnan(scores).any():
                raise ConfigError(
                    "an audit needs one score, and no NaN, for each of at least one run of each "
                    "world"
                )

    def split(self, pilot: int) -> Halves:
        """Of the first ``pilot`` runs of each world, and of the rest."""
        return Scores(self.low[:pilot], self.high[:pilot]), Scores(
            self.low[pilot:], self.high[pilot:]
        )


Halves = tuple[Scores, Scores]
"""Scores of pilot runs, which choose a threshold, and of the runs that it is measured on."""


@dataclass(frozen=True, slots=True)
class LowerBound:
    """What the measured error rates prove.

    Attributes:
        epsilon: The lower bound; 0 where the attack proves nothing.
        confidence: Probability, over the runs, that the bound is right.
        power: Measured probability of the answer in the world that it speaks for.
        false_alarms: Measured probability of the same answer in the other world.
        threshold: The score from which (or up to which, where ``mirrored``) the attacker gives the
            answer.
        mirrored: Whether the answer is "low", given up to the threshold, instead of "high", given
            from it.
    """

    epsilon: float
    confidence: float
    power: float
    false_alarms: float
    threshold: float
    mirrored: bool


def clopper_pearson(successes: np.ndarray, n: int, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact bounds of a probability: each one-sided, wrong with probability at most ``error``."""
    from scipy.special import betaincinv

    k = np.asarray(successes, np.float64)
    lower = np.where(k > 0, betaincinv(np.maximum(k, 0.5), n - k + 1, error), 0.0)
    upper = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 0.5), 1.0 - error), 1.0)
    return lower, upper


def ceiling(runs: int, delta: float = 0.0, confidence: float = CONFIDENCE) -> float:
    """The largest bound that so many runs of each world can prove: that of an attacker who is
    never wrong.
    """
    lower, upper = clopper_pearson(np.array([runs, 0]), runs, (1.0 - confidence) / 2.0)
    return _epsilon(float(lower[0]), float(upper[1]), delta)


def lower_bound(
    pilot: Scores, measured: Scores, delta: float = 0.0, confidence: float = CONFIDENCE
) -> LowerBound:
    """Choose a test on ``pilot``, bound epsilon by its error rates on ``measured``.

    The runs of the two are independent; both error rates share what ``confidence`` leaves.
    """
    if not 0.0 < confidence < 1.0 or not 0.0 <= delta < 1.0:
        raise ConfigError("confidence must lie between 0 and 1, delta from 0 up to 1")
    error = (1.0 - confidence) / 2.0
    threshold, mirrored = _choose(pilot, delta, error)
    answer, other = (measured.low, measured.high) if mirrored else (measured.high, measured.low)
    given = int(_answers(answer, threshold, mirrored).sum())
    false = int(_answers(other, threshold, mirrored).sum())
    lower, _ = clopper_pearson(np.array([given]), len(answer), error)
    _, upper = clopper_pearson(np.array([false]), len(other), error)
    return LowerBound(
        epsilon=_epsilon(float(lower[0]), float(upper[0]), delta),
        confidence=confidence,
        power=given / len(answer),
        false_alarms=false / len(other),
        threshold=threshold,
        mirrored=mirrored,
    )


def _answers(scores: np.ndarray, threshold: float, mirrored: bool) -> np.ndarray:
    return scores <= threshold if mirrored else scores >= threshold


def _choose(pilot: Scores, delta: float, error: float) -> tuple[float, bool]:
    """The threshold and side with the best bound on the pilot runs."""
    seen = np.unique(np.concatenate((pilot.low, pilot.high)))
    # Half way between two scores: a threshold on a score would leave no room for the next runs.
    thresholds = np.concatenate((seen[:1], (seen[:-1] + seen[1:]) / 2.0))
    low, high = np.sort(pilot.low), np.sort(pilot.high)
    best = (-math.inf, float(thresholds[0]), False)
    for mirrored in (False, True):
        if mirrored:
            given, false = (
                np.searchsorted(scores, thresholds, side="right") for scores in (low, high)
            )
            n_given, n_false = len(low), len(high)
        else:
            given, false = (
                len(scores) - np.searchsorted(scores, thresholds, side="left")
                for scores in (high, low)
            )
            n_given, n_false = len(high), len(low)
        lower, _ = clopper_pearson(given, n_given, error)
        _, upper = clopper_pearson(false, n_false, error)
        ratio = (lower - delta) / upper
        position = int(np.argmax(ratio))
        best = max(best, (float(ratio[position]), float(thresholds[position]), mirrored))
    return best[1], best[2]


def _epsilon(power: float, false_alarms: float, delta: float) -> float:
    return max(0.0, math.log((power - delta) / false_alarms)) if power > delta else 0.0


def discriminated(low: np.ndarray, high: np.ndarray, pilot: int) -> Scores:
    """Scores of points (rows) by Fisher's discriminant: where pilot runs of both worlds differ
    most.
    """
    first_low, first_high = low[:pilot], high[:pilot]
    spread = np.atleast_2d(np.cov(first_low.T) + np.cov(first_high.T))
    spread = spread + max(1e-9 * float(np.trace(spread)), 1e-12) * np.eye(len(spread))
    direction = np.linalg.solve(spread, first_high.mean(axis=0) - first_low.mean(axis=0))
    return Scores(low @ direction, high @ direction)


PARTS = (1, 2, 4, 8, 16)
"""One of so many canaries is guessed: the surest."""


@dataclass(frozen=True, slots=True)
class OneRunBound:
    """What the right guesses prove.

    Attributes:
        epsilon: The lower bound; 0 where the guesses prove nothing.
        right: Right guesses, where that bound comes from.
        guesses: Of so many.
        canaries: All there were.
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
    """What an attacker proves.

    Args:
        scores: One per canary; positive guesses "high" (or "there"), and the larger, the surer.
        truth: The coins: which canaries are high, or there.
        confidence: Of the bound.
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
    """The largest bound that so many canaries can prove: that of an attacker who is never wrong."""
    truth = np.ones(canaries, np.bool_)
    return one_run_bound(np.ones(canaries), truth, confidence).epsilon


@dataclass(frozen=True, slots=True)
class CanaryNumbers:
    """Numbers about the canaries that the recommender has seen: one of two numbers each, and noise.

    Attributes:
        seen: A row per canary.
        ends: What they would be without noise if the canary is low (or not there), and if it is
            high.
        scale: Of the Laplace noise by the proof's law.
    """

    seen: np.ndarray
    ends: tuple[float, float]
    scale: float

    def scores(self) -> np.ndarray:
        """Log-likelihood ratios of the canaries."""
        low, high = self.ends
        return np.asarray(
            (np.abs(self.seen - low) - np.abs(self.seen - high)).sum(axis=1) / self.scale
        )

    def sizes(self, truth: np.ndarray) -> np.ndarray:
        """Sizes of the noise, over their mean by the law."""
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
        """Log-likelihood ratios of the canaries."""
        low, high = self.p
        ratios = np.where(self.plus > 0, np.log(high / low), np.log((1.0 - high) / (1.0 - low)))
        return np.where(self.plus < 0, 0.0, ratios)

    def sizes(self, truth: np.ndarray) -> np.ndarray:
        """Wrong bits, over how many there are by the law."""
        return np.asarray((self.plus > 0) != truth) / self.p[0]


@dataclass(slots=True)
class ObservedCanaries:
    """What the recommender has got.

    Attributes:
        about: Numbers about the canaries.
        knowing_h: Scores of whoever knows h, where there is one.
    """

    about: list[CanaryNumbers | CanaryBits] = field(default_factory=list)
    knowing_h: np.ndarray | None = None

    def scores(self) -> np.ndarray:
        """Log-likelihood ratios by all of them."""
        return np.asarray(np.sum([numbers.scores() for numbers in self.about], axis=0))

    def noise(self, truth: np.ndarray) -> tuple[float, float]:
        """Mean size of the noise over that of the law, and its standard deviation by the law."""
        sizes = np.concatenate([numbers.sizes(truth).ravel() for numbers in self.about])
        # The size of Laplace noise has the exponential law; a bit is wrong or not.
        variance = np.mean(
            [
                1.0 / numbers.p[0] - 1.0 if isinstance(numbers, CanaryBits) else 1.0
                for numbers in self.about
            ]
        )
        return float(sizes.mean()), float(np.sqrt(variance / len(sizes)))
