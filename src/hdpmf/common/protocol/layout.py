"""The layout of a secure sum: the whole numbers of a job, in order, for both sides.

| job | numbers | words |
|---|---|---|
| counts (Opening) | one per item | 32 bits |
| gradients (Round) | items x factors, item by item, in units of ``GRADIENT_STEP`` | 64 bits |
| survey (Survey) | scores, weights, total | 64 bits |
| survey by taste labels (Survey) | weights | 64 bits |
| grouping (Grouping) | scores and weights, each of items, then of heads; total | 64 bits |

The bound on a number is the largest that so many participants may have, so that both sides know it
without saying it. A device does not look whether its numbers are beyond it: words are reduced by
their width, and so is their sum, which tells nothing but the sum of the numbers. A device that took
no part would tell that its own are large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.common.aggregation.masks.primitives import IntegerCoding
from hdpmf.common.protocol.messages import Gradients, ItemCounts, Plan, from_grid
from hdpmf.common.protocol.oneround import Popularity, SumContribution, Survey
from hdpmf.errors import ProtocolError


@dataclass(frozen=True)
class SumLayout:
    """The numbers of one job as the words of a secure sum.

    Attributes:
        length: Count of numbers; a number is a word.
        coding: From numbers to words.
    """

    length: int
    coding: IntegerCoding

    @property
    def wide(self) -> bool:
        """True if words have 64 bits."""
        return self.coding.wide

    def encode(self, numbers: np.ndarray) -> np.ndarray:
        """Return the words of int64 numbers, modulo 2^64 or, where words are not wide, 2^32."""
        if numbers.size != self.length:
            raise ProtocolError(f"this job has {self.length} numbers, not {numbers.size}")
        whole = numbers.reshape(-1).astype(np.int64, copy=False)
        # Wide words are the same bytes: thousands of simulated devices need not hold their numbers
        # twice.
        return whole.view(self.coding.word) if self.wide else whole.astype(self.coding.word)

    def decode(self, total: np.ndarray) -> np.ndarray:
        """The numbers behind a sum of words."""
        if len(total) != self.length:
            raise ProtocolError(f"this job has {self.length} numbers, its sum has {len(total)}")
        return self.coding.decode(total)


def counts_layout(plan: Plan, participants: int) -> SumLayout:
    """The layout of ItemCounts over so many devices."""
    return _layout(plan.n_items, participants, wide=False)


def gradients_layout(plan: Plan, participants: int) -> SumLayout:
    """The layout of a round's gradients."""
    return _layout(plan.n_items * plan.n_factors, participants, wide=True)


def popularity_layout(survey: Survey, participants: int) -> SumLayout:
    """The layout of Popularity."""
    return _layout(survey.n_items, participants, wide=True)


def survey_layout(survey: Survey, participants: int, heads: int = 0) -> SumLayout:
    """The layout of a SumContribution; with taste labels so many items are in it twice."""
    return _layout(2 * (survey.n_items + heads) + 1, participants, wide=True)


def survey_numbers(contribution: SumContribution) -> np.ndarray:
    """A contribution as one vector."""
    return np.concatenate(
        [contribution.scores, contribution.weights, [np.int64(contribution.total)]]
    )


def counts_from_sum(plan: Plan, participants: int, total: np.ndarray) -> ItemCounts:
    """The counts over all devices of a sum."""
    return ItemCounts(counts=counts_layout(plan, participants).decode(total))


def gradients_from_sum(plan: Plan, number: int, participants: int, total: np.ndarray) -> Gradients:
    """The gradients of a round over all devices of a sum."""
    units = gradients_layout(plan, participants).decode(total)
    return Gradients(number=number, sums=from_grid(units).reshape(plan.n_items, plan.n_factors))


def popularity_from_sum(survey: Survey, participants: int, total: np.ndarray) -> Popularity:
    """Return the weight of each item over all devices of a sum."""
    return Popularity(weights=popularity_layout(survey, participants).decode(total))


def contribution_from_sum(
    survey: Survey, participants: int, total: np.ndarray, heads: int = 0
) -> SumContribution:
    """The answer to a survey over all devices of a sum."""
    numbers = survey_layout(survey, participants, heads).decode(total)
    n = survey.n_items + heads
    return SumContribution(
        scores=numbers[:n], weights=numbers[n : 2 * n], total=int(numbers[2 * n])
    )


def _layout(length: int, participants: int, *, wide: bool) -> SumLayout:
    return SumLayout(
        length,
        IntegerCoding(
            IntegerCoding.largest_bound(participants, wide=wide), participants, wide=wide
        ),
    )
