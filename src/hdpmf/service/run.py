"""What every run is made of: ask many devices, take in what they say, and go on when there are enough."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from hdpmf.errors import ConfigError, FederationError
from hdpmf.protocol import AnyCatalogue, Message, Terms
from hdpmf.protocol.catalogue import KnownItems, known_items
from hdpmf.protocol.enrolled import Enrolled
from hdpmf.protocol.federation import RUN_BYTES
from hdpmf.service.channel import RunChannel
from hdpmf.service.metrics import Metrics
from hdpmf.service.refusals import refusals_in_short
from hdpmf.service.run_files import Checkpoint, RunFiles
from hdpmf.service.settings import Pace, RunSettings
from hdpmf.transport import RecommenderTransport

Take = Callable[[str, Message], str | None]
"""Takes a device's answer in, or gives the reason why it cannot be right."""


def no_log(line: str) -> None:
    """Nobody wants to know."""


@dataclass(kw_only=True)
class FederatedRun:
    """One run, as its steps see it.

    Attributes:
        table: The items, as devices get them.
        enrolled: Who may take part; it does not change during a run.
        id: The run's id; a new one where not given.
        only: The devices that are asked; everyone on the roster where not given.
        files: Where checkpoints go; nowhere where not given.
        pace: How long to wait.
        log: Told what happens, in lines for people.
        sleep: For tests.
        meanwhile: Called between exchanges, and again and again while devices are waited for, with those that take
            part: others may be served.
        cohort: The devices that are asked.
        known: The items, as the recommender computes with them.
        channel: Messages and replies.
        checkpoint: How far the run is.
    """

    settings: RunSettings
    table: AnyCatalogue
    enrolled: Enrolled
    transport: RecommenderTransport
    id: bytes = field(default_factory=lambda: secrets.token_bytes(RUN_BYTES))
    only: frozenset[str] | None = None
    files: RunFiles = field(default_factory=RunFiles)
    pace: Pace = field(default_factory=Pace)
    metrics: Metrics = field(default_factory=Metrics)
    log: Callable[[str], None] = no_log
    sleep: Callable[[float], None] = time.sleep
    meanwhile: Callable[[Collection[str]], object] = lambda at_work: None

    def __post_init__(self) -> None:
        if self.settings.view == "two-servers":
            raise ConfigError("sums by two servers come from a task that they are given, not from asking devices")
        self.cohort = frozenset(self.enrolled.users) if self.only is None else self.only
        self.known: KnownItems = known_items(self.table)
        self.channel = RunChannel(self.transport, self.id, self.metrics)
        self.checkpoint: Checkpoint = self.files.load()
        metrics = self.metrics
        metrics.run_begins(self.id, self.checkpoint.refusals)
        metrics.method, metrics.rounds, metrics.number = self.settings.method, self.settings.rounds, 0

    @property
    def terms(self) -> Terms:
        """What devices agree to."""
        users = self.enrolled.users
        asked = [users[device] for device in self.cohort]
        return self.settings.terms(self.known.fingerprint, users.values(), asked)

    def save(self) -> None:
        """Keep how far the run is."""
        self.checkpoint.refusals = self.metrics.refusals_of_run
        self.files.save(self.checkpoint)

    def stage(self, words: str) -> None:
        """Say what is under way."""
        self.metrics.stage = words
        self.log(words)

    def enough(self, devices: Collection[str]) -> bool:
        """Whether these devices count for the smallest number of users allowed."""
        return self.settings.counted(self.enrolled.users[device] for device in devices) >= self.settings.minimum

    def gather(self) -> None:
        """Find devices that agree to the terms, until all have been asked or the time is over.

        Who is connected and says nothing, or cannot in this moment, has had its turn: once there are enough, it is not
        waited for. As long as there are not, it is asked again: an owner may be about to answer.
        """
        if self.checkpoint.stage != "gather":
            return
        self.stage("waiting for devices")
        agreed, refused, mute = set(self.checkpoint.agreed), set[str](), set[str]()
        begin = time.monotonic()
        patience = self.pace.gather * self.pace.attempts
        while True:
            asked = (self.channel.present() & self.cohort) - agreed - refused
            agreed |= self._invite(asked, refused)
            mute |= asked - agreed - refused
            waited = time.monotonic() - begin
            everyone = agreed | refused >= self.cohort
            if self.enough(agreed) and (agreed | refused | mute >= self.cohort or waited >= self.pace.gather):
                break
            if everyone or waited >= patience:
                self.save()  # why devices refused, which the next attempt counts on
                raise FederationError(
                    f"{self.enrolled.count_users(agreed)} users agreed to take part ({len(agreed)} devices; "
                    f"{len(refused)} refused, {len(self.cohort - agreed - refused)} were silent or busy; refusals: "
                    f"{refusals_in_short(self.metrics.refusals_of_run)}), and the run needs {self.settings.minimum}; "
                    "start it again when more devices are there (hdpmf recommender status says why devices refuse)"
                )
            self.serve_others()
            self.sleep(self.pace.pause)
        self.checkpoint.agreed = tuple(sorted(agreed))
        self.checkpoint.stage = "open"
        self.save()
        self.log(f"{len(agreed)} devices take part ({self.enrolled.count_users(agreed)} users), {len(refused)} refused")

    def serve_others(self) -> None:
        """Between two exchanges: devices that take no part in the run may have something, too."""
        self.meanwhile(self.checkpoint.agreed)

    def _invite(self, devices: frozenset[str], refused: set[str]) -> set[str]:
        """Call, catalogue and terms; those that agree."""
        if not devices:
            return set()
        ready, declined = self.channel.send_items(devices, self.table, self.known.fingerprint, self.pace.deadline)
        refused |= declined
        if not ready:
            return set()
        agreed = self.channel.tell(ready, 0, self.terms, self.pace.deadline)
        refused |= (self.channel.heard & ready) - agreed - self.channel.busy
        return agreed

    def collect(
        self, devices: Collection[str], number: int, message: Message | bytes, take: Take, *expected: type
    ) -> set[str]:
        """Ask devices until enough have given an answer that ``take`` takes; those that did.

        Who is silent, refuses or gives what cannot be right is left out. With too few, those that are missing are
        asked again after a pause, a bounded number of times.

        Raises:
            FederationError: Still too few. The checkpoint is where it was.
        """
        answered: set[str] = set()
        for attempt in range(self.pace.attempts):
            if attempt:
                self.sleep(self.pace.pause)
            missing = self.wait_for(devices, answered) - answered
            for device, answer in self.channel.ask(missing, number, message, self.pace.deadline, *expected):
                reason = take(device, answer)
                if reason is None:
                    answered.add(device)
                else:
                    self.channel.refused(reason)
            if self.enough(answered):
                return answered
            self.log(f"{self.enrolled.count_users(answered)} of {self.settings.minimum} users needed have answered")
        raise self.too_few(answered, number)

    def wait_for(self, devices: Collection[str], besides: Collection[str] = ()) -> frozenset[str]:
        """Those of the devices that are connected; waits up to a deadline for enough of them to come back.

        After a restart of the recommender nobody is there for a while.
        """
        self.serve_others()
        wanted = frozenset(devices)
        here = self.channel.present() & wanted
        looks = math.ceil(self.pace.deadline / self.pace.look)
        while looks > 0 and not self.enough(here.union(besides)):
            self.sleep(self.pace.look)
            here = self.channel.present() & wanted
            looks -= 1
        return here

    def surplus(self, devices: Collection[str]) -> float:
        """How many times the whole noise is in a sum: everybody adds a share, and some of them make it already."""
        users = self.enrolled.users
        return self.settings.counted(users[device] for device in devices) / self.settings.sharing(users.values())

    def impossible(self, changed: int, devices: Collection[str]) -> None:
        """Say that numbers of a sum had to be brought to what is possible; whoever spoilt it is hidden."""
        if changed:
            self.metrics.impossible += changed
            self.checkpoint.impossible += changed
            self.log(
                f"{changed} numbers of the sum cannot come from {self.enrolled.count_users(devices)} users and were "
                "brought to what can: a device has sent wrong numbers, and a secure sum hides which"
            )

    def too_few(self, devices: Collection[str], number: int) -> FederationError:
        """The error that ends a run for now."""
        self.save()
        step = f"round {number}" if number else "the opening"
        return FederationError(
            f"{step} stopped after {self.pace.attempts} attempts: {self.enrolled.count_users(devices)} users answered "
            f"and {self.settings.minimum} are needed; the run is kept and goes on from there when it is started again"
        )

    def deliver(self, devices: Collection[str], number: int, result: Message | bytes, lists: bytes = b"") -> None:
        """Give the result to those of the devices that are here; the run is done then, whoever took it."""
        here = self.channel.present() & set(devices)
        took = self.channel.give(here, number, result, lists, self.pace.deadline)
        self.checkpoint.delivered = tuple(sorted(took | set(self.checkpoint.delivered)))
        self.checkpoint.stage = "done"
        self.save()
