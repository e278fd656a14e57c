"""The mechanisms of MF, DPMF, PDPMF and HDPMF, one small class each, and the paper's noise.

A mechanism says how a rating enters training, which budget sets the noise, and how a prediction is
brought back to the rating scale. Everything else is one trainer.

The noise is Laplace, made of shares that nobody holds alone (Theorem 3). The recommender draws
``h_j ~ Exp(1)^K`` for item j; each rater draws ``c ~ N(0, 1/n_j)^K`` and adds ``b sqrt(2 h_j) c``.
The shares add up to ``b sqrt(2 h_j) N(0, 1)``, which is Laplace(b) with ``b = 2 sqrt(K) Delta /
epsilon``. A device that holds several raters draws the sum of their shares at once: normals add up
to a normal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hdpmf.common.methods import Method
from hdpmf.common.privacy.coding import WEIGHT_UNITS
from hdpmf.errors import ConfigError, PrivacyError

H_FLOOR = 2.0**-23
"""The smallest h: a float32 draw of Exp(1) may be 0, which would mean no noise."""


def laplace_scale(n_factors: int, width: float, budget: float) -> float:
    """Scale ``b`` of the Laplace noise on each coordinate of an item's summed gradient.

    Args:
        n_factors: K, the length of a latent vector.
        width: Delta, the width of the *public* rating scale.
        budget: The epsilon that the noise pays for.
    """
    _check_budget(budget)
    return 2.0 * math.sqrt(n_factors) * width / budget


def _check_budget(budget: float) -> None:
    if not (math.isfinite(budget) and budget > 0):
        raise PrivacyError(
            f"a noise budget must be a positive number, not {budget}; choose epsilon > 0"
        )


def noise_share(h: np.ndarray, c: np.ndarray, scale: float | np.floating[Any]) -> np.ndarray:
    """A rater's share of Laplace(scale) noise, from the recommender's ``h`` and its own ``c``."""
    share: np.ndarray = scale * np.sqrt(2.0 * h) * c
    return share


def dense_laplace_scale(
    n_factors: int, width: float, budget: float, rounds: int, step: float
) -> Fraction:
    """Grid scale of the Laplace noise on every number of T rounds that share a budget.

    Where ``|u| <= 1`` a change of a rating's value moves the gradient ``2 W (u.v - R) u`` by at
    most ``2 W width sqrt(K)`` in the sum of sizes, which is what noise on each coordinate pays for.
    Computed in fractions and never rounded down.

    Args:
        n_factors: K.
        width: Delta, the width of the *public* rating scale.
        budget: The epsilon of all rounds together at weight 1.
        rounds: T.
        step: What 1 stands for on the grid.
    """
    _check_budget(budget)
    root = Fraction(math.isqrt((n_factors << 80) - 1) + 1, 1 << 40)
    return 2 * root * Fraction(width) * rounds / Fraction(budget) / Fraction(step)


@dataclass(frozen=True, slots=True)
class Budgets:
    """A summary of the budgets W_ij * epsilon of all ratings."""

    count: int
    total: float
    smallest: float
    largest: float

    @classmethod
    def of(cls, weights: np.ndarray, epsilon: float) -> Budgets:
        """The summary of ratings with these weights."""
        if len(weights) == 0:
            return cls(0, 0.0, math.inf, 0.0)
        budgets = weights * epsilon
        return cls(len(weights), float(budgets.sum()), float(budgets.min()), float(budgets.max()))

    def __add__(self, other: Budgets) -> Budgets:
        return Budgets(
            self.count + other.count,
            self.total + other.total,
            min(self.smallest, other.smallest),
            max(self.largest, other.largest),
        )


@dataclass(frozen=True, slots=True, repr=False)
class TrainingRatings:
    """Ratings as they enter training.

    Attributes:
        kept: Positions of the ratings that take part, or None for all of them.
        target: What the model should predict for each kept rating.
        coefficient: How much its residual counts in what is sent, or None where all count 1.
    """

    kept: np.ndarray | None
    target: np.ndarray
    coefficient: np.ndarray | None


class Mechanism:
    """The rule by which ratings enter training, budgets set the noise, and predictions come back.

    A subclass changes only what makes it different; by default every rating enters as it is.
    """

    needs_budgets = False
    """The noise depends on the budgets of all ratings, which devices reveal in summary."""

    bounds_users = True
    """User vectors must stay in the unit ball, which the noise is calibrated to."""

    needs_h = True
    """The recommender draws a part of the noise (h); else users make all of it, on a grid."""

    sends_fitted_vectors = True
    """Gradients use vectors fitted to ratings; else stand-ins that know no rating's value."""

    def noise_budget(self, epsilon: float, budgets: Budgets | None) -> float | None:
        """The epsilon that sets the noise: the largest budget; None for no noise."""
        return epsilon

    def allows(self, stated: float | None, epsilon: float, own: Budgets) -> bool:
        """Check a recommender's stated noise budget, as far as a device's own budgets tell."""
        return stated == self.noise_budget(epsilon, None)

    def keep_probability(self, budgets: np.ndarray, noise_budget: float) -> np.ndarray | None:
        """The probability with which each rating takes part, or None where all of them do."""
        return None

    def target(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the value that the model should predict for each rating."""
        return values

    def coefficient(self, weights: np.ndarray) -> np.ndarray | None:
        """Return how much each residual counts in what is sent, or None where all count 1."""
        return None

    def bring_back(self, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Scores u.v on the rating scale."""
        return scores

    def enter(
        self,
        values: np.ndarray,
        weights: np.ndarray,
        epsilon: float,
        noise_budget: float | None,
        uniforms: np.ndarray,
    ) -> TrainingRatings:
        """Return ratings as they enter training; ``uniforms`` has one draw from [0, 1) for each."""
        probability = (
            None if noise_budget is None else self.keep_probability(weights * epsilon, noise_budget)
        )
        kept = None if probability is None else np.flatnonzero(uniforms < probability)
        if kept is not None:
            values, weights = values[kept], weights[kept]
        return TrainingRatings(kept, self.target(values, weights), self.coefficient(weights))


@dataclass(frozen=True, slots=True)
class NoPrivacy(Mechanism):
    """MF: ratings as they are, no noise."""

    bounds_users = False

    def noise_budget(self, epsilon: float, budgets: Budgets | None) -> float | None:
        """No noise."""
        return None


@dataclass(frozen=True, slots=True)
class Uniform(Mechanism):
    """DPMF: ratings as they are, everybody's noise at the smallest budget of anyone."""

    needs_budgets = True

    def noise_budget(self, epsilon: float, budgets: Budgets | None) -> float | None:
        """The smallest budget."""
        return _known(budgets).smallest

    def allows(self, stated: float | None, epsilon: float, own: Budgets) -> bool:
        """No more than the smallest budget here: others' may be smaller."""
        return stated is not None and stated <= min(own.smallest, epsilon)


@dataclass(frozen=True, slots=True)
class Sample(Mechanism):
    """PDPMF: ratings below the threshold are sampled, to make up for the smaller noise.

    Attributes:
        threshold: ``mean``, ``min`` or ``max`` of the budgets, or a number.
    """

    threshold: str | float = "mean"

    needs_budgets = True

    def __post_init__(self) -> None:
        if isinstance(self.threshold, str):
            valid = self.threshold in ("mean", "min", "max")
        else:
            valid = math.isfinite(self.threshold) and self.threshold > 0
        if not valid:
            raise PrivacyError(
                "the sampling threshold must be 'mean', 'min', 'max' or a positive number, not "
                f"{self.threshold!r}"
            )

    def noise_budget(self, epsilon: float, budgets: Budgets | None) -> float | None:
        """The threshold."""
        if not isinstance(self.threshold, str):
            return float(self.threshold)
        known = _known(budgets)
        return {"mean": known.total / known.count, "min": known.smallest, "max": known.largest}[
            self.threshold
        ]

    def allows(self, stated: float | None, epsilon: float, own: Budgets) -> bool:
        """Check the agreed number against the smallest budget here, or anyone's."""
        if stated is None or not isinstance(self.threshold, str):
            return stated == self.threshold
        # A mean of equal budgets may be larger than each of them by rounding.
        return stated <= (
            min(own.smallest, epsilon) if self.threshold == "min" else epsilon * (1.0 + 1e-9)
        )

    def keep_probability(self, budgets: np.ndarray, noise_budget: float) -> np.ndarray | None:
        """Return 1 from the threshold on; below it, what the smaller noise pays for."""
        smaller = np.minimum(budgets, noise_budget)
        # (e^b - 1) / (e^t - 1), written so that large budgets do not overflow.
        return np.asarray(
            np.exp(smaller - noise_budget) * np.expm1(-smaller) / np.expm1(-noise_budget)
        )


@dataclass(frozen=True, slots=True)
class Stretch(Mechanism):
    """HDPMF: ratings are multiplied by their weight, predictions divided by it.

    Attributes:
        rescale: Divide predictions by the weight (HDPMF), or not (the ablation HDPMF-R).
    """

    rescale: bool = True

    def target(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The rating times its weight."""
        return np.asarray(values * weights)

    def bring_back(self, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Divide by the weight."""
        return np.asarray(scores / weights) if self.rescale else scores


@dataclass(frozen=True, slots=True)
class Weight(Mechanism):
    """HDPMF with weighted residuals: the weight multiplies what is sent, not the rating.

    For a fixed user vector the sensitivity 2 W Delta |u| is that of stretching, but the model
    estimates the rating itself, so nothing has to be brought back. The device fits its own vector
    to its raw ratings.
    """

    def coefficient(self, weights: np.ndarray) -> np.ndarray | None:
        """The weight."""
        return weights


@dataclass(frozen=True, slots=True)
class Paid(Weight):
    """HDPMF where all rounds together cost W_ij epsilon, if only sums are seen.

    Weighted residuals in whole numbers, discrete Laplace noise in which the recommender has no
    hand, the budget divided among the rounds, and gradients of stand-in vectors, which depend on
    what a user rated but not on how. The proof is in ``proofs/hdpmf-paid.md``.
    """

    needs_h = False
    sends_fitted_vectors = False


def _known(budgets: Budgets | None) -> Budgets:
    if budgets is None or budgets.count == 0:
        raise PrivacyError(
            "this mechanism sets its noise from the budgets of all ratings, and none were reported"
        )
    return budgets


MECHANISMS: dict[str, type[Mechanism]] = {
    "none": NoPrivacy,
    "uniform": Uniform,
    "sample": Sample,
    "stretch": Stretch,
    "weight": Weight,
    "paid": Paid,
}


def mechanism_of(method: Method, threshold: str | float = "mean") -> Mechanism:
    """The mechanism of a method that is trained by gradients.

    Raises:
        ConfigError: It is not.
    """
    if method.mechanism is None:
        raise ConfigError(f"{method.name} is not trained in rounds")
    if method.mechanism == "sample":
        return Sample(threshold)
    if method.mechanism == "stretch":
        return Stretch(bool(method.fixed.get("rescale", True)))
    return MECHANISMS[method.mechanism]()


def bound_contributions(users: np.ndarray, most: int, draws: np.ndarray) -> np.ndarray:
    """Return positions of at most ``most`` ratings per user: those with the smallest draws.

    Args:
        users: Each rating's user, as a number.
        most: How many of a user's ratings may take part.
        draws: One number for each rating that does not depend on any value.
    """
    order = np.lexsort((draws, users))
    ranked = users[order]
    first = np.flatnonzero(np.diff(ranked, prepend=-1))
    rank = np.arange(len(users)) - np.repeat(first, np.diff(np.append(first, len(users))))
    return np.sort(order[rank < most])


def bound_weights(users: np.ndarray, most: int, draws: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the weight, in 64ths, with which each rating enters sums under a limit.

    A user's ratings enter in the order of draws until they have as much weight as ``most`` ratings
    of weight 1, the last one with what is left. So one rating more takes away no more weight from
    the others than it has itself (``proofs/hdp-sum.md``).

    Args:
        users: Each rating's user, as a number.
        most: How many ratings of weight 1 the limit is.
        draws: One number for each rating that does not depend on any value.
        units: The weights in 64ths.
    """
    order = np.lexsort((draws, users))
    ranked, own = users[order], units[order]
    before = np.cumsum(own) - own
    first = np.flatnonzero(np.diff(ranked, prepend=-1))
    before -= np.repeat(before[first], np.diff(np.append(first, len(users))))
    entered = np.empty_like(units)
    entered[order] = np.clip(most * WEIGHT_UNITS - before, 0, own)
    return entered
