"""The counts of a service as a Prometheus endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hdpmf.errors import ConfigError, HdpmfError, MissingExtraError
from hdpmf.untrusted.service.alerts import NAMES
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.watching import FolderLook

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LOCAL = "127.0.0.1"
"""Who takes part and when is nobody else's business, so the endpoint is for this machine unless
told otherwise.
"""


UNREADABLE = "unreadable"
"""The alert where the folder cannot be looked at."""


class Exporter:
    """Reads the counts when somebody asks for them.

    Args:
        metrics: The counts.
        look: Looks at the folder, where there is one.
    """

    def __init__(self, metrics: Metrics, look: Callable[[], FolderLook] | None = None) -> None:
        self._metrics = metrics
        self._look = look

    def collect(self) -> Iterator[Metric]:
        """All of them, in Prometheus' form."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._metrics
        counters = {
            "rounds": (now.rounds_done, "Rounds that were completed."),
            "rounds_lost": (
                now.rounds_lost,
                "Rounds that were given up because a secure sum broke off.",
            ),
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
            "hdpmf_recommender_refusals",
            "Answers that were refusals or could not be taken.",
            labels=["reason"],
        )
        for reason, count in sorted(now.refusals.items()):
            refusals.add_metric([reason], count)
        yield refusals
        if self._look is not None:
            yield from _looked(self._look)


def _looked(look: Callable[[], FolderLook]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    alert = GaugeMetricFamily(
        "hdpmf_alert", "1 where the operator should do something.", labels=["name"]
    )
    try:
        seen = look()
    except HdpmfError:  # the other counts are still worth having
        alert.add_metric([UNREADABLE], 1)
        yield alert
        return
    there = {each.name for each in seen.alerts}
    for name in NAMES:
        alert.add_metric([name], float(name in there))
    alert.add_metric([UNREADABLE], 0)
    yield alert
    left = GaugeMetricFamily(
        "hdpmf_recommender_certificate_seconds",
        "Seconds until a certificate ends.",
        labels=["certificate"],
    )
    for certificate in seen.certificates:
        if certificate.ends is not None:
            left.add_metric([certificate.name], certificate.ends - seen.now)
    yield left
    yield GaugeMetricFamily(
        "hdpmf_recommender_free_bytes", "Bytes that the folder's disk still takes.", value=seen.free
    )


@contextmanager
def endpoint(
    metrics: Metrics, port: int, address: str = LOCAL, look: Callable[[], FolderLook] | None = None
) -> Iterator[int]:
    """Serve the counts on ``http://address:port/metrics`` while inside; the port (0 takes any free
    one).

    Raises:
        MissingExtraError: prometheus-client is not installed.
        ConfigError: The port cannot be had.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise MissingExtraError(
            "the metrics endpoint needs: pip install 'hdpmf[federation]'"
        ) from error
    registry = CollectorRegistry()
    registry.register(Exporter(metrics, look))
    try:
        server, thread = start_http_server(port, address, registry)
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
