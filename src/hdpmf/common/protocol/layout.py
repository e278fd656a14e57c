"""The layout of sums, by masks and by two servers: the whole numbers of a job, in order.

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

For two servers a survey is a task: its circuit and noise follow from the survey, so that whoever
sends a report can compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hdpmf.common.aggregation.masks.primitives import IntegerCoding
from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.coding import Channels, Coding, make_coding, make_ruler, sum_channels
from hdpmf.common.protocol.federation import Terms
from hdpmf.common.protocol.messages import Gradients, ItemCounts, Plan, from_grid
from hdpmf.common.protocol.oneround import Grouping, Popularity, SumContribution, Survey
from hdpmf.common.protocol.task import MOST_LEVELS, Noise, OneRating, Part, Task
from hdpmf.errors import ConfigError, ProtocolError


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


def survey_circuit(
    survey: Survey, part: Part, grouping: Grouping | None = None
) -> tuple[OneRating, tuple[Noise, ...]]:
    """The circuit and the noise that a survey asks for. Whoever sends a report compares."""
    coding, channels = _coded(survey)
    ruler = make_ruler(coding.scale)
    levels = len(coding.entries)
    if levels > MOST_LEVELS:
        raise ConfigError(
            f"two servers take scales of 2 to {MOST_LEVELS} levels, this one has "
            f"{levels:,}; state a coarser step"
        )
    if (part == "whole") == survey.labels or (part == "labels") != (grouping is not None):
        raise ProtocolError(
            "a survey with taste labels is two tasks, counts and labels; one without is a whole"
        )
    none = (0,) * levels
    if part == "counts":
        popularity = (channels.popularity or channels.weight).scale
        items = survey.n_items
        return OneRating(items=items, codes=none, rulers=none), _noise(
            items, Fraction(0), popularity, Fraction(0)
        )
    items = survey.n_items + (0 if grouping is None else len(grouping.heads))
    total = channels.total
    circuit = OneRating(
        items=items,
        codes=tuple(coding.entries.tolist()),
        rulers=none if total is None else tuple(ruler.entries.tolist()),
    )
    scale = Fraction(0) if total is None else total.scale
    return circuit, _noise(items, channels.score.scale, channels.weight.scale, scale)


def check_survey_task(task: Task) -> tuple[Survey, Part]:
    """Return the survey of a task; ProtocolError unless its circuit and noise are the survey's."""
    if task.survey is None or task.part is None:
        raise ProtocolError(
            "refused: the task is no survey, so that nobody can say what its noise is worth"
        )
    try:
        asked = survey_circuit(task.survey, task.part, task.grouping)
    except ConfigError as error:
        raise ProtocolError(f"refused: {error}") from error
    if asked != (task.circuit, task.noise):
        raise ProtocolError("refused: the task's circuit or noise is not what its survey asks for")
    return task.survey, task.part


def terms_of(task: Task, survey: Survey) -> Terms:
    """Return the terms of a run by a task, which devices work out and nobody sends."""
    return Terms(
        method="hdp-sum",
        view="two-servers",
        epsilon=survey.epsilon,
        rounds=2 if survey.labels else 1,
        catalogue=survey.catalogue,
        users=task.minimum,
        minimum=task.minimum,
        sharing=1,
        labels=survey.labels,
    )


def answer_of(task: Task, numbers: list[int]) -> SumContribution | Popularity:
    """The answer to the survey: both servers' sums together, with both noises."""
    _, part = check_survey_task(task)
    entries = task.circuit.entries
    if len(numbers) != entries:
        raise ProtocolError(f"a sum of this task has {entries} numbers, not {len(numbers)}")
    limit = 1 << 62
    whole = np.array([min(max(number, -limit), limit) for number in numbers], np.int64)
    n = entries // 2
    if part == "counts":
        return Popularity(weights=whole[n : 2 * n])
    return SumContribution(scores=whole[:n], weights=whole[n : 2 * n], total=int(whole[2 * n]))


def _coded(survey: Survey) -> tuple[Coding, Channels]:
    scale = RatingScale(survey.scale_low, survey.scale_high, survey.scale_step)
    if survey.design == "L":
        raise ProtocolError("two servers sum; a survey by single bits has no sums")
    coding = (
        make_ruler(scale)
        if survey.design == "S"
        else make_coding(survey.coding, scale, survey.epsilon)
    )
    return coding, sum_channels(survey.design, coding, survey.epsilon, labels=survey.labels)


def _noise(items: int, score: Fraction, weight: Fraction, total: Fraction) -> tuple[Noise, ...]:
    scales = ((items, score), (items, weight), (1, total))
    return tuple(
        Noise(entries=n, scale=f"{scale.numerator}/{scale.denominator}") for n, scale in scales
    )
