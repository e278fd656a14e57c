"""From an attacker's scores to a lower bound on epsilon that holds with a stated confidence.

Epsilon privacy means: whatever set of outcomes an attacker answers "high" to, its probability in
one world is at most ``e^epsilon`` times that in the other. So one test with true-positive rate TPR
and false-positive rate FPR proves ``epsilon >= ln(TPR / FPR)``.
The test (which side, which threshold) is chosen on pilot scores; the rates are then measured on
scores that had no say in the choice, each bounded by Clopper and Pearson at half the error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from hdpmf.common.privacy.accounting.person import Spent
from hdpmf.errors import ConfigError


def log_discrete_laplace(k: np.ndarray, scale: float) -> np.ndarray:
    """Return the log probability of ``k``, with P(k) proportional to exp(-abs(k) / scale)."""
    return np.asarray(math.log(math.tanh(0.5 / scale)) - np.abs(k) / scale)


CONFIDENCE = 0.95
"""Probability, over the runs, that a bound holds."""

_ERROR = (1.0 - CONFIDENCE) / 2.0

BROKEN = "claim broken"
STANDS = "not contradicted"
NO_CLAIM = "no claim"


def verdict(claimed: float | None, bound: float) -> str:
    """Compare a lower bound with a claim."""
    if claimed is None:
        return NO_CLAIM
    return BROKEN if bound > claimed else STANDS


@dataclass(frozen=True, slots=True)
class Scores:
    """An attacker's scores in both worlds; larger means the high rating is likelier."""

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
        """Split into the first ``pilot`` runs of each world, and the rest."""
        return Scores(self.low[:pilot], self.high[:pilot]), Scores(
            self.low[pilot:], self.high[pilot:]
        )


Halves = tuple[Scores, Scores]
"""Scores of pilot runs, which choose a threshold, and of the runs that it is measured on."""


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A lower bound on epsilon by measured error rates.

    Attributes:
        epsilon: The lower bound; 0 if the attack proves nothing.
        power: Measured probability of the answer in the world that it speaks for.
        false_alarms: Measured probability of the same answer in the other world.
    """

    epsilon: float
    power: float
    false_alarms: float


def clopper_pearson(successes: np.ndarray, n: int, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Return one-sided exact bounds of a probability, each wrong at most ``error`` of the time."""
    from scipy.special import betaincinv

    k = np.asarray(successes, np.float64)
    lower = np.where(k > 0, betaincinv(np.maximum(k, 0.5), n - k + 1, error), 0.0)
    upper = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 0.5), 1.0 - error), 1.0)
    return lower, upper


def ceiling(runs: int, *, normal: bool = False) -> float:
    """Return the largest bound that ``runs`` runs of each world can prove."""
    lower, upper = clopper_pearson(np.array([runs, 0]), runs, _ERROR)
    return (_normal_epsilon if normal else _epsilon)(float(lower[0]), float(upper[1]))


def lower_bound(pilot: Scores, measured: Scores, *, normal: bool = False) -> LowerBound:
    """Choose a test on ``pilot``, bound epsilon by its error rates on ``measured``.

    The runs of the two are independent; both error rates share what ``CONFIDENCE`` leaves. Where
    the claim is about mu (``normal``), so is the bound, Phi^-1(TPR) - Phi^-1(FPR), and epsilon is
    what that mu has at the usual delta: by rare outcomes alone a large epsilon is never shown.
    """
    proves = _normal_epsilon if normal else _epsilon
    threshold, mirrored = _choose(pilot, normal)
    answer, other = _sides(measured)[mirrored]
    given = int((answer >= threshold).sum())
    false = int((other >= threshold).sum())
    lower, _ = clopper_pearson(np.array([given]), len(answer), _ERROR)
    _, upper = clopper_pearson(np.array([false]), len(other), _ERROR)
    return LowerBound(
        epsilon=proves(float(lower[0]), float(upper[0])),
        power=given / len(answer),
        false_alarms=false / len(other),
    )


def _sides(scores: Scores) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return scores where the answer "high" is right and wrong; mirrored, those of "low"."""
    return (scores.high, scores.low), (-scores.low, -scores.high)


def _choose(pilot: Scores, normal: bool) -> tuple[float, bool]:
    """Return the least score of an answer, and its side, with the best bound on the pilot runs."""
    from scipy.special import ndtri

    seen = np.unique(np.concatenate((pilot.low, pilot.high)))
    # Half way between two scores: a threshold on a score would leave no room for the next runs.
    thresholds = np.concatenate((seen[:1], (seen[:-1] + seen[1:]) / 2.0))
    best = (-math.inf, 0.0, False)
    for mirrored, (answer, other) in enumerate(_sides(pilot)):
        least = -thresholds if mirrored else thresholds
        given, false = (
            len(scores) - np.searchsorted(np.sort(scores), least) for scores in (answer, other)
        )
        lower, _ = clopper_pearson(given, len(answer), _ERROR)
        _, upper = clopper_pearson(false, len(other), _ERROR)
        ratio = ndtri(lower) - ndtri(upper) if normal else lower / upper
        position = int(np.argmax(ratio))
        best = max(best, (float(ratio[position]), float(thresholds[position]), bool(mirrored)))
    _, threshold, mirrored = best
    return -threshold if mirrored else threshold, mirrored


def _epsilon(power: float, false_alarms: float) -> float:
    return max(0.0, math.log(power / false_alarms)) if power > 0 else 0.0


def _normal_epsilon(power: float, false_alarms: float) -> float:
    if not 0.0 < false_alarms < power < 1.0:
        return 0.0
    normal = NormalDist()
    mu = normal.inv_cdf(power) - normal.inv_cdf(false_alarms)
    return Spent(mu**2 / 2).epsilon()


def discriminated(low: np.ndarray, high: np.ndarray, pilot: int) -> Scores:
    """Score points (rows) by Fisher's discriminant of the pilot runs."""
    first_low = low[:pilot]
    first_high = high[:pilot]
    spread = np.atleast_2d(np.cov(first_low.T) + np.cov(first_high.T))
    spread = spread + max(1e-9 * float(np.trace(spread)), 1e-12) * np.eye(len(spread))
    direction = np.linalg.solve(spread, first_high.mean(axis=0) - first_low.mean(axis=0))
    return Scores(low @ direction, high @ direction)


def best_attack(attacks: Sequence[Halves]) -> Halves:
    """Return the attack that proves most on its pilot runs."""
    return max(attacks, key=lambda pair: lower_bound(pair[0], pair[0]).epsilon)


def certain(pilot: int, runs: int) -> Halves:
    """Return the scores of an observer who sees the rating itself."""
    apart = np.ones(pilot + runs)
    return Scores(-apart, apart).split(pilot)
