"""The recommender's part of the one-round designs: surveys, groupings, item facts.

The library, the running service and the audit all use this. It sees surveys, sums and bits, never a
rating.

Taste labels: each device has drawn a label by which items it rated. The recommender never sees a
label; it sees, for items with much weight, one noisy sum per label, and estimates how much better
the devices of one label rate an item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from hdpmf.common.data import RatingScale
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.priors import POPULARITY
from hdpmf.common.privacy.coding import (
    HEAD_WEIGHT,
    LABELLED_WEIGHT_SCALE,
    MEAN_SHARE,
    POPULARITY_SCALE,
    SCORE_UNITS,
    WEIGHT_UNITS,
    make_coding,
)
from hdpmf.common.protocol import (
    BitContribution,
    Grouping,
    ItemFacts,
    Popularity,
    SumContribution,
    Survey,
)
from hdpmf.errors import ConfigError, ProtocolError
from hdpmf.untrusted.recommender.bits import facts_from_bits
from hdpmf.untrusted.recommender.deconvolution import deconvolve, deconvolve_twice
from hdpmf.untrusted.recommender.pattern_choice import choose_patterns
from hdpmf.untrusted.recommender.runs import SurveyAnswer, check_alike
from hdpmf.untrusted.recommender.sums import (
    WEIGHT_RATIO,
    NoisySums,
    Spread,
    add_up,
    coding_of,
    facts_from_sums,
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
    """Return the grouping by which devices draw their labels.

    It has a public score per item, and the items with enough weight for two sums (heads). The score
    adds up features by ``weights`` and the centred logarithm of an item's weight. ``n_sums`` is how
    many times the whole noise is in the answers together.
    """
    released, known = _released(survey, answers), estimated_popularity(survey, answers, n_sums)
    score = features @ np.asarray(weights) + popularity_weight * log_popularity(known)
    # Centred where ratings are; beyond one standard deviation a score says no more.
    counts = np.maximum(known, 1e-6)
    score = score - np.average(score, weights=counts)
    score /= max(float(np.sqrt(np.average(score**2, weights=counts))), 1e-9)
    return Grouping(
        scores=np.rint(SCORE_UNITS * np.clip(score, -1.0, 1.0)).astype(np.int64),
        heads=np.flatnonzero(released >= np.sqrt(n_sums) * HEAD_WEIGHT / survey.epsilon).astype(
            np.int64
        ),
    )


def estimated_popularity(
    survey: Survey, answers: Sequence[Popularity], n_sums: float = 1
) -> np.ndarray:
    """Estimate each item's weight from the counts of the first round."""
    return deconvolve(
        _released(survey, answers), np.sqrt(n_sums) * POPULARITY_SCALE / survey.epsilon
    ).size_biased


def facts_from_labels(
    survey: Survey,
    counted: Sequence[Popularity],
    grouping: Grouping,
    contributions: Sequence[SumContribution],
    features: np.ndarray,
    n_sums: float = 1,
) -> ItemFacts:
    """Estimate item facts from sums that are per label for heads.

    The contrast of the two labels is the facts' one pattern.

    ``n_sums`` is how many times the whole noise is in each of the two sums: twice where each of two
    servers added it.
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
        first,
        more * POPULARITY_SCALE / survey.epsilon,
        weights,
        noise * LABELLED_WEIGHT_SCALE / survey.epsilon,
    )
    observed = NoisySums(scores, weights, both.mean)
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
    """Estimate how much better label 1 rates each item than label 0, shrunk by its uncertainty.

    It has mean 0 and variance 1 over the ratings of heads; with too few heads it is 0.
    """
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
    return np.asarray(
        found / max(float(np.sqrt(np.average(found[heads] ** 2, weights=total))), 1e-9)
    )


def _shares(
    survey: Survey,
    weights: tuple[np.ndarray, np.ndarray],
    total: np.ndarray,
    features: np.ndarray,
    n_sums: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the part of each head's weight that has label 1, and the variance of that.

    Estimates are shrunk towards what the features predict.
    """
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


Answer = SumContribution | BitContribution
"""The answer of a client, or of a secure sum over devices, to a survey."""


