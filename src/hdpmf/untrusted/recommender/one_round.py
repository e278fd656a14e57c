"""The recommender's part of the one-round designs: surveys and item facts.

The library, the running service and the audit all use this. It sees surveys, sums and bits, never a
rating.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.privacy.coding import (
    make_coding,
)
from hdpmf.common.protocol import (
    BitContribution,
    ItemFacts,
    SumContribution,
    Survey,
)
from hdpmf.errors import ProtocolError
from hdpmf.untrusted.recommender.bits import facts_from_bits
from hdpmf.untrusted.recommender.pattern_choice import choose_patterns
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.recommender.sums import (
    facts_from_sums,
)

Answer = SumContribution | BitContribution
"""The answer of a client, or of a secure sum over devices, to a survey."""


class Respondent(Protocol):
    """A client in this process, or anything else that answers surveys."""

    def accept(self, survey: Survey) -> None:
        """Agree to a survey."""
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
    )


class OneRoundRecommender:
    """Makes item facts of the answers to a survey.

    Args:
        n_patterns: With bits: how many factors of who rates what with whom to look for; with 0, who
            rated what is not used at all. None chooses by the bits.
        retired: Positions of items that are asked about no more.
    """

    def __init__(
        self,
        survey: Survey,
        features: ItemFeatures | None = None,
        *,
        n_patterns: int | None = 0,
        retired: Sequence[int] | np.ndarray = (),
    ) -> None:
        self.survey = survey
        self._features = features
        self._n_patterns = n_patterns
        self._retired = tuple(int(position) for position in retired)

    def hear(self, clients: Sequence[Respondent]) -> list[Answer]:
        """Ask clients in this process; what they answer."""
        for client in clients:
            client.accept(self.survey)
        return [client.contribute() for client in clients]

    def facts(
        self, answers: Sequence[Answer], n_sums: float = 1, earlier: Sequence[SurveyAnswer] = ()
    ) -> ItemFacts:
        """Item facts from the answers.

        Args:
            answers: Of clients that share the noise of one sum; or bits.
            n_sums: How many times the whole noise is in sums together: twice by two servers.
            earlier: What earlier runs released in sums of other ratings, each with its own noise.
                They are weighed by what they hold.
        """
        matrix = None if self._features is None else self._features.matrix
        bits = [answer for answer in answers if isinstance(answer, BitContribution)]
        sums = [answer for answer in answers if isinstance(answer, SumContribution)]
        if bits and (sums or earlier):
            raise ProtocolError("answers of different designs cannot be put together")
        if bits:
            n_patterns = self._n_patterns
            if n_patterns is None:
                n_patterns = choose_patterns(self.survey, bits, self._features)
            return facts_from_bits(self.survey, bits, self._features, n_patterns)
        return facts_from_sums(self.survey, sums, matrix, n_sums, earlier, self._retired)
