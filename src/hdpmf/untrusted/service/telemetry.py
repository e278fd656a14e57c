"""Metrics of a service for Prometheus, and its log as JSON lines."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from hdpmf.common.base.logs import event, logging_json, remove_ids
from hdpmf.common.net.metrics import ProcessMetrics
from hdpmf.errors import ConfigError, HdpmfError, needs
from hdpmf.untrusted.service.health import NAMES, FolderHealth
from hdpmf.untrusted.service.metrics import Metrics

with needs("prometheus_client"):
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector


LOCAL = "127.0.0.1"
"""Default address: who takes part, and when, is for this machine only."""

UNREADABLE = "unreadable"
"""The alert for a folder that cannot be read."""

_PREFIX = "hdpmf_recommender_"

_COUNTERS = {  # by attribute of Metrics
    "runs_done": ("runs", "Runs that were completed."),
}

_OF_FOLDER = {  # by attribute of FolderHealth
    "free": ("free_bytes", "Free bytes of the folder's disk."),
    "devices": ("enrolled_devices", "People who are enrolled."),
    "last_run": ("last_run_timestamp_seconds", "End of the last run; 0 if there is none."),
    "last_users": ("last_run_users", "Reports in the last run."),
    "under_way": ("run_under_way", "1: a run has begun and has not ended."),
}

_STATUSES = (200, 304, 404)


class RecommenderMetrics(CollectorRegistry):
    """A registry of a recommender's metrics, computed whenever it is read.

    Counters have their usual labels from the start, with 0: Prometheus would otherwise see no
    increase in the first of them.

    Args:
        progress: Counts of the running process.
    """

    def __init__(
        self, progress: Metrics, inspect_folder: Callable[[], FolderHealth] | None = None
    ) -> None:
        super().__init__()
        self.register(_Progress(progress))
        self.register(ProcessMetrics("recommender"))
        if inspect_folder is not None:
            self.register(_Folder(inspect_folder))


class _Progress(Collector):
    """The counts of the running process."""

    def __init__(self, progress: Metrics) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Metric]:
        progress = self._progress
        for attribute, (name, words) in _COUNTERS.items():
            yield CounterMetricFamily(_PREFIX + name, words, getattr(progress, attribute))
        left = max(progress.until - time.time(), 0.0) if progress.until is not None else 0.0
        yield GaugeMetricFamily(
            f"{_PREFIX}period_seconds", "Seconds until the period of reports ends.", left
        )
        requests = CounterMetricFamily(
            f"{_PREFIX}requests", "Requests by status.", labels=["status"]
        )
        for status, count in (dict.fromkeys(_STATUSES, 0) | dict(progress.requests)).items():
            requests.add_metric([str(status)], count)
        yield requests


class _Folder(Collector):
    """The state of the folder; where it cannot be read, only an alert says so."""

    def __init__(self, inspect_folder: Callable[[], FolderHealth]) -> None:
        self._look = inspect_folder

    def collect(self) -> Iterator[Metric]:
        alerts = GaugeMetricFamily("hdpmf_alert", "1: the operator must act.", labels=["name"])
        try:
            seen = self._look()
        except HdpmfError:
            alerts.add_metric([UNREADABLE], 1)
            yield alerts
            return
        alerts.add_metric([UNREADABLE], 0)
        present = {alert.name for alert in seen.alerts}
        for name in NAMES:
            alerts.add_metric([name], name in present)
        yield alerts
        for attribute, (name, words) in _OF_FOLDER.items():
            yield GaugeMetricFamily(_PREFIX + name, words, float(getattr(seen, attribute)))


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

    def say(line: str) -> None:
        event("said", run=metrics.run, said=remove_ids(line))

    out = sys.stderr if stream is None else stream
    with logging_json(out, role="recommender"):
        try:
            yield say
        except HdpmfError as error:
            words = remove_ids(str(error))
            event("failed", logging.ERROR, run=metrics.run, kind=type(error).__name__, said=words)
            raise