class Respondent(Protocol):
    """A client in this process, or anything else that answers surveys."""

    def accept(self, survey: Survey) -> None:
        """Agree to a survey."""
        ...

    def count(self) -> Popularity:
        """The first answer where there are taste labels."""
        ...

    def group(self, grouping: Grouping) -> None:
        """Draw labels."""
        ...

    def contribute(self) -> Answer:
        """The answer."""
        ...


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
    contributors: int,
    coding: str = "auto",
    labels: bool = False,
) -> Survey:
    """Return the survey to ask."""
    return Survey(
        design=design,  # type: ignore[arg-type]  # checked by the message
        coding=chosen_coding(design, coding, scale, epsilon),  # type: ignore[arg-type]  # a curve's name
        epsilon=float(epsilon),
        n_items=n_items,
        catalogue=catalogue,
        contributors=contributors,
        scale_low=scale.low,
        scale_high=scale.high,
        scale_step=scale.step,
        labels=labels,
    )


class OneRoundRecommender:
    """Makes item facts of the answers to a survey.

    Args:
        score: With taste labels: what each feature, and ``popularity``, counts in the public score
            of an item.
        n_patterns: With bits: how many factors of who rates what with whom to look for; with 0, who
            rated what is not used at all. None chooses by the bits.
        retired: Positions of items that are asked about no more.
    """

    def __init__(
        self,
        survey: Survey,
        features: ItemFeatures | None = None,
        *,
        score: Mapping[str, float] | None = None,
        n_patterns: int | None = 0,
        retired: Sequence[int] | np.ndarray = (),
    ) -> None:
        if survey.labels and (features is None or score is None):
            raise ConfigError(
                "taste labels are drawn by a public score of item features; give features, and a "
                "prior that knows a score (films, films-100k, or one of learn_prior)"
            )
        self.survey = survey
        self._features = features
        self._score = score or {}
        self._n_patterns = n_patterns
        self._retired = tuple(int(position) for position in retired)
        self._counted: Sequence[Popularity] = ()
        self._grouping: Grouping | None = None

    def hear(self, clients: Sequence[Respondent]) -> list[Answer]:
        """Ask clients in this process, in one round or two; what they answer."""
        for client in clients:
            client.accept(self.survey)
        if self.survey.labels:
            grouping = self.group([client.count() for client in clients])
            for client in clients:
                client.group(grouping)
        return [client.contribute() for client in clients]

    def group(self, counted: Sequence[Popularity], n_sums: float = 1) -> Grouping:
        """Return the grouping by which devices draw taste labels, from how much weight items have.

        ``n_sums`` is how many times the whole noise is in the counts together.
        """
        if self._features is None:
            raise ConfigError("taste labels need item features")
        weights = [self._score.get(name, 0.0) for name in self._features.names]
        popularity = self._score.get(POPULARITY, 0.0)
        grouping = make_grouping(
            self.survey, counted, self._features.matrix, weights, popularity, n_sums
        )
        self.resume(counted, grouping)
        return grouping

    def resume(self, counted: Sequence[Popularity], grouping: Grouping) -> None:
        """Resume with a grouping that was made before."""
        self._counted, self._grouping = counted, grouping

    def facts(
        self, answers: Sequence[Answer], n_sums: float = 1, earlier: Sequence[SurveyAnswer] = ()
    ) -> ItemFacts:
        """Item facts from the answers.

        Args:
            answers: Of clients that share the noise of one sum, or of cohorts of one run with a
                secure sum each.
            n_sums: How many times the whole noise is in sums together: the more cohorts, the more
                noise, and twice in a sum by two servers; with taste labels in each of the two sums.
                Bits carry their noise each by itself.
            earlier: What earlier runs released of other ratings, each with its own noise. Runs of
                sums are weighed by what they hold; bits are put together as they are.
        """
        matrix = None if self._features is None else self._features.matrix
        bits = [answer for answer in answers if isinstance(answer, BitContribution)]
        sums = [answer for answer in answers if isinstance(answer, SumContribution)]
        if bits and sums:
            raise ProtocolError("answers of different designs cannot be put together")
        if bits:
            check_alike(self.survey, earlier)
            before = [past.answer for past in earlier if isinstance(past.answer, BitContribution)]
            if len(before) < len(earlier):
                raise ProtocolError("answers of different designs cannot be put together")
            everything, n_patterns = [*before, *bits], self._n_patterns
            if n_patterns is None:
                n_patterns = choose_patterns(self.survey, everything, self._features)
            return facts_from_bits(self.survey, everything, self._features, n_patterns)
        if not self.survey.labels:
            return facts_from_sums(self.survey, sums, matrix, n_sums, earlier, self._retired)
        if self._grouping is None or matrix is None or earlier:
            raise ProtocolError(
                "answers by taste labels are those of one cohort, after it was grouped"
            )
        return facts_from_labels(self.survey, self._counted, self._grouping, sums, matrix, n_sums)
