"""Masked sums over devices: the recommender sees only the sum, and resumes one after a kill."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from hdpmf.common.aggregation.masks import (
    SecureSumServer,
    ToDevice,
    ToRecommender,
    decode_to_device,
    decode_to_recommender,
    encode,
    propose,
)
from hdpmf.common.aggregation.masks.messages import SumPlan
from hdpmf.common.aggregation.masks.plan import MIN_FRACTION, safe_sizes, smallest_threshold
from hdpmf.common.protocol import Message, Ready
from hdpmf.common.protocol.catalogue import bound_to
from hdpmf.common.protocol.enrolment import devices_needed
from hdpmf.common.protocol.layout import SumLayout
from hdpmf.errors import ConfigError, FederationError, SecureSumError
from hdpmf.untrusted.service.aggregation import Accumulator, Job, JobResult, Summation
from hdpmf.untrusted.service.aggregation.direct import Direct
from hdpmf.untrusted.service.run_files import CLOSED, SumLog

if TYPE_CHECKING:
    from hdpmf.untrusted.service.run import Run

T = TypeVar("T")
_VECTORS_ASKED = 3  # steps: keys, shares, vectors, confirmations, unmasking


class SumBrokenOffError(SecureSumError):
    """A sum that broke off.

    Attributes:
        spent: Devices may have sent their masked vectors, and will not put the same numbers into
            another sum.
    """

    def __init__(self, message: str, *, spent: bool) -> None:
        super().__init__(message)
        self.spent = spent


@dataclass(frozen=True, slots=True, repr=False)
class MaskedSum:
    """A sum that came about.

    Attributes:
        total: The sum, in words.
        devices: Contributors.
        participants: Number of devices that were asked; the layout of the words depends on it.
    """

    total: np.ndarray
    devices: frozenset[str]
    participants: int


class _Readiness(Accumulator[None]):
    """Hears from devices whose numbers are ready for the sum."""

    expected = (Ready,)

    def __init__(self, number: int) -> None:
        self._number = number

    def take(self, device: str, message: Message) -> str | None:
        """Take a device's word that it is ready for this job."""
        return (
            None
            if isinstance(message, Ready) and message.number == self._number
            else "out-of-round"
        )

    def total(self, devices: Collection[str]) -> None:
        """Return nothing: no number has been sent yet."""


class Masks(Direct):
    """Devices mask their contributions, and only a sum over enough of them can be read."""

    def surplus(self, devices: Collection[str]) -> float:
        """Return how many times the whole noise is in a sum, to which every device adds a share."""
        settings = self.run.settings
        users = self.run.enrolled.users
        return settings.counted(users[device] for device in devices) / settings.sharing(
            users.values()
        )

    def collect(self, job: Job[T]) -> JobResult[T]:
        """Return the masked sum; retry one that breaks off before anyone has sent any number.

        Raises:
            SumBrokenOffError: It broke off when numbers were sent; the job cannot be tried again.
            FederationError: It broke off before that, too often. The run can go on later.
        """
        run = self.run
        if job.summation is None:
            raise ConfigError("the numbers of this job are not made for a sum")
        for attempt in range(run.pace.attempts):
            if attempt:
                run.sleep(run.pace.pause)
            under_way = attempt == 0 and _under_way(run, job.number)
            try:
                summed = self._sum(job, job.summation, None if under_way else self._ready(job))
            except SumBrokenOffError as error:
                if error.spent and (job.number == 0 or run.settings.one_round):
                    raise SumBrokenOffError(
                        f"{error}. Devices do not put the same numbers into a second sum, so this "
                        "run cannot go on: "
                        "give it up and begin a new one",
                        spent=True,
                    ) from error
                if error.spent:
                    raise
                run.files.drop_sum_log(job.number)
                if attempt == run.pace.attempts - 1:
                    raise FederationError(
                        f"the secure sum of job {job.number} broke off {run.pace.attempts} times "
                        "before anything was "
                        f"sent, the last time because: {error}",
                        "The run is kept, and tried again while it is served: have more devices "
                        "take part",
                    ) from error
                run.log(f"the secure sum broke off and is tried again: {error}")
            else:
                value = job.summation.read(summed.participants, summed.total)
                users = run.enrolled.count_users(summed.devices)
                return JobResult(value, summed.devices, users, self.surplus(summed.devices))
        raise FederationError("a secure sum needs at least one attempt")

    def forget(self, number: int) -> None:
        """Drop the log of a sum whose answer is in the checkpoint."""
        self.run.files.drop_sum_log(number)

    def _ready(self, job: Job[T]) -> frozenset[str]:
        """Ask devices to get ready; return those that are."""
        honest = set(job.devices) - set(self.run.checkpoint.barred)
        return (
            self.ask(honest, job.number, job.offer, _Readiness(job.number)).devices or frozenset()
        )

    def _sum(
        self, job: Job[T], summation: Summation[T], devices: Collection[str] | None
    ) -> MaskedSum:
        """Sum these devices' numbers of a job; None resumes a sum that is under way.

        Raises:
            SumBrokenOffError: There is no sum. Everything that devices sent stays masked.
        """
        run = self.run
        with closing(run.files.sum_log(job.number)) as log:
            stored, records = log.read()
            if stored is None:
                plan = _propose(run, devices or (), summation.layout)
                log.begin(encode(plan))
            else:
                plan = _stored_plan(stored)
            session = _Session(plan, self, log)
            session.repeat(records)
            return session.conduct(job.number)


