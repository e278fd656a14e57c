"""From released sums to item biases. Post-processing only: it costs no privacy.

Everything is in stars: a rating scale is mapped to one to five, so that one set of constants serves
all scales.

Sums beyond what their number of users can reach are clamped, because a sum hides which
device sent wrong numbers. A user adds at most 64 weight units to an item, and to its score at most
a rating's largest entry for each of them. A margin is added for the noise. Honest noise exceeds it
with a probability of e^-40 per number, so sums of honest devices stay as they are.
"""

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.coding import (
    MEAN_SHARE,
    WEIGHT_SCALE,
    WEIGHT_UNITS,
    Coding,
    Curve,
    make_coding,
    make_ruler,
)
from hdpmf.common.protocol import ItemFacts, SumContribution, Survey
from hdpmf.untrusted.recommender.deconvolution import Weights, deconvolve, margin

STARS = 4.0
"""Width of the scale in stars."""

MIDDLE = 3.0

SPREAD = 0.2
"""Variance of item biases around what their features say, before anything is seen (stars
squared).
"""

# Sum of squared weights over sum of weights, for the spread of a sum given its weight.
WEIGHT_RATIO = 0.66

_ROUNDS = 8
_GRID = np.linspace(-3.5, 3.5, 25)
_CLEAR = 0.25


LEAST_SPREAD, MOST_SPREAD = 0.05, 0.5
"""Within which that variance may turn out to be."""

STEADY = 30.0
"""The number of items without uncertainty that ``SPREAD`` counts like, so that a few odd items do
not decide."""

RIDGE = 1.0
"""How strongly a feature's coefficient is held to zero."""


@dataclass(frozen=True, slots=True)
class NoisySums:
    """Noisy sums in real units.

    Attributes:
        scores: Per item, the sum of weight times centred coded rating.
        weights: Per item, the sum of weights.
        mean: Mean rating of all, in stars.
        mean_variance: How uncertain it is.
    """

    scores: np.ndarray
    weights: np.ndarray
    mean: float
    mean_variance: float


def real_sums(survey: Survey, answer: SumContribution) -> NoisySums:
    """Return an answer in real units."""
    coding = coding_of(survey)
    total = answer.total * (make_ruler(coding.scale).unit / WEIGHT_UNITS)
    weights = answer.weights / WEIGHT_UNITS
    weight = max(float(weights.sum()), 1.0)
    level = float(np.clip(total / weight, -0.5, 0.5))
    noise = 1.0 / survey.epsilon
    errors = 2.0 * noise**2 * (float(MEAN_SHARE) ** -2 + len(weights) * (level * WEIGHT_SCALE) ** 2)
    return NoisySums(
        scores=answer.scores * (coding.unit / WEIGHT_UNITS),
        weights=weights,
        mean=MIDDLE + STARS * level,
        mean_variance=STARS**2 * errors / weight**2,
    )


def coding_of(survey: Survey) -> Coding:
    """The coding that a survey asks for."""
    return make_coding(survey.coding, survey.scale, survey.epsilon)


def chosen_coding(design: str, coding: str, scale: RatingScale, epsilon: float) -> str:
    """Return the name of the curve; for ``auto``, epsilon and design choose it.

    A bit is about a threshold at every epsilon: on ratings held out within ML-100K and ML-1M the
    rating itself is worse at 1 to 16 (``python benchmarks/constants.py --only coding``).
    """
    if design == "L" and coding == "auto":
        return "threshold"
    return make_coding(coding, scale, epsilon).name


def make_survey(
    design: str,
    epsilon: float,
    scale: RatingScale,
    *,
    n_items: int,
    catalogue: str,
    coding: str = "auto",
) -> Survey:
    """Return the survey to ask."""
    return Survey(
        design=design,  # type: ignore[arg-type]  # A or L
        coding=chosen_coding(design, coding, scale, epsilon),  # type: ignore[arg-type]  # a curve's name
        epsilon=float(epsilon),
        n_items=n_items,
        catalogue=catalogue,
        scale_low=scale.low,
        scale_high=scale.high,
        scale_step=scale.step,
    )


def facts_from_sums(
    survey: Survey, answer: SumContribution, features: np.ndarray | None
) -> ItemFacts:
    """Return item facts from sums; ``features`` are public, a row for each item."""
    observed, scale = real_sums(survey, answer), WEIGHT_SCALE / survey.epsilon
    known = deconvolve(observed.weights, scale)
    noise = np.ones(survey.n_items)
    bias, variance = sharp_biases(survey, observed, known, noise, features)
    mean = observed.mean, observed.mean_variance
    facts = item_facts(survey, mean, bias, variance, known.size_biased)
    margins = np.full(survey.n_items, margin(survey.n_items, laplace=1.0)) * scale
    return replace(facts, popularity_margin=margins.astype(np.float32))


