"""Metrics of a service for Prometheus, and its log as JSON lines."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TextIO

from hdpmf.common.base.logs import event, logging_json, remove_ids
from hdpmf.errors import ConfigError, HdpmfError, needs
from hdpmf.untrusted.service.health import NAMES, FolderHealth
from hdpmf.untrusted.service.metrics import Metrics

with needs("prometheus_client"):
    from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
    from prometheus_client.core import Metric


LOCAL = "127.0.0.1"
"""Default address: who takes part, and when, is for this machine only."""

UNREADABLE = "unreadable"
"""The alert for a folder that cannot be read."""

_PREFIX = "hdpmf_recommender_"

_COUNTERS = {  # by attribute of Metrics
    "rounds_done": ("rounds", "Rounds that were completed."),
    "rounds_lost": ("rounds_lost", "Rounds given up because a secure sum broke off."),
    "impossible": ("impossible_numbers", "Clamped numbers of sums that so many users cannot have."),
    "bytes_in": ("received_bytes", "Bytes received from devices."),
    "bytes_out": ("sent_bytes", "Bytes sent to devices."),
    "messages": ("messages", "Messages sent to devices."),
    "replies": ("replies", "Replies received from devices."),
    "round_seconds": ("round_seconds", "Seconds of all completed rounds together."),
}

_GAUGES = {
    "number": ("round", "The current round."),
    "rounds": ("planned_rounds", "Rounds of the current run."),
    "participants": ("participants", "Users in the last completed round."),
    "members": ("members", "Devices of the current run."),
    "present": ("present_devices", "Devices that are connected."),
}


class RecommenderMetrics(CollectorRegistry):
    """A registry of a recommender's metrics, updated whenever it is read.

    Args:
        progress: Counts of the running process.
        inspect_folder: Inspects the folder, if there is one.
    """

    def __init__(
        self, progress: Metrics, inspect_folder: Callable[[], FolderHealth] | None = None
    ) -> None:
        super().__init__()
        self._progress = progress
        self._look = inspect_folder
        self._counters = {
            attribute: Counter(_PREFIX + name, words, registry=self)
            for attribute, (name, words) in _COUNTERS.items()
        }
        self._counted = dict.fromkeys(_COUNTERS, 0.0)
        for attribute, (name, words) in _GAUGES.items():
            gauge = Gauge(_PREFIX + name, words, registry=self)
            gauge.set_function(partial(getattr, progress, attribute))
        self._refusals = Counter(
            f"{_PREFIX}refusals", "Refusals, and replies that could not be used.", ["reason"],
            registry=self,
        )  # fmt: skip
        self._refused: dict[str, int] = {}
        if inspect_folder is not None:
            self._alerts = Gauge(
                "hdpmf_alert", "1: the operator must act.", ["name"], registry=self
            )
            self._certificates = Gauge(
                f"{_PREFIX}certificate_seconds", "Seconds until a certificate ends.",
                ["certificate"], registry=self,
            )  # fmt: skip
            self._free = Gauge(
                f"{_PREFIX}free_bytes", "Free bytes of the folder's disk.", registry=self
            )
            self._free.set(math.nan)  # unknown

    def collect(self) -> Iterable[Metric]:
        """Update the metrics and return them."""
        for attribute, counter in self._counters.items():
            value = float(getattr(self._progress, attribute))
            counter.inc(value - self._counted[attribute])
            self._counted[attribute] = value
        for reason, count in dict(self._progress.refusals).items():
            self._refusals.labels(reason).inc(count - self._refused.get(reason, 0))
            self._refused[reason] = count
        if self._look is not None:
            self._inspect(self._look)
        return super().collect()

    def _inspect(self, inspect_folder: Callable[[], FolderHealth]) -> None:
        try:
            seen = inspect_folder()
        except HdpmfError:  # the other metrics are still useful
            self._alerts.labels(UNREADABLE).set(1)
            return
        self._alerts.labels(UNREADABLE).set(0)
        present = {alert.name for alert in seen.alerts}
        for name in NAMES:
            self._alerts.labels(name).set(name in present)
        for certificate in seen.certificates:
            if certificate.ends is not None:
                self._certificates.labels(certificate.name).set(certificate.ends - seen.now)
        self._free.set(seen.free)


@contextmanager
def endpoint(
    progress: Metrics,
    port: int,
    address: str = LOCAL,
    inspect_folder: Callable[[], FolderHealth] | None = None,
) -> Iterator[int]:
    """Serve ``http://address:port/metrics`` while inside; yield the port (0 takes a free one).

    Raises:
        ConfigError: The port is not available.
    """
    try:
        server, thread = start_http_server(
            port, address, RecommenderMetrics(progress, inspect_folder)
        )
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"metrics cannot be served on {address}:{port}: {error}; choose another port"
        ) from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def json_log(metrics: Metrics, stream: TextIO | None = None) -> Iterator[Callable[[str], None]]:
    """Log to the stream, stderr by default; gives the function that is told lines."""
    seen = (metrics.rounds_done, metrics.rounds_lost)

    def say(line: str) -> None:
        event("said", run=metrics.run, said=remove_ids(line))

    def tick() -> None:
        nonlocal seen
        now = (metrics.rounds_done, metrics.rounds_lost)
        if now != seen:
            event(
                "round",
                run=metrics.run,
                number=metrics.number,
                rounds=metrics.rounds,
                lost=now[1] > seen[1],
                users=metrics.participants,
                members=metrics.members,
                refusals=metrics.refusals_of_run,
            )
            seen = now

    with logging_json(sys.stderr if stream is None else stream, role="recommender"):
        metrics.listeners.append(tick)
        try:
            yield say
        except HdpmfError as error:
            words = remove_ids(str(error))
            event("failed", logging.ERROR, run=metrics.run, kind=type(error).__name__, said=words)
            raise
        finally:
            metrics.listeners.remove(tick)