def _under_way(run: Run, number: int) -> bool:
    """Return whether the log has an unfinished sum of this job."""
    with closing(run.files.sum_log(number)) as log:
        begun = log.read()[0] is not None
    if not begun:
        run.files.drop_sum_log(number)
    return begun


class _Session:
    """A SecureSumServer with its log."""

    def __init__(self, plan: SumPlan, masks: Masks, log: SumLog) -> None:
        self._masks = masks
        self._run = run = masks.run
        self._log = log
        self._steps = 0
        try:
            self._server = SecureSumServer(plan, run.enrolled.roster, bound_to(run.table))
            self._outgoing = self._advance()
        except SecureSumError as error:
            raise SumBrokenOffError(str(error), spent=False) from error

    def repeat(self, records: list[tuple[int, bytes]]) -> None:
        """Do again what the log says was done."""
        for device, data in records:
            if device == CLOSED:
                self._outgoing = self._advance()
            else:
                self._server.receive(device, decode_to_recommender(data))

    def conduct(self, number: int) -> MaskedSum:
        """The rest of the sum."""
        enrolled = self._run.enrolled
        server = self._server
        while self._outgoing:
            self._step(number)
            self._log.close_step()
            self._outgoing = self._advance()
        result = server.result
        self._bar(result.liars)
        devices = frozenset(map(enrolled.device, result.survivors))
        return MaskedSum(result.total, devices, server.plan.n_participants)

    def _step(self, number: int) -> None:
        """Send everyone a message; where too few answer, repeat it to the silent, up to a deadline.

        A device that was cut off may be back in a moment, and answers the same message with the
        same bytes.
        """
        run = self._run
        server = self._server
        channel = self._masks.channel
        spoke: set[str] = set()
        for look in range(math.ceil(run.pace.deadline / run.pace.poll_seconds)):
            if look:
                run.sleep(run.pace.poll_seconds)
            self._masks.meanwhile()
            waiting = {
                run.enrolled.device(index): self._outgoing[index] for index in server.waiting
            }
            here = channel.present() - spoke
            outgoing = {device: message for device, message in waiting.items() if device in here}
            if outgoing:
                for device, answer, data in channel.ask_in_sum(outgoing, number, run.pace.deadline):
                    self._take(run.enrolled.index(device), answer, data)
                spoke |= channel.heard
            answered = len(self._outgoing) - len(server.waiting)
            if answered >= server.plan.minimum or spoke >= waiting.keys():
                return

    def _take(self, index: int, answer: ToRecommender, data: bytes) -> None:
        try:
            self._server.receive(index, answer)
        except SecureSumError:
            self._masks.channel.refused("secure-sum")
        else:
            self._log.take(index, data)

    def _bar(self, liars: Collection[int]) -> None:
        """Bar devices that gave or dealt wrong shares; the run goes on without them."""
        run = self._run
        named = {run.enrolled.device(index) for index in liars} - set(run.checkpoint.barred)
        for device in sorted(named):
            self._masks.channel.refused("wrong-shares")
            run.log(
                f"device {device[:16]} gave or dealt wrong shares; it is asked for no more sums "
                "in this run"
            )
        if named:
            run.checkpoint.barred += tuple(sorted(named))
            run.save()

    def _advance(self) -> dict[int, ToDevice]:
        try:
            outgoing = self._server.advance()
        except SecureSumError as error:
            self._bar(self._server.liars)
            raise SumBrokenOffError(str(error), spent=self._steps >= _VECTORS_ASKED) from error
        self._steps += 1
        return outgoing


def _propose(run: Run, devices: Collection[str], layout: Callable[[int], SumLayout]) -> SumPlan:
    """A plan under which any sum that comes about is over enough users."""
    enrolled = run.enrolled
    n = len(devices)
    credits = [min(enrolled.users[device], run.settings.credit) for device in devices]
    needed = devices_needed(credits, run.settings.minimum)
    if needed is None or n < 3:
        raise SumBrokenOffError(f"{n} devices are too few for a secure sum", spent=False)
    words = layout(n)
    roster = len(enrolled.roster)
    neighbours, threshold = safe_sizes(n, roster, run.pace.neighbours)
    least = max(needed, smallest_threshold(n), threshold + 1, math.ceil(MIN_FRACTION * roster))
    try:
        return propose(
            enrolled.roster,
            words.length,
            participants=[enrolled.index(device) for device in devices],
            neighbours=neighbours,
            threshold=threshold,
            minimum=min(least, n),
            wide=words.wide,
        )
    except SecureSumError as error:
        raise SumBrokenOffError(str(error), spent=False) from error


def _stored_plan(data: bytes) -> SumPlan:
    plan = decode_to_device(data)
    if not isinstance(plan, SumPlan):
        raise SumBrokenOffError("the log of the sum does not begin with its plan", spent=True)
    return plan
