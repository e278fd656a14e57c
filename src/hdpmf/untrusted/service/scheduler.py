"""The schedule: whether the next run would bring enough, and with which settings it would begin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hdpmf.common.privacy.coding import WEIGHT_SCALE, WEIGHT_UNITS
from hdpmf.common.protocol import SumContribution
from hdpmf.errors import ConfigError, ProtocolError
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.service.settings import seconds

GROWTH = 0.5
"""The part by which a run should make the released weight grow."""

PAUSE = 7 * 86_400.0
"""Seconds that are between two runs at least."""

PATIENCE = 182 * 86_400.0
"""From so many seconds after a run on, less growth is enough: half of it after twice the time."""

_CLEAR = 2.0  # a weight is told from its noise if it is above so many deviations


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The schedule of runs that begin by themselves: none by default.

    Attributes:
        every: Time after the end of the last run, as 7d.
        rule: Begin when ``worth_a_run`` says so.
    """

    every: str | None = None
    rule: bool = False

    def __post_init__(self) -> None:
        if self.rule and self.every is not None:
            raise ConfigError("a schedule has either every or rule; drop one of them")
        if self.seconds == 0:
            raise ConfigError("a run after every 0 s would never end; write it as 7d")

    @property
    def seconds(self) -> int | None:
        """Between the end of a run and the next one, where it is a time."""
        return None if self.every is None else seconds(self.every)

    @property
    def never(self) -> bool:
        """True if runs begin only by hand."""
        return self.every is None and not self.rule


@dataclass(frozen=True, slots=True)
class PastRun:
    """Public facts about a run.

    Attributes:
        at: Unix time of its end.
        devices: Enrolled then.
        weight: Released weight of all items; noise can make it negative.
        deviation: Of the noise in that.
    """

    at: float
    devices: int
    weight: float
    deviation: float

    @classmethod
    def of(cls, survey_answer: SurveyAnswer, *, at: float, devices: int) -> PastRun:
        """A run by what it released."""
        survey, answer = survey_answer.survey, survey_answer.answer
        if not isinstance(answer, SumContribution):
            raise ProtocolError("only sums have noise on weights")
        scale = WEIGHT_SCALE / survey.epsilon
        weight = float(answer.weights[: survey.n_items].sum()) / WEIGHT_UNITS
        return cls(
            at, devices, weight, scale * math.sqrt(2.0 * survey_answer.noises * survey.n_items)
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision about a run now.

    Attributes:
        expected: New weight that the rule expects, or None where it cannot say.
        needed: Smallest weight that is worth a run, or None.
    """

    worth: bool
    reason: str
    expected: float | None = None
    needed: float | None = None


def worth_a_run(
    past: Sequence[PastRun],
    *,
    now: float,
    opened: float,
    devices: int,
    minimum: int,
) -> Verdict:
    """Decide whether the next run would bring enough.

    Args:
        past: Runs so far whose sums are combined, oldest first.
        now: Unix time.
        opened: Unix time at which the service was set up.
        devices: Enrolled now.
        minimum: The fewest that a sum may be over.
    """
    if devices < minimum:
        return Verdict(False, f"{devices} devices are enrolled and a sum needs {minimum}")
    if not past:
        return Verdict(True, "nothing was released yet")
    last = past[-1]
    since = now - last.at
    if since < PAUSE:
        return Verdict(False, "the last run was too short a time ago")
    held = sum(run.weight for run in past)
    enough = GROWTH * min(1.0, PATIENCE / max(since, 1.0))
    if held <= _CLEAR * math.hypot(*(run.deviation for run in past)):
        grown = devices >= (1 + enough) * last.devices
        return Verdict(
            grown, f"released weights are mostly noise; {last.devices} devices then, {devices} now"
        )
    expected = _newcomers(past, devices) + _pace(past, opened) * since
    # Less weight than the noise on it is not worth a run, however little there is so far.
    needed = max(enough * held, _CLEAR * last.deviation)
    worth = expected >= needed
    compared = "at least" if worth else "less than"
    reason = (
        f"about {expected:.0f} of new weight is expected, {compared} the {needed:.0f} "
        "that make a run worth it"
    )
    return Verdict(worth, reason, expected, needed)


def _newcomers(past: Sequence[PastRun], devices: int) -> float:
    """Estimate the weight on devices that are new since these runs."""
    held = max(sum(run.weight for run in past), 0.0)
    return held / max(past[-1].devices, 1) * max(devices - past[-1].devices, 0)


def _pace(past: Sequence[PastRun], opened: float) -> float:
    """New weight per second from devices that were there before."""
    last = past[-1]
    if len(past) == 1:
        # A first run holds what people had rated before there was a service, so that it tells
        # nothing of their pace. As long again as it took to come is what a second run waits for, if
        # nobody joins.
        return GROWTH * last.weight / max(last.at - opened, 1.0)
    before = past[:-1]
    own = last.weight - _newcomers(before, last.devices)
    return max(own, 0.0) / max(last.at - before[-1].at, 1.0)
