"""The leader's background thread: aggregates reports with the helper, deletes expired data."""

from __future__ import annotations

import logging
import threading
import time

from hdpmf.common.base.logs import event
from hdpmf.common.net.carrier import backoff
from hdpmf.errors import DapError, HdpmfError
from hdpmf.untrusted.aggregator.folder import Limits
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.aggregator.metrics import AggregatorMetrics

_IDLE_SECONDS = 5.0  # between looks for work that another worker left
_GATHER_SECONDS = 0.5  # so that a job has more than one report
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0  # while the helper is away
_COUNT_SECONDS = 2.0
_GARBAGE_SECONDS = 3600.0
_KEYS_SECONDS = 600.0  # between looks at the helper's list of keys
_KEYS_PAUSE = 5.0  # the same where a report has an unknown key
_STOP_SECONDS = 10.0


class AggregationJobDriver:
    """A thread that aggregates until it is stopped, and backs off while the helper fails.

    Attributes:
        overloaded: More reports wait than may.
    """

    def __init__(self, leader: Leader, metrics: AggregatorMetrics, limits: Limits) -> None:
        self._leader = leader
        self._metrics = metrics
        self._limits = limits
        self.overloaded = False
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._failures = 0
        self._counted_at = self._collected_at = 0.0
        self._keys_at = -_KEYS_SECONDS
        self._thread = threading.Thread(target=self._run, name="aggregation", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Signal that there are new reports."""
        self._woken.set()

    def stop(self) -> None:
        """Stop after the current job."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)  # what is cut off is done again

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._housekeeping()
                self._woken.clear()
                handled = self._leader.aggregate(self._limits.job_reports)
                self._metrics.aggregated.inc(handled)
                self._failures = 0
            except DapError as error:
                event("helper-refused", logging.WARNING, error)
                self._metrics.trouble(error)
                self._stopping.wait(_FIRST_PAUSE)
                continue
            except Exception as error:
                expected = isinstance(error, HdpmfError)
                pause = backoff(self._failures, _FIRST_PAUSE, _LONGEST_PAUSE)
                event(
                    "aggregation-failed",
                    logging.WARNING if expected else logging.ERROR,
                    error,
                    pause=round(pause, 1),
                )
                self._metrics.trouble(error)
                self._stopping.wait(pause)
                self._failures += 1
                continue
            if handled == 0:
                self._woken.wait(_IDLE_SECONDS)
            if handled < self._limits.job_reports:
                self._stopping.wait(_GATHER_SECONDS)

    def _housekeeping(self) -> None:
        """Update the count of waiting reports and delete expired data, each at its own interval."""
        now = time.monotonic()
        if now >= self._counted_at + _COUNT_SECONDS:
            self._counted_at = now
            waiting = self._leader.waiting()
            self._metrics.waiting.set(waiting)
            self.overloaded = waiting > self._limits.waiting_reports
        if now >= self._collected_at + _GARBAGE_SECONDS:
            self._collected_at = now
            self._leader.collect_garbage()
        pause = _KEYS_PAUSE if self._leader.lacks_partner_keys else _KEYS_SECONDS
        if now >= self._keys_at + pause:
            self._keys_at = now
            self._follow_keys()

    def _follow_keys(self) -> None:
        """Look at the helper's list of keys; without it reports are taken as before."""
        try:
            self._leader.follow_partner_keys()
        except HdpmfError as error:
            event("helper-keys-unknown", logging.WARNING, error)
