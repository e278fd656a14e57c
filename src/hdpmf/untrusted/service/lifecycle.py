"""A service that lives: it hands out the newest model, goes on with a killed run, and begins one
only if asked.

What asks is the operator (``hdpmf recommender run``) or the schedule in ``config.toml``. A restart
begins nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from hdpmf.common.net import RecommenderTransport
from hdpmf.common.net.summing import SumServers
from hdpmf.errors import FederationError, HdpmfError, SecureSumError, StorageError
from hdpmf.untrusted.service.collector_keys import pinned_servers
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.requests import Request, drop_request, request_in
from hdpmf.untrusted.service.run import no_log
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import RunSettings
from hdpmf.untrusted.service.timetable import next_settings

LONGEST_PAUSE = 3600.0
"""Seconds between attempts at a run that cannot go on."""

_LOOK_SECONDS = 60.0  # between looks at the schedule

Written = TypeVar("Written")


@dataclass(frozen=True)
class Ways:
    """How the recommender reaches participants and the two servers.

    Attributes:
        admit: Told which devices are on the roster, by identity; people enrol meanwhile.
    """

    devices: RecommenderTransport | None = None
    servers: SumServers | None = None
    admit: Callable[[Collection[str]], None] = lambda devices: None


class _GivenUpError(Exception):
    """The operator gives the run up that is under way."""


class Lifecycle:
    """Serves a folder until interrupted. What is killed, whenever, goes on at the next start.

    Args:
        folder: The service's files.
        ways: To participants and the two servers.
        metrics: Where things are counted.
        report: Told how a run ended.
        log: Told what happens, in lines for people.
        sleep: For tests.
        clock: For tests.
    """

    def __init__(
        self,
        folder: ServiceFolder,
        ways: Ways,
        *,
        metrics: Metrics | None = None,
        report: Callable[[RunOutcome], None] = lambda outcome: None,
        log: Callable[[str], None] = no_log,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._ways = ways
        self._metrics = Metrics() if metrics is None else metrics
        self._report = report
        self._log = log
        self._sleep = sleep
        self._clock = clock
        self._looked = 0.0
        self._said = ""
        self._full = ""
        self._pause = 0.0
        self._conducted: bytes | None = None

    def live(self) -> None:
        """Serve until interrupted."""
        ways = self._ways
        service = Service(
            self._folder,
            ways.devices,
            servers=ways.servers,
            metrics=self._metrics,
            admit=ways.admit,
            log=self._log,
            sleep=self._nap,
            clock=self._clock,
        )
        if self._by_two_servers and self._folder.unfinished() is None:
            self._written(service.publish)
        while True:
            run = self._folder.unfinished() or self._written(lambda: self._begin(service))
            if run is None:
                self._idle(service)
            else:
                self._conduct(service, run)

    @property
    def _by_two_servers(self) -> bool:
        return pinned_servers(self._folder.path) is not None

    def _begin(self, service: Service) -> bytes | None:
        """Write down the run that the operator or the schedule asks for."""
        request = request_in(self._folder)
        if request is not None:
            run = bytes.fromhex(request.run)
            settings = None if run in self._folder.runs() else request.settings
            begun = None if settings is None else self._begun(service, settings, "asked for", run)
            drop_request(self._folder)
            return begun
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return None
        self._looked = now
        settings, reason = next_settings(self._folder, service, now)
        if settings is not None:
            return self._begun(service, settings, f"due ({reason})")
        self._say(reason)
        return None

    def _begun(
        self, service: Service, settings: RunSettings, why: str, run: bytes | None = None
    ) -> bytes | None:
        try:
            run = service.begin(settings, run)
        except StorageError:
            raise
        except HdpmfError as error:
            self._say(f"a run is {why} and cannot begin: {error}")
            return None
        self._log(f"run {run.hex()[:12]} begins, since it is {why}")
        return run

    def _conduct(self, service: Service, run: bytes) -> None:
        self._conducted = run
        try:
            self._attempt(service, run)
        except _GivenUpError:
            self._written(lambda: self._give_up(service, run))
        finally:
            self._conducted = None

    def _give_up(self, service: Service, run: bytes) -> None:
        service.give_up(run)
        drop_request(self._folder)
        self._pause = 0.0
        self._log(f"run {run.hex()[:12]} is given up; what devices have paid for it stays paid")

    def _attempt(self, service: Service, run: bytes) -> None:
        """To the end of the run; where it cannot go on, wait, and hand out the newest model
        meanwhile.
        """
        self._heed()
        try:
            outcome = service.conduct(run)
        except (FederationError, SecureSumError, StorageError) as error:
            least = max(self._folder.config.pace.gather, 0.1)
            self._pause = min(max(2 * self._pause, least), LONGEST_PAUSE)
            self._log(f"run {run.hex()[:12]} waits {self._pause:.0f} s: {error}")
            end = self._clock() + self._pause
            while self._clock() < end:
                self._idle(service)
        else:
            self._pause = 0.0
            self._report(outcome)

    def _idle(self, service: Service) -> None:
        model = self._folder.model() is not None
        words = (
            "handing out the model" if model else "waiting for a first run (hdpmf recommender run)"
        )
        self._metrics.stage = (
            words if self._conducted is None else "waiting before the run is tried again"
        )
        if self._ways.devices is not None:
            service.let_in()
            service.hand_out_items()
            if model and self._ways.devices.present():
                self._written(service.hand_out)
        if self._by_two_servers:
            self._written(service.publish_items)
        service.write_state()
        self._say(self._metrics.stage)
        self._nap(max(self._folder.config.pace.pause, 0.1))

    def _nap(self, seconds: float) -> None:
        """Sleep, and see meanwhile whether the operator gives up the run under way."""
        for left in range(math.ceil(seconds), 0, -1):
            self._heed()
            self._sleep(seconds - (left - 1) if left == math.ceil(seconds) else 1.0)

    def _heed(self) -> None:
        request = None if self._conducted is None else request_in(self._folder)
        if (
            request is not None
            and self._conducted is not None
            and request == Request(run=self._conducted.hex())
        ):
            raise _GivenUpError

    def _written(self, act: Callable[[], Written]) -> Written | None:
        """Do what needs the disk. Where that is full, say so and live on: it is done when there
        is room.
        """
        try:
            return act()
        except StorageError as error:
            if str(error) != self._full:
                self._log(str(error))
            self._full = str(error)
            self._sleep(max(self._folder.config.pace.pause, 0.1))
            return None

    def _say(self, line: str) -> None:
        """Once, until something else is to be said."""
        if line and line != self._said:
            self._log(line)
        self._said = line or self._said
