"""The leader's background threads.

One aggregates reports with the helper and deletes expired data. What it waits for may hang, so that
back-pressure is no work of it: another thread counts what waits, and a third one asks the helper
for its clock and its keys.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable

from hdpmf.common.base.logs import event
from hdpmf.errors import DapError, HdpmfError
from hdpmf.untrusted.aggregator.folder import JOB_REPORTS, Limits
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.aggregator.metrics import AggregatorMetrics

_IDLE_SECONDS = 5.0  # between looks for work that another worker left
_GATHER_SECONDS = 0.5  # so that a job has more than one report
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0  # while the helper is away
_COUNT_SECONDS = 2.0
_GARBAGE_SECONDS = 3600.0
_LOOK_SECONDS = 1.0
_CLOCK_SECONDS = 30.0  # between looks at the helper's clock
_KEYS_SECONDS = 600.0  # between looks at the helper's list of keys
# The same where the helper was away, clocks differ, or a report has an unknown key.
_SOON_SECONDS = 5.0
_STOP_SECONDS = 10.0
_OS = secrets.SystemRandom()


class AggregationJobDriver:
    """Threads that aggregate until they are stopped, and back off while the helper fails."""

    def __init__(self, leader: Leader, metrics: AggregatorMetrics, limits: Limits) -> None:
        self._leader = leader
        self._metrics = metrics
        self._limits = limits
        self._waiting = 0
        self._guard = threading.Lock()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._failures = 0
        self._away = False
        self._collected_at = 0.0
        self._clock_at = self._keys_at = -_KEYS_SECONDS
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (
                ("aggregation", self._run),
                ("backlog", self._run_count),
                ("partner", self._run_partner),
            )
        ]

    def start(self) -> None:
        """Compare clocks, so that reports can be taken, and start the threads."""
        self.look_at_partner()
        self.count()
        for thread in self._threads:
            thread.start()

    def wake(self, stored: int = 0) -> None:
        """Signal that there are so many new reports."""
        with self._guard:
            self._waiting += stored
        self._woken.set()

    def overloaded(self, expected: int = 0) -> bool:
        """Return True if more reports wait than may, with those that are ``expected``."""
        return self._waiting + expected > self._limits.waiting_reports

    def stop(self) -> None:
        """Stop after the current job."""
        self._stopping.set()
        self._woken.set()
        end = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                # what is cut off is done again
                thread.join(max(0.0, end - time.monotonic()))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._collect_garbage()
                self._woken.clear()
                handled = self._leader.aggregate(JOB_REPORTS)
                self._metrics.aggregated.inc(handled)
                event("looked-for-reports", logging.DEBUG, handled=handled)
                self._failures = 0
            except DapError as error:
                event("helper-refused", logging.WARNING, error)
                self._metrics.trouble(error)
                self._stopping.wait(_FIRST_PAUSE)
                continue
            except Exception as error:
                pause = backoff(self._failures, _FIRST_PAUSE, _LONGEST_PAUSE)
                self._failed("aggregation-failed", error, pause=round(pause, 1))
                self._stopping.wait(pause)
                self._failures += 1
                continue
            if handled == 0:
                self._woken.wait(_IDLE_SECONDS)
            if handled < JOB_REPORTS:
                self._stopping.wait(_GATHER_SECONDS)

    def _collect_garbage(self) -> None:
        now = time.monotonic()
        if now >= self._collected_at + _GARBAGE_SECONDS:
            self._collected_at = now
            self._leader.collect_garbage()

    def _run_count(self) -> None:
        while not self._stopping.wait(_COUNT_SECONDS):
            self.count()

    def count(self) -> None:
        """Count waiting reports."""
        with self._guard:
            before = self._waiting  # what is stored from here on may count twice until next time
        try:
            found = self._leader.waiting()
        except Exception as error:
            self._failed("not-counted", error)
            return
        with self._guard:
            self._waiting = found + self._waiting - before

    def _run_partner(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self.look_at_partner()

    def look_at_partner(self) -> None:
        """Look at the helper's clock and its list of keys, each at its own interval."""
        now = time.monotonic()
        clock = self._leader.partner_clock
        if clock.skew is None:  # no report is taken before
            pause = 0.0
        else:
            pause = _SOON_SECONDS if self._away or clock.differs else _CLOCK_SECONDS
        if now >= self._clock_at + pause:
            self._clock_at = now
            try:
                self._leader.compare_clocks()
                self._leader.compare_epochs()
                self._away = False
            except Exception as error:
                if not self._away:  # once, not at every look
                    self._failed("helper-away", error)
                self._away = True
        pause = _SOON_SECONDS if self._leader.lacks_partner_keys else _KEYS_SECONDS
        if now >= self._keys_at + pause and not self._away:
            self._keys_at = now
            try:
                self._leader.follow_partner_keys()
            except Exception as error:  # without it reports are taken as before
                self._failed("helper-keys-unknown", error)

    def _failed(self, what: str, error: Exception, **fields: object) -> None:
        expected = isinstance(error, HdpmfError)
        event(what, logging.WARNING if expected else logging.ERROR, error, **fields)
        self._metrics.trouble(error)


def backoff(
    tries: int, first: float, longest: float, uniform: Callable[[], float] = _OS.random
) -> float:
    """Return the seconds before the next try: doubled after each failure, times 50 to 150 %.

    Clients that failed together do not come back together.

    Args:
        tries: Failures in a row before this one.
        first: Seconds after the first failure.
        longest: Most seconds, before the draw.
        uniform: Draws from 0 to 1.
    """
    return min(first * 2.0 ** min(tries, 30), longest) * (0.5 + uniform())