def sharp_biases(
    survey: Survey,
    observed: NoisySums,
    known: Weights,
    noise: np.ndarray,
    features: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return biases and how uncertain they are.

    ``noise`` says, per item, how many times the scale of one sum's noise its score has.
    """
    curve = coding_of(survey).curve
    # The mean of the curve over all ratings, less its middle.
    level = float(observed.scores.sum() / max(float(observed.weights.sum()), 1.0))
    scale = np.asarray(noise / (survey.epsilon * float(1 - MEAN_SHARE)))
    variance = (
        curve.within * WEIGHT_RATIO * known.mean + (level * known.deviation) ** 2 + 2.0 * scale**2
    )
    coefficients, spread = regress(
        observed.scores - level * known.mean, curve.slope * known.mean, variance, features
    )
    prior = with_constant(features, survey.n_items) @ coefficients
    # Who rated an item is uncertain too: an unclear sum must not pass for one of many ratings.
    unsure = (level**2 + curve.slope**2 * spread) * known.deviation**2
    return _posterior(
        observed.scores,
        level,
        known.mean,
        unsure,
        curve,
        scale[:, None],
        prior,
        spread,
    )


def item_facts(
    survey: Survey,
    mean: tuple[float, float],
    bias: np.ndarray,
    variance: np.ndarray,
    popularity: np.ndarray,
) -> ItemFacts:
    """The message to all devices; the mean comes with its variance."""
    return ItemFacts(
        catalogue=survey.catalogue,
        mean=mean[0],
        mean_variance=float(min(mean[1], STARS**2)),
        bias=bias.astype(np.float32),
        variance=np.maximum(variance, 0.0).astype(np.float32),
        popularity=np.maximum(popularity, 0.0).astype(np.float32),
    )


def regress(
    scores: np.ndarray,
    slopes: np.ndarray,
    noise: np.ndarray,
    features: np.ndarray | None,
) -> tuple[np.ndarray, float]:
    """Biases on features, by generalised least squares, and the variance that features leave.

    Args:
        scores: Per item, its score without what the mean rating explains.
        slopes: How much a bias of one star moves it.
        noise: Its variance given the bias.
        features: One row per item, or None for a constant alone.

    Returns:
        The coefficients of a constant and the features, and the variance of biases around what they
        say.
    """
    columns = with_constant(features, len(scores))
    design = slopes[:, None] * columns
    ridge = np.full(columns.shape[1], RIDGE)
    ridge[0] = 1e-3
    spread = SPREAD
    # Items that say more about the spread than about the noise; the rest would only add its error.
    telling = slopes**2 * SPREAD > _CLEAR * noise
    held = STEADY / SPREAD**2
    for _ in range(_ROUNDS):
        variance = noise + slopes**2 * spread
        weighted = design / variance[:, None]
        coefficients = np.linalg.solve(weighted.T @ design + np.diag(ridge), weighted.T @ scores)
        residual = scores - design @ coefficients
        information = np.where(telling, (slopes**2 / variance) ** 2, 0.0)
        moments = ((residual**2 - noise) / np.maximum(slopes**2, 1e-12) * information).sum()
        spread = float(
            np.clip(
                (moments + held * SPREAD) / (information.sum() + held), LEAST_SPREAD, MOST_SPREAD
            )
        )
    return coefficients, spread


def with_constant(features: np.ndarray | None, n_items: int) -> np.ndarray:
    """Features with a column of ones before them."""
    return (
        np.ones((n_items, 1)) if features is None else np.column_stack([np.ones(n_items), features])
    )


def _posterior(
    scores: np.ndarray,
    level: float,
    weights: np.ndarray,
    unsure: np.ndarray,
    curve: Curve,
    noise_scale: np.ndarray,
    prior: np.ndarray,
    spread: float | np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior mean and variance of each bias, computed on a grid.

    The prior is normal, and each score a normal sum with Laplace noise.
    """
    from scipy.special import log_ndtr

    biases = prior[:, None] + np.sqrt(np.broadcast_to(spread, prior.shape))[:, None] * _GRID
    weights = np.maximum(weights, 1e-3)[:, None]
    distance = scores[:, None] - weights * (level + curve.slope * biases)
    deviation = np.sqrt(curve.within * WEIGHT_RATIO * weights + unsure[:, None])
    # Log density of Laplace plus normal, without the factors that do not depend on the bias.
    tilt = deviation / noise_scale
    below = distance / noise_scale + log_ndtr(-(distance / deviation + tilt))
    above = -distance / noise_scale + log_ndtr(distance / deviation - tilt)
    log_posterior = np.logaddexp(below, above) - _GRID**2 / 2.0
    posterior = np.exp(log_posterior - log_posterior.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    mean = (posterior * biases).sum(1)
    return mean, (posterior * (biases - mean[:, None]) ** 2).sum(1)
