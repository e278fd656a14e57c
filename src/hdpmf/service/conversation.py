"""What every run is made of: ask many devices, take in what they say, and go on when there are enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hdpmf.errors import FederationError
from hdpmf.protocol import Accepted, Call, CatalogueTable, Here, Message, Terms
from hdpmf.protocol.catalogue import KnownItems
from hdpmf.service.enrolment import Enrolled
from hdpmf.service.mailroom import Mailroom
from hdpmf.service.run_files import Checkpoint, RunFiles
from hdpmf.service.settings import Pace, RunSettings

Take = Callable[[str, Message], str | None]
"""Takes a device's answer in, or gives the reason why it cannot be right."""


def no_log(line: str) -> None:
    """Nobody wants to know."""


@dataclass
class Conversation:
    """One run, as its steps see it.

    Attributes:
        settings: What the run is about.
        table: The items, as devices get them.
        known: The items, as the recommender computes with them.
        enrolled: Who may take part; it does not change during a run.
        cohort: Those of them that are asked.
        mailroom: Letters and replies.
        files: Where checkpoints go.
        pace: How long to wait.
        log: Told what happens, in lines for people.
    """

    settings: RunSettings
    table: CatalogueTable
    known: KnownItems
    enrolled: Enrolled
    cohort: frozenset[str]
    mailroom: Mailroom
    files: RunFiles
    pace: Pace
    log: Callable[[str], None] = no_log
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.checkpoint: Checkpoint = self.files.load()
        metrics = self.mailroom.metrics
        metrics.method, metrics.rounds, metrics.number = self.settings.method, self.settings.rounds, 0

    @property
    def terms(self) -> Terms:
        """What devices agree to."""
        return self.settings.terms(self.known.fingerprint, self.enrolled.count_users(self.cohort))

    def save(self) -> None:
        """Keep how far the run is."""
        self.files.save(self.checkpoint)

    def stage(self, words: str) -> None:
        """Say what is under way."""
        self.mailroom.metrics.stage = words
        self.log(words)

    def enough(self, devices: Collection[str]) -> bool:
        """Whether these devices speak for the smallest number of users allowed."""
        return self.enrolled.count_users(devices) >= self.settings.minimum

    def gather(self) -> None:
        """Find devices that agree to the terms, until all have been asked or the time is over."""
        if self.checkpoint.stage != "gather":
            return
        self.stage("waiting for devices")
        agreed, refused = set(self.checkpoint.agreed), set[str]()
        begin = time.monotonic()
        patience = self.pace.gather * self.pace.attempts
        while True:
            here = self.mailroom.present() & self.cohort
            agreed |= self._invite(here - agreed - refused, refused)
            waited = time.monotonic() - begin
            everyone = agreed | refused >= self.cohort
            if self.enough(agreed) and (everyone or waited >= self.pace.gather):
                break
            if everyone or waited >= patience:
                raise FederationError(
                    f"{self.enrolled.count_users(agreed)} users agreed to take part ({len(agreed)} devices; "
                    f"{len(refused)} refused, {len(self.cohort - agreed - refused)} were silent), and the run needs "
                    f"{self.settings.minimum}; start it again when more devices are there"
                )
            self.sleep(self.pace.pause)
        self.checkpoint.agreed = tuple(sorted(agreed))
        self.checkpoint.stage = "open"
        self.save()
        self.log(f"{len(agreed)} devices take part ({self.enrolled.count_users(agreed)} users), {len(refused)} refused")

    def _invite(self, devices: frozenset[str], refused: set[str]) -> set[str]:
        """Call, catalogue and terms; those that agree."""
        if not devices:
            return set()
        mailroom, deadline = self.mailroom, self.pace.deadline
        ready: set[str] = set()
        without: set[str] = set()
        for device, here in mailroom.ask(devices, 0, Call(), deadline, Here):
            knows = isinstance(here, Here) and here.catalogue == self.known.fingerprint
            (ready if knows else without).add(device)
        refused |= mailroom.heard - ready - without
        if without:
            ready |= {device for device, _ in mailroom.ask(without, 0, self.table, deadline, Accepted)}
            refused |= mailroom.heard - ready
        agreed = {device for device, _ in mailroom.ask(ready, 0, self.terms, deadline, Accepted)} if ready else set()
        refused |= (mailroom.heard & ready) - agreed
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
            for device, answer in self.mailroom.ask(missing, number, message, self.pace.deadline, *expected):
                reason = take(device, answer)
                if reason is None:
                    answered.add(device)
                else:
                    self.mailroom.refused(reason)
            if self.enough(answered):
                return answered
            self.log(f"{self.enrolled.count_users(answered)} of {self.settings.minimum} users needed have answered")
        raise self.too_few(answered, number)

    def wait_for(self, devices: Collection[str], besides: Collection[str] = ()) -> frozenset[str]:
        """Those of the devices that are connected; waits up to a deadline for enough of them to come back.

        After a restart of the recommender nobody is there for a while.
        """
        wanted = frozenset(devices)
        here = self.mailroom.present() & wanted
        looks = math.ceil(self.pace.deadline / self.pace.look)
        while looks > 0 and not self.enough(here.union(besides)):
            self.sleep(self.pace.look)
            here = self.mailroom.present() & wanted
            looks -= 1
        return here

    def too_few(self, devices: Collection[str], number: int) -> FederationError:
        """The error that ends a run for now."""
        step = f"round {number}" if number else "the opening"
        return FederationError(
            f"{step} stopped after {self.pace.attempts} attempts: {self.enrolled.count_users(devices)} users answered "
            f"and {self.settings.minimum} are needed; the run is kept and goes on from there when it is started again"
        )
