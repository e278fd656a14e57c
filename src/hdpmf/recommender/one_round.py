"""The recommender's part of the one-round designs: it asks, groups items for taste labels, and makes item facts.

The library, the running service and the audit all use this. It sees surveys, sums and bits, never a rating.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from hdpmf.errors import ConfigError, ProtocolError
from hdpmf.privacy.coding import make_coding
from hdpmf.protocol import BitContribution, Grouping, ItemFacts, Popularity, SumContribution, Survey
from hdpmf.public.priors import POPULARITY
from hdpmf.ratings import RatingScale
from hdpmf.ratings.item_features import ItemFeatures
from hdpmf.recommender.bits import facts_from_bits
from hdpmf.recommender.item_bias import facts_from_sums
from hdpmf.recommender.labels import facts_from_labels, make_grouping
from hdpmf.recommender.runs import Answered, check_alike

Answer = SumContribution | BitContribution
"""What a shard, or a secure sum over devices, says to a survey."""


class Respondent(Protocol):
    """A shard in this process, or whatever else answers."""

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
    """The curve that a coding stands for; where it is ``auto``, epsilon and design decide.

    A bit is about a threshold at every epsilon: on ratings held out within ML-100K and ML-1M the rating itself is worse
    at 1 to 16 (``python benchmarks/constants.py --only coding``).
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
    """What is asked."""
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
        features: Public features of the items, or None.
        score: With taste labels: what each feature, and ``popularity``, counts in the public score of an item.
        n_patterns: With bits: how many factors of who rates what with whom to look for; without any, who rated what is
            not used at all.
        retired: Positions of items that are asked about no more.
    """

    def __init__(
        self,
        survey: Survey,
        features: ItemFeatures | None = None,
        *,
        score: Mapping[str, float] | None = None,
        n_patterns: int = 0,
        retired: Sequence[int] | np.ndarray = (),
    ) -> None:
        if survey.labels and (features is None or score is None):
            raise ConfigError(
                "taste labels are drawn by a public score of item features; give features, and a prior that knows a "
                "score (films, films-100k, or one of: hdpmf prior learn)"
            )
        self.survey = survey
        self._features = features
        self._score = score or {}
        self._n_patterns = n_patterns
        self._retired = tuple(int(place) for place in retired)
        self._counted: Sequence[Popularity] = ()
        self._grouping: Grouping | None = None

    def hear(self, shards: Sequence[Respondent]) -> list[Answer]:
        """Ask shards in this process, in one round or two; what they answer."""
        for shard in shards:
            shard.accept(self.survey)
        if self.survey.labels:
            grouping = self.group([shard.count() for shard in shards])
            for shard in shards:
                shard.group(grouping)
        return [shard.contribute() for shard in shards]

    def group(self, counted: Sequence[Popularity], n_sums: float = 1) -> Grouping:
        """With taste labels: by what devices draw them, from how much weight each item has.

        ``n_sums`` is how many times the whole noise is in the counts together.
        """
        if self._features is None:
            raise ConfigError("taste labels need item features")
        weights = [self._score.get(name, 0.0) for name in self._features.names]
        popularity = self._score.get(POPULARITY, 0.0)
        grouping = make_grouping(self.survey, counted, self._features.matrix, weights, popularity, n_sums)
        self.resume(counted, grouping)
        return grouping

    def resume(self, counted: Sequence[Popularity], grouping: Grouping) -> None:
        """Go on with a grouping that was made before."""
        self._counted, self._grouping = counted, grouping

    def facts(self, answers: Sequence[Answer], n_sums: float = 1, earlier: Sequence[Answered] = ()) -> ItemFacts:
        """Item facts from the answers.

        Args:
            answers: Of shards that share the noise of one sum, or of cohorts of one run with a secure sum each.
            n_sums: How many times the whole noise is in sums together: the more cohorts, the more noise, and twice in
                a sum by two servers; with taste labels in each of the two sums. Bits carry their noise each by itself.
            earlier: What earlier runs released of other ratings, each with its own noise. Runs of sums are weighed by
                what they hold; bits are put together as they are.
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
            return facts_from_bits(self.survey, [*before, *bits], self._features, self._n_patterns)
        if not self.survey.labels:
            return facts_from_sums(self.survey, sums, matrix, n_sums, earlier, self._retired)
        if self._grouping is None or matrix is None or earlier:
            raise ProtocolError("answers by taste labels are those of one cohort, after it was grouped")
        return facts_from_labels(self.survey, self._counted, self._grouping, sums, matrix, n_sums)
