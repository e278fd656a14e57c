"""A task for two servers, as a device reads it: everything is checked before the device agrees to report."""

from __future__ import annotations

from dataclasses import dataclass

from hdpmf.device.declined import DeclinedError
from hdpmf.device.pair import pinned_servers
from hdpmf.device.paying import check_policy
from hdpmf.device.store import DeviceStore
from hdpmf.device.survey import check_survey
from hdpmf.errors import PrivacyError, ProtocolError
from hdpmf.protocol import Survey, Terms, decode
from hdpmf.protocol.survey_task import check_stated, terms_of
from hdpmf.protocol.task import Part, Task, task_id

FARTHEST = 92 * 86_400
"""Seconds: a task that ends later than this from now is not agreed to, so that no promise binds a device for long."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A task whose circuit and noise are those that its survey asks for.

    Attributes:
        id: Digest of the task as it was published.
        terms: What a run by it asks for, by this device's own reading.
    """

    id: bytes
    task: Task
    survey: Survey
    part: Part
    terms: Terms

    @property
    def number(self) -> int:
        """Which of the survey's tasks it is."""
        return 1 if self.part == "labels" else 0


def read_task(document: bytes) -> ReadTask:
    """The task in a document; ProtocolError unless it is one that says what its survey asks for."""
    task = decode(document)
    if not isinstance(task, Task):
        raise ProtocolError(f"refused: a {type(task).__name__} is no task")
    survey, part = check_stated(task)
    terms = terms_of(task, survey)
    check_survey(survey, terms)
    return ReadTask(task_id(document), task, survey, part, terms)


def check_task(store: DeviceStore, read: ReadTask) -> None:
    """Refuse a task that the device's owner has not agreed to, or that is about other items or another scale.

    Nothing in here looks at ratings, so that a refusal says nothing about them.
    """
    policy, task, survey = store.policy, read.task, read.survey
    try:
        policy.check_servers(task.servers)
        pair = pinned_servers(store)
        if pair is not None and pair != task.servers:  # trusted here, but as the servers of another recommender
            raise PrivacyError("the task is for other servers than those that are pinned of this recommender")
    except PrivacyError as error:
        raise DeclinedError("policy", str(error)) from error
    check_policy(policy, read.terms)
    catalogue = store.pinned_catalogue
    if catalogue is None or survey.catalogue != catalogue.known.fingerprint:
        raise DeclinedError("catalogue", "the task is about another item table than the pinned one")
    scale, n_items = catalogue.known.scale, len(catalogue.positions)
    asked = (survey.n_items, survey.scale_low, survey.scale_high, survey.scale_step)
    if asked != (n_items, scale.low, scale.high, scale.step):
        raise ProtocolError(f"refused: the task is for other items, or another scale than {scale}")
    if task.grouping is not None and len(task.grouping.scores) != n_items:
        raise ProtocolError("refused: the scores for labels are about another item table than the pinned one")


def check_period(task: Task, now: float, until: int) -> None:
    """Refuse a task at the wrong time, or a second one for a time that another was agreed to for.

    Args:
        task: What is asked.
        now: The time here.
        until: When the last task ends that this device agreed to with this recommender.
    """
    if task.end <= now:
        raise ProtocolError("refused: the time of the task is over")
    if task.end - now > FARTHEST:
        raise ProtocolError(f"refused: the task ends more than {FARTHEST // 86_400} days from now")
    if task.begin < until:
        raise ProtocolError("refused: there is one task at a time; this device agreed to another one for that time")
