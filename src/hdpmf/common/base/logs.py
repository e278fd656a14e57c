"""Logs of servers and recommenders, one JSON document per line on stderr, and traces.

A line has numbers and fixed words: no addresses, no ids of devices or reports, nothing of what was
sent. An error that nobody expected is named with where it happened, never with its text: a
library's errors may quote what they were given. Nor has a span more, and nothing of OpenTelemetry
is imported where ``OTEL_EXPORTER_OTLP_ENDPOINT`` is not set. A request of a device begins a trace
of its own, so that no two of them are linked; only the two servers pass a trace on, to each other.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hdpmf.errors import HdpmfError, needs

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


OURS = "hdpmf.untrusted.aggregator"
LOG = logging.getLogger("hdpmf.events")


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def __init__(self, **always: str) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._always,
        }
        if record.name == LOG.name:
            line |= {"event": record.msg, **getattr(record, "fields", {})}
        elif record.name.startswith(OURS):
            line |= {"event": record.name.removeprefix(f"{OURS}."), "said": record.getMessage()}
        else:  # without what it filled in: addresses, or what is stored
            line |= {
                "event": "library",
                "source": record.name,
                "said": str(record.msg).splitlines()[0][:200],
            }
        if record.exc_info and record.exc_info[1] is not None:
            line |= describe_error(record.exc_info[1])
        return json.dumps(line)


def describe_error(error: BaseException) -> dict[str, object]:
    """An error's kind and where it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    # Our own texts have nothing private.
    said = {"said": str(error)} if isinstance(error, HdpmfError) else {}
    return {
        "error": type(error).__name__,
        **said,
        "at": [f"{Path(p.filename).name}:{p.lineno} {p.name}" for p in frames[-6:]],
    }


def event(
    name: str, level: int = logging.INFO, error: BaseException | None = None, **fields: object
) -> None:
    """Say that something happened."""
    LOG.log(level, name, extra={"fields": fields}, exc_info=error)


def remove_ids(text: str) -> str:
    """Remove device ids and keys. Runs are named by twelve digits, devices by more."""
    return re.sub(r"[0-9a-fA-F]{16,}", "(id)", text)


@contextmanager
def logging_json(stream: TextIO, **always: str) -> Iterator[None]:
    """Write this package's logs to ``stream`` as JSON while inside.

    Of what modules log for people only the words are kept, not what they filled in.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(**always))
    logger = logging.getLogger("hdpmf")
    before = (logger.handlers, logger.propagate, logger.level)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])


def log_to_stderr(**always: str) -> None:
    """From now on, with these fields in every line."""
    log_to(logging.StreamHandler(sys.stderr), **always)


def log_to(handler: logging.Handler, **always: str) -> None:
    """Write all that happens to this handler from now on, with these fields in every line."""
    handler.setFormatter(JsonLines(**always))
    for name, level in (
        (OURS, logging.INFO),
        (LOG.name, logging.INFO),
        ("uvicorn.error", logging.WARNING),
        ("asyncio", logging.ERROR),
        ("opentelemetry", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    for name in (
        "uvicorn.access",
        "httpx",
        "httpcore",
        "sqlalchemy",
    ):  # these would name addresses, or what is stored
        logging.getLogger(name).setLevel(logging.CRITICAL)


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
