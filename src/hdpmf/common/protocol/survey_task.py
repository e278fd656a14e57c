"""A survey as tasks for two servers: circuit and noise that it asks for, and the answer in sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.coding import Channels, Coding, make_coding, make_ruler, sum_channels
from hdpmf.common.protocol.federation import Terms
from hdpmf.common.protocol.oneround import Grouping, Popularity, SumContribution, Survey
from hdpmf.common.protocol.task import MOST_LEVELS, Noise, OneRating, Part, Task
from hdpmf.errors import ConfigError, ProtocolError


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
