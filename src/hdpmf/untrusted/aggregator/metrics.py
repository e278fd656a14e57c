"""Prometheus metrics of a server: counts and durations, never identities."""

from __future__ import annotations

import os

from hdpmf.errors import needs

with needs("prometheus_client", "servers"):
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Of the environment: where several workers write their counts, so that any of them can show the
sum.
"""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_GROUPS = (1, 4, 16, 64, 256)


class AggregatorMetrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        to = self._registry
        name = "hdpmf_aggregator_{}".format
        self.uploads = Counter(
            name("uploads"), "Reports by what became of them.", ["outcome"], registry=to
        )
        self.answers = Counter(
            name("answers"), "Requests by resource.", ["resource", "status"], registry=to
        )
        self.commits = Histogram(
            name("commit_seconds"), "Of writing reports down.", buckets=_SECONDS, registry=to
        )
        self.grouped = Histogram(
            name("commit_reports"), "Reports per write.", buckets=_GROUPS, registry=to
        )
        self.aggregated = Counter(
            name("aggregated_reports"), "Reports handled with the other server.", registry=to
        )
        self.troubles = Counter(
            name("troubles"), "Work that failed and is tried again.", ["what"], registry=to
        )
        self.turned_away = Counter(
            name("connections_closed"), "Connections turned away.", ["why"], registry=to
        )
        self.waiting = Gauge(
            name("waiting_reports"),
            "Reports to be aggregated.",
            registry=to,
            multiprocess_mode="max",
        )

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format, summed over workers."""
        if SHARED_FOLDER not in os.environ:
            return bytes(generate_latest(self._registry))
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return bytes(generate_latest(together))
