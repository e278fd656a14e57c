"""The counts of a service as a Prometheus endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hdpmf.errors import ConfigError, MissingExtraError
from hdpmf.service.metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LOCAL = "127.0.0.1"
"""Who takes part and when is nobody else's business, so the endpoint is for this machine unless told otherwise."""


class Exporter:
    """Reads the counts when somebody asks for them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """All of them, in Prometheus' form."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._metrics
        counters = {
            "rounds": (now.rounds_done, "Rounds that were completed."),
            "rounds_lost": (now.rounds_lost, "Rounds that were given up because a secure sum broke off."),
            "impossible_numbers": (
                now.impossible,
                "Numbers of sums that so many users cannot have; they were clamped.",
            ),
            "received_bytes": (now.bytes_in, "Bytes received from devices."),
            "sent_bytes": (now.bytes_out, "Bytes sent to devices."),
            "messages": (now.messages, "Messages sent to devices."),
            "replies": (now.replies, "Replies received from devices."),
            "round_seconds": (now.round_seconds, "Seconds that completed rounds took together."),
        }
        for name, (value, words) in counters.items():
            yield CounterMetricFamily(f"hdpmf_recommender_{name}", words, value=value)
        gauges = {
            "round": (now.number, "The round that is under way."),
            "planned_rounds": (now.rounds, "Rounds of the run under way."),
            "participants": (now.participants, "Users in the last completed round."),
            "members": (now.members, "Devices of the run under way."),
            "present_devices": (now.present, "Devices that are connected."),
        }
        for name, (value, words) in gauges.items():
            yield GaugeMetricFamily(f"hdpmf_recommender_{name}", words, value=value)
        refusals = CounterMetricFamily(
            "hdpmf_recommender_refusals", "Answers that were refusals or could not be taken.", labels=["reason"]
        )
        for reason, count in sorted(now.refusals.items()):
            refusals.add_metric([reason], count)
        yield refusals


@contextmanager
def endpoint(metrics: Metrics, port: int, address: str = LOCAL) -> Iterator[int]:
    """Serve the counts on ``http://address:port/metrics`` while inside; the port (0 takes any free one).

    Raises:
        MissingExtraError: prometheus-client is not installed.
        ConfigError: The port cannot be had.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise MissingExtraError("the metrics endpoint needs: pip install 'hdpmf[federation]'") from error
    registry = CollectorRegistry()
    registry.register(Exporter(metrics))
    try:
        server, thread = start_http_server(port, address, registry)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"metrics cannot be served on {address}:{port}: {error}; choose another port") from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
