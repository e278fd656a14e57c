"""Asking devices one by one: who takes part, and contributions that the recommender sees."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from hdpmf.common.net import RecommenderTransport
from hdpmf.common.protocol import Message
from hdpmf.errors import ConfigError, FederationError
from hdpmf.untrusted.service.aggregation import Accumulator, Aggregation, Job, JobResult
from hdpmf.untrusted.service.aggregation.device_client import DeviceClient
from hdpmf.untrusted.service.outcome import refusals_in_short

if TYPE_CHECKING:
    from hdpmf.untrusted.service.run import Run

T = TypeVar("T")


class Direct(Aggregation):
    """Devices answer the recommender, which sees what each of them contributes.

    Args:
        transport: To devices.
        meanwhile: Called between exchanges and while waiting.
    """

    def __init__(
        self,
        transport: RecommenderTransport,
        *,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self._transport = transport
        self.meanwhile = meanwhile

    def attach(self, run: Run) -> None:
        """Work for this run from now on."""
        if run.settings.view == "two-servers":
            raise ConfigError(
                "sums by two servers come from a task that they are given, not from asking devices"
            )
        super().attach(run)
        self.channel = DeviceClient(self._transport, run.id, run.metrics)

    def gather(self) -> None:
        """Find devices that agree to the terms, until all have been asked or the time is over.

        A device that is silent or busy has had its turn once there are enough. Until then it is
        asked again: an owner may be about to answer.
        """
        run = self.run
        if run.checkpoint.stage != "gather":
            return
        run.stage("waiting for devices")
        agreed = set(run.checkpoint.agreed)
        refused = set[str]()
        mute = set[str]()
        begin = time.monotonic()
        patience = run.pace.gather * run.pace.attempts
        while True:
            asked = (self.channel.present() & run.cohort) - agreed - refused
            agreed |= self._invite(asked, refused)
            mute |= asked - agreed - refused
            waited = time.monotonic() - begin
            everyone = agreed | refused >= run.cohort
            if run.enough(agreed) and (
                agreed | refused | mute >= run.cohort or waited >= run.pace.gather
            ):
                break
            if everyone or waited >= patience:
                run.save()  # why devices refused, which the next attempt counts on
                raise FederationError(
                    f"{run.enrolled.count_users(agreed)} users agreed to take part ({len(agreed)} "
                    "devices; "
                    f"{len(refused)} refused, {len(run.cohort - agreed - refused)} were silent or "
                    "busy; refusals: "
                    f"{refusals_in_short(run.metrics.refusals_of_run)}), and the run needs "
                    f"{run.settings.minimum}",
                    "The run is kept, and tried again while it is served: have more devices take "
                    "part (hdpmf recommender status says why devices refuse)",
                )
            self.meanwhile()
            run.sleep(run.pace.pause)
        run.checkpoint.agreed = tuple(sorted(agreed))
        run.checkpoint.stage = "open"
        run.save()
        run.log(
            f"{len(agreed)} devices take part ({run.enrolled.count_users(agreed)} users), "
            f"{len(refused)} refused"
        )

    def collect(self, job: Job[T]) -> JobResult[T]:
        """Return the sum of contributions, in memory that does not grow with devices."""
        if job.accumulator is None:
            raise ConfigError(
                "the numbers of this job are summed before anybody sees them; they are not "
                "sent in clear"
            )
        return self.ask(job.devices, job.number, job.offer, job.accumulator())

    def ask(
        self,
        asked: Collection[str],
        number: int,
        offer: Message | bytes,
        accumulator: Accumulator[T],
    ) -> JobResult[T]:
        """Ask devices until enough have given an answer that the accumulator takes.

        A device that is silent, refuses or gives impossible numbers is left out. With too few,
        missing devices are asked again after a pause, a bounded number of times.
        """
        run = self.run
        answered: set[str] = set()
        for attempt in range(run.pace.attempts):
            if attempt:
                run.sleep(run.pace.pause)
            missing = self._wait_for(asked, answered) - answered
            replies = self.channel.ask(
                missing, number, offer, run.pace.deadline, *accumulator.expected
            )
            for device, answer in replies:
                reason = accumulator.take(device, answer)
                if reason is None:
                    answered.add(device)
                else:
                    self.channel.refused(reason)
            if run.enough(answered):
                users = run.enrolled.count_users(answered)
                return JobResult(accumulator.total(answered), frozenset(answered), users, 1.0)
            run.log(
                f"{run.enrolled.count_users(answered)} of {run.settings.minimum} users needed "
                "have answered"
            )
        raise self._too_few(answered, number)

    def _invite(self, devices: frozenset[str], refused: set[str]) -> set[str]:
        """Offer the terms; return those that agree."""
        if not devices:
            return set()
        run = self.run
        agreed = self.channel.tell(devices, 0, run.terms, run.pace.deadline)
        refused |= (self.channel.heard & devices) - agreed - self.channel.busy
        return agreed

    def _wait_for(self, devices: Collection[str], besides: Collection[str] = ()) -> frozenset[str]:
        """Return the connected devices; wait up to a deadline for enough of them.

        After a restart of the recommender nobody is there for a while.
        """
        run = self.run
        self.meanwhile()
        wanted = frozenset(devices)
        here = self.channel.present() & wanted
        looks = math.ceil(run.pace.deadline / run.pace.poll_seconds)
        while looks > 0 and not run.enough(here.union(besides)):
            run.sleep(run.pace.poll_seconds)
            here = self.channel.present() & wanted
            looks -= 1
        return here

    def _too_few(self, devices: Collection[str], number: int) -> FederationError:
        run = self.run
        run.save()
        step = f"round {number}" if number else "the opening"
        return FederationError(
            f"{step} stopped after {run.pace.attempts} attempts: "
            f"{run.enrolled.count_users(devices)} users answered "
            f"and {run.settings.minimum} are needed; start it again to continue from there"
        )
