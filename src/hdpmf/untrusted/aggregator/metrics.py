"""Prometheus metrics of a server: counts and durations, never identities.

Counters have all their labels from the start, with 0: the first of them would otherwise be no
increase to Prometheus, and an alert on it would stay silent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hdpmf.common.aggregation.two_servers.dap.messages import Problem, ReportError
from hdpmf.common.net.metrics import (
    ProcessMetrics,
    disk_metrics,
    this_process,
)
from hdpmf.errors import HdpmfError, StorageError, TransportError, needs

with needs("prometheus_client", "servers"):
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.multiprocess import MultiProcessCollector
    from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder
    from hdpmf.untrusted.aggregator.server import Aggregator

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Of the environment: where several workers write their counts, so that any of them can show the
sum.
"""

_PREFIX = "hdpmf_aggregator_"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_REASONS = [reason.name.lower() for reason in ReportError]
_OUTCOMES = ("accepted", "busy", "clock", "failed", *Problem, *_REASONS)
_STATUSES = (200, 201, 202, 400, 403, 404, 413, 500, 503)
_REACHABLE_SECONDS = 300.0
_UNEXPECTED = "unexpected"
_TROUBLES = (StorageError.__name__, TransportError.__name__, _UNEXPECTED, *Problem)


class AggregatorMetrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._computed: list[Collector] = []
        self.uploads = self._counter("uploads", "Reports by what became of them.", "outcome")
        self.answers = self._counter("answers", "Requests by resource.", "resource", "status")
        self.requests = self._histogram(
            "request_seconds", "From a request's headers to its answer.", "resource"
        )
        self.transactions = self._histogram(
            "transaction_seconds", "Of transactions of the database.", "kind"
        )
        self.aggregated = self._counter(
            "aggregated_reports", "Reports handled with the other server."
        )
        self.troubles = self._counter("troubles", "Work that failed and is tried again.", "what")
        for counter, names in (
            (self.uploads, _OUTCOMES),
            (self.troubles, _TROUBLES),
            (self.transactions, ("read", "write")),
        ):
            for name in names:
                counter.labels(name)

    def begin(self, resource: str) -> None:
        """Show a resource with 0 requests."""
        self.requests.labels(resource)
        for status in _STATUSES:
            self.answers.labels(resource, status)

    def trouble(self, error: Exception) -> None:
        """Count work that failed and is tried again."""
        kind = getattr(error, "kind", type(error).__name__)
        self.troubles.labels(kind if kind in _TROUBLES else _UNEXPECTED).inc()

    @contextmanager
    def transaction(self, kind: str) -> Iterator[None]:
        """Take the time of a transaction that is inside, ``read`` or ``write``."""
        with self.transactions.labels(kind).time():
            yield

    def watch(self, folder: AggregatorFolder, server: Aggregator) -> None:
        """Show the state of a server and of its processes, too, computed when somebody asks."""
        self._computed = [_ServerState(folder, server), ProcessMetrics(server.role, _workers)]
        for collector in self._computed:
            self._registry.register(collector)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format, summed over workers."""
        if SHARED_FOLDER not in os.environ:
            return bytes(generate_latest(self._registry))
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        for collector in self._computed:
            together.register(collector)
        return bytes(generate_latest(together))

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, words, labels, registry=self._registry)

    def _histogram(self, name: str, words: str, *labels: str) -> Histogram:
        return Histogram(_PREFIX + name, words, labels, buckets=_SECONDS, registry=self._registry)


def _workers() -> Iterable[int]:
    """Return the ids of all workers: each has files of its own in the shared folder."""
    if SHARED_FOLDER not in os.environ:
        return this_process()
    names = (path.stem for path in Path(os.environ[SHARED_FOLDER]).glob("*.db"))
    found = {int(number) for name in names for number in re.findall(r"_(\d+)$", name)}
    return [pid for pid in found if Path(f"/proc/{pid}").exists()]


class _ServerState(Collector):
    """Gauges of a server that no request changes: its disk, reports and partner."""

    def __init__(self, folder: AggregatorFolder, server: Aggregator) -> None:
        self._folder = folder
        self._server = server

    def describe(self) -> Iterable[Metric]:
        """Return nothing: values are asked for when there is a database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the current values; what cannot be read is left out."""
        yield from disk_metrics(_PREFIX, self._folder.path)
        yield from self._partner()
        try:
            last = self._server.last_batch()
            waiting = self._server.waiting()
            rejected = self._server.rejected()
        except HdpmfError:  # the other metrics are still useful, and say that it fails
            return
        yield GaugeMetricFamily(
            f"{_PREFIX}last_batch_timestamp_seconds",
            "End of the newest batch that was closed; 0 if there is none.",
            last,
        )
        yield GaugeMetricFamily(f"{_PREFIX}waiting_reports", "Reports to be aggregated.", waiting)
        reasons = GaugeMetricFamily(
            f"{_PREFIX}rejected_reports",
            "Reports that were rejected, in all tasks so far.",
            labels=["reason"],
        )
        for reason in ReportError:
            reasons.add_metric([reason.name.lower()], rejected.get(reason, 0))
        yield reasons

    def _partner(self) -> Iterator[Metric]:
        clock = self._server.partner_clock
        yield GaugeMetricFamily(
            f"{_PREFIX}partner_reachable",
            "1 if the other server was heard of within five minutes.",
            clock.heard_within(_REACHABLE_SECONDS),
        )
        skew = clock.skew
        if skew is not None:
            yield GaugeMetricFamily(
                f"{_PREFIX}clock_skew_seconds",
                "By which the other server's clock is ahead of this one's.",
                skew,
            )
