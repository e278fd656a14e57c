"""The survey of a task: circuit and noise follow from it, so that devices can compare."""

from __future__ import annotations

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.coding import make_coding, make_ruler, sum_channels
from hdpmf.common.protocol.messages import SumContribution, Survey
from hdpmf.common.protocol.task import MOST_LEVELS, Noise, OneRating, Task
from hdpmf.errors import ConfigError, ProtocolError


def survey_circuit(survey: Survey) -> tuple[OneRating, tuple[Noise, ...]]:
    """The circuit and the noise that a survey asks for. Whoever sends a report compares."""
    scale = RatingScale(survey.scale_low, survey.scale_high, survey.scale_step)
    if survey.design == "L":
        raise ProtocolError("two servers sum; a survey by single bits has no sums")
    coding = make_coding(survey.coding, scale, survey.epsilon)
    channels = sum_channels(coding, survey.epsilon)
    levels = len(coding.entries)
    if levels > MOST_LEVELS:
        raise ConfigError(
            f"two servers take scales of 2 to {MOST_LEVELS} levels, this one has "
            f"{levels:,}; state a coarser step"
        )
    circuit = OneRating(
        items=survey.n_items,
        codes=tuple(coding.entries.tolist()),
        rulers=tuple(make_ruler(scale).entries.tolist()),
    )
    scales = (
        (survey.n_items, channels.score.scale),
        (survey.n_items, channels.weight.scale),
        (1, channels.total.scale),
    )
    noise = tuple(
        Noise(entries=n, scale=f"{each.numerator}/{each.denominator}") for n, each in scales
    )
    return circuit, noise


def check_survey_task(task: Task) -> Survey:
    """Return the survey of a task; ProtocolError unless its circuit and noise are the survey's."""
    if task.survey is None:
        raise ProtocolError(
            "refused: the task is no survey, so that nobody can say what its noise is worth"
        )
    try:
        asked = survey_circuit(task.survey)
    except ConfigError as error:
        raise ProtocolError(f"refused: {error}") from error
    if asked != (task.circuit, task.noise):
        raise ProtocolError("refused: the task's circuit or noise is not what its survey asks for")
    return task.survey


def answer_of(task: Task, numbers: list[int]) -> SumContribution:
    """The answer to the survey: both servers' sums together, with both noises."""
    n = check_survey_task(task).n_items
    if len(numbers) != task.circuit.entries:
        raise ProtocolError(
            f"a sum of this task has {task.circuit.entries} numbers, not {len(numbers)}"
        )
    limit = 1 << 62
    whole = np.array([min(max(number, -limit), limit) for number in numbers], np.int64)
    return SumContribution(scores=whole[:n], weights=whole[n : 2 * n], total=int(whole[2 * n]))
