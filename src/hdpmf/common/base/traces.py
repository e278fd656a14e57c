"""OpenTelemetry traces of our services, if ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set.

A span has a name, a duration, counts, and the kind of an error: no address, no identity, no id of
a report, no text of an exception. A request of a device begins a trace of its own, so that no two
of them are linked; only the two servers pass a trace on, to each other.

Nothing of OpenTelemetry is imported where the variable is not set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hdpmf.errors import needs

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

_HEADER = "traceparent"

_tracer: Tracer | None = None


@contextmanager
def exporting(service: str) -> Iterator[None]:
    """Export the spans of this process while inside, if there is an endpoint.

    OpenTelemetry's own variables hold: headers, certificates, the sampler, further attributes.

    Raises:
        MissingExtraError: There is an endpoint, and OpenTelemetry is not installed.
    """
    global _tracer
    if not os.environ.get(ENDPOINT):
        yield
        return
    with needs("opentelemetry", "traces"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    before, _tracer = _tracer, provider.get_tracer("hdpmf")
    try:
        yield
    finally:
        _tracer = before
        provider.shutdown()


@contextmanager
def span(name: str, headers: Mapping[str, str] | None = None, **counts: int) -> Iterator[None]:
    """Trace what is inside, as a part of the span around it.

    Args:
        name: Of a kind of work; never with an id.
        headers: Of a request whose trace this continues: only of the other server, authenticated.
        counts: Numbers that depend on no rating.
    """
    if _tracer is None:
        yield
        return
    from opentelemetry.trace import Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = None
    if headers is not None:
        parent = TraceContextTextMapPropagator().extract({_HEADER: headers.get(_HEADER, "")})
    with _tracer.start_as_current_span(
        name, parent, attributes=counts, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield
        except BaseException as error:  # its text may name whoever asks
            current.set_attribute("error.type", type(error).__name__)
            current.set_status(Status(StatusCode.ERROR))
            raise


def count(**counts: int) -> None:
    """Add numbers, which depend on no rating, to the span around this."""
    if _tracer is None:
        return
    from opentelemetry.trace import get_current_span

    get_current_span().set_attributes(counts)


def trace_headers() -> dict[str, str]:
    """Return the header that continues the span around this (W3C's ``traceparent``), or nothing."""
    found: dict[str, str] = {}
    if _tracer is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(found)
    return {name: value for name, value in found.items() if name == _HEADER}
