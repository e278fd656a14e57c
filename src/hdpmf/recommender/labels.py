"""Taste labels: a further item factor from how devices of two kinds rate the same items.

Each device has drawn a label by which items it rated. The recommender never sees a label; it sees, for items with
much weight, one noisy sum per label. How much better the devices of one label rate an item than those of the other is
what this module estimates. All of it is post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from hdpmf.errors import ProtocolError
from hdpmf.privacy.coding import (
    HEAD_WEIGHT,
    LABELLED_WEIGHT_SCALE,
    MEAN_SHARE,
    POPULARITY_SCALE,
    SCORE_UNITS,
    WEIGHT_UNITS,
)
from hdpmf.protocol import Grouping, ItemFacts, Popularity, SumContribution, Survey
from hdpmf.public.popularity import log_popularity
from hdpmf.recommender.deconvolution import deconvolve, deconvolve_twice
from hdpmf.recommender.item_bias import (
    WEIGHT_RATIO,
    Observed,
    Spread,
    add_up,
    coding_of,
    item_facts,
    regress,
    sharp_biases,
    with_constant,
)

CONTRASTS = Spread(0.02, 0.002, 0.3, 1.0, 20.0)
"""Of the difference between what devices of the two labels give the same item, in stars."""

SHARES = Spread(0.005, 1e-4, 0.05, 1.0, 200.0)
"""Of the part of an item's weight that has label 1."""

_FEWEST_HEADS = 30
_SHARE_RANGE = (0.03, 0.97)


def make_grouping(
    survey: Survey,
    answers: Sequence[Popularity],
    features: np.ndarray,
    weights: Sequence[float],
    popularity_weight: float,
    n_sums: float = 1,
) -> Grouping:
    """What devices draw their labels by: a public score per item, and the items with enough weight for two sums.

    The score adds up features by ``weights`` and the centred logarithm of an item's weight. ``n_sums`` is how many
    times the whole noise is in the answers together.
    """
    released, known = _released(survey, answers), estimated_popularity(survey, answers, n_sums)
    score = features @ np.asarray(weights) + popularity_weight * log_popularity(known)
    # Centred where ratings are; beyond one standard deviation a score says no more.
    counts = np.maximum(known, 1e-6)
    score = score - np.average(score, weights=counts)
    score /= max(float(np.sqrt(np.average(score**2, weights=counts))), 1e-9)
    return Grouping(
        scores=np.rint(SCORE_UNITS * np.clip(score, -1.0, 1.0)).astype(np.int64),
        heads=np.flatnonzero(released >= np.sqrt(n_sums) * HEAD_WEIGHT / survey.epsilon).astype(np.int64),
    )


def estimated_popularity(survey: Survey, answers: Sequence[Popularity], n_sums: float = 1) -> np.ndarray:
    """How much weight each item has, from what devices counted first."""
    return deconvolve(_released(survey, answers), np.sqrt(n_sums) * POPULARITY_SCALE / survey.epsilon).size_biased


def facts_from_labels(
    survey: Survey,
    counted: Sequence[Popularity],
    grouping: Grouping,
    contributions: Sequence[SumContribution],
    features: np.ndarray,
    n_sums: float = 1,
) -> ItemFacts:
    """Item facts from sums of which the heads' are per label; the labels' contrast is their one pattern.

    ``n_sums`` is how many times the whole noise is in each of the two sums: twice where each of two servers added it.
    """
    n, heads = survey.n_items, grouping.heads
    both = add_up(survey, contributions, len(heads))
    scores_0, scores_1 = both.scores[:n].copy(), both.scores[n:]
    weights_0, weights_1 = both.weights[:n].copy(), both.weights[n:]
    scores, weights = scores_0.copy(), weights_0.copy()
    scores[heads] += scores_1
    weights[heads] += weights_1
    # A head's sums have the noise of two, which counts as one of the same variance.
    more = np.sqrt(n_sums)
    noise = np.full(n, more)
    noise[heads] *= np.sqrt(2.0)
    first = _released(survey, counted)
    known = deconvolve_twice(
        first, more * POPULARITY_SCALE / survey.epsilon, weights, noise * LABELLED_WEIGHT_SCALE / survey.epsilon
    )
    observed = Observed(scores, weights, both.mean)
    bias, variance = sharp_biases(survey, observed, known, noise, features)
    total = np.maximum(known.mean[heads], 1.0)
    per_label = (scores_0[heads], scores_1), (weights_0[heads], weights_1)
    pattern = _contrast(survey, *per_label, total, heads, features, n_sums)
    facts = item_facts(survey, observed.mean, bias, variance, known.size_biased, pattern[:, None])
    return replace(facts, labels=True)


def _contrast(
    survey: Survey,
    scores: tuple[np.ndarray, np.ndarray],
    weights: tuple[np.ndarray, np.ndarray],
    total: np.ndarray,
    heads: np.ndarray,
    features: np.ndarray,
    n_sums: float,
) -> np.ndarray:
    """How much better label 1 rates each item than label 0, shrunken, with mean 0 and variance 1 over ratings."""
    n = survey.n_items
    if len(heads) < _FEWEST_HEADS:
        return np.zeros(n)
    curve = coding_of(survey).curve
    noise = 2.0 * n_sums / (survey.epsilon * float(1 - MEAN_SHARE)) ** 2
    share, doubt = _shares(survey, weights, total, features[heads], n_sums)
    sums = (total * (1.0 - share), total * share)
    means = tuple(score / weight for score, weight in zip(scores, sums, strict=True))
    spread = sum((noise + curve.within * WEIGHT_RATIO * weight) / weight**2 for weight in sums)
    # A share that is off moves both means: each by itself over its part of the weight.
    spread = spread + (means[1] / share + means[0] / (1.0 - share)) ** 2 * doubt
    contrast, spread = (means[1] - means[0]) / curve.slope, spread / curve.slope**2
    coefficients, left = regress(contrast, np.ones(len(heads)), spread, features[heads], CONTRASTS)
    found = with_constant(features, n) @ coefficients
    found[heads] += left / (left + spread) * (contrast - found[heads])
    found -= np.average(found[heads], weights=total)
    return np.asarray(found / max(float(np.sqrt(np.average(found[heads] ** 2, weights=total))), 1e-9))


def _shares(
    survey: Survey, weights: tuple[np.ndarray, np.ndarray], total: np.ndarray, features: np.ndarray, n_sums: float
) -> tuple[np.ndarray, np.ndarray]:
    """The part of each head's weight that has label 1, shrunk towards what its features say, and its variance."""
    noise = 2.0 * n_sums * (LABELLED_WEIGHT_SCALE / survey.epsilon) ** 2
    seen = np.clip(weights[1] / np.maximum(weights[0] + weights[1], 1.0), *_SHARE_RANGE)
    doubt = noise * ((1.0 - seen) ** 2 + seen**2) / total**2
    coefficients, left = regress(seen, np.ones(len(seen)), doubt, features, SHARES)
    expected = with_constant(features, len(seen)) @ coefficients
    gain = left / (left + doubt)
    return np.clip(expected + gain * (seen - expected), *_SHARE_RANGE), gain * doubt


def _released(survey: Survey, answers: Sequence[Popularity]) -> np.ndarray:
    if any(len(answer.weights) != survey.n_items for answer in answers):
        raise ProtocolError(f"an answer is not about the {survey.n_items} items of the survey")
    return np.asarray(np.sum([answer.weights for answer in answers], axis=0) / WEIGHT_UNITS)
