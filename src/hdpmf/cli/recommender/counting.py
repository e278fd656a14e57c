"""Counts for Prometheus, beside whatever a recommender's process does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from hdpmf.cli.shared.options import run_option

if TYPE_CHECKING:
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.metrics import Metrics


@dataclass(frozen=True)
class CountingOptions:
    """Where counts can be had, and how it says what happens."""

    metrics_port: Annotated[
        int | None,
        run_option("--metrics-port", metavar="PORT", help="Serve counts for Prometheus there, on this machine only."),
    ] = None
    metrics_host: Annotated[str, run_option("--metrics-host", help="Or on this address.")] = "127.0.0.1"
    log_format: Annotated[
        str, run_option("--log-format", metavar="FORMAT", help="What it says while it runs: text, or json, in lines.")
    ] = "text"

    @contextmanager
    def counted(self, place: ServiceFolder, metrics: Metrics, log: Callable[[str], None]) -> Iterator[None]:
        """While inside, they are there. What the operator should know before that is said."""
        from hdpmf.service.prometheus import endpoint
        from hdpmf.service.watching import look

        for alert in look(place).alerts:
            log(f"{alert.words}; to do: {alert.todo}")
        if self.metrics_port is None:
            yield
            return
        with endpoint(metrics, self.metrics_port, self.metrics_host, lambda: look(place)) as port:
            log(f"counts for Prometheus: http://{self.metrics_host}:{port}/metrics")
            yield
