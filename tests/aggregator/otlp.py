"""A receiver of OTLP on this machine, and what it may get."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from hdpmf.common.base.logs import ENDPOINT

ALLOWED = {"status", "reports", "error.type"}


@contextmanager
def receiver() -> Iterator[tuple[dict[str, str], list[bytes]]]:
    """Receive traces while inside; yield the environment for it and the bodies of all requests."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        yield {ENDPOINT: endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}, bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def resources(bodies: list[bytes]) -> list[ResourceSpans]:
    return [
        group
        for body in bodies
        for group in ExportTraceServiceRequest.FromString(body).resource_spans
    ]


def services(bodies: list[bytes]) -> set[str]:
    return {_service(group) for group in resources(bodies)}


def spans(bodies: list[bytes], service: str) -> list[Span]:
    return [
        span
        for group in resources(bodies)
        if _service(group) == service
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _service(group: ResourceSpans) -> str:
    (name,) = (
        entry.value.string_value
        for entry in group.resource.attributes
        if entry.key == "service.name"
    )
    return str(name)


def check_spans(bodies: list[bytes], secret: Iterable[str | bytes]) -> None:
    """Check that spans have counts and kinds of errors alone, and none of the secrets."""
    for group in resources(bodies):
        assert all(
            entry.key.startswith(("service.", "telemetry.")) for entry in group.resource.attributes
        )
        for scope in group.scope_spans:
            for span in scope.spans:
                assert not span.events
                assert not span.status.message
                for entry in span.attributes:
                    assert entry.key in ALLOWED
                    words = entry.value.string_value
                    assert words == "" or (entry.key == "error.type" and words.isidentifier())
    whole = b"".join(bodies)
    for word in secret:
        assert (word.encode() if isinstance(word, str) else word) not in whole
