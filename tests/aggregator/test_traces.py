"""Traces of two real servers, at a receiver of OTLP here: what is in them, and what is not."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.base.traces import ENDPOINT
from tests.aggregator.server_processes import HELPER, LEADER, Pair, make_task

DEVICE_TRACE = "0af7651916cd43dd8448eb211c80319c"
ALLOWED = {"status", "reports", "error.type"}


@contextmanager
def receiver() -> Iterator[tuple[str, list[bytes]]]:
    """Receive traces while inside; yield the endpoint and the bodies of all requests."""
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
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[bytes], list[str | bytes]]:
    """Return what was exported from a whole period, and what may be in none of it."""
    with receiver() as (endpoint, bodies):
        environment = {ENDPOINT: endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
        with Pair(tmp_path_factory.mktemp("pair"), environment=environment) as pair:
            pair.start(HELPER, LEADER)
            asked = make_task(pair.servers, pair.collector.card, seconds=8)
            pair.give(asked)
            reports = [asked.report([200, 150, 190, place]) for place in range(3)]
            linked = {"traceparent": f"00-{DEVICE_TRACE}-b7ad6b7169203331-01"}
            for report in reports:
                assert pair.upload(asked, report, linked).status_code == 201
            assert pair.upload(asked, reports[0][:-1], linked).status_code == 400
            assert pair.collect(asked, 90)[1] == 3
        secret: list[str | bytes] = [DEVICE_TRACE, bytes.fromhex(DEVICE_TRACE), "127.0.0.1"]
        for number in (asked.id, *(report[:16] for report in reports)):
            secret += [number, number.hex(), id_to_text(number)]
    return bodies, secret


def resources(bodies: list[bytes]) -> list[ResourceSpans]:
    return [
        group
        for body in bodies
        for group in ExportTraceServiceRequest.FromString(body).resource_spans
    ]


def spans(bodies: list[bytes], service: str) -> list[Span]:
    return [
        span
        for group in resources(bodies)
        if any(entry.value.string_value == service for entry in group.resource.attributes)
        for scope in group.scope_spans
        for span in scope.spans
    ]


def test_both_servers_work_is_one_trace(traced: tuple[list[bytes], list[str | bytes]]) -> None:
    leader, helper = (spans(traced[0], f"hdpmf-{role}") for role in (LEADER, HELPER))
    assert {
        "answer reports", "store reports", "aggregate reports", "ask partner", "collect batch",
        "read transaction", "write transaction",
    } <= {span.name for span in leader}  # fmt: skip
    asking = {span.span_id: span for span in leader if span.name == "ask partner"}
    begun = {span.trace_id for span in leader if span.name == "aggregate reports"}
    checks = [span for span in helper if span.name == "check reports"]
    assert checks
    for check in checks:
        assert check.trace_id in begun
        assert asking[check.parent_span_id].trace_id == check.trace_id
    closing = [span for span in helper if span.name == "close batch"]
    assert {span.parent_span_id for span in closing} <= set(asking)
    inside = {span.parent_span_id for span in helper if span.name == "write transaction"}
    assert inside & {span.span_id for span in checks}
    stored = [span for span in leader if span.name == "store reports"]
    assert sum(entry.value.int_value for span in stored for entry in span.attributes) >= 3


def test_no_trace_links_uploads_or_is_taken_from_a_device(
    traced: tuple[list[bytes], list[str | bytes]],
) -> None:
    uploads = [span for span in spans(traced[0], "hdpmf-leader") if span.name == "answer reports"]
    assert len(uploads) == 4
    assert len({span.trace_id for span in uploads}) == 4
    assert not any(span.parent_span_id or span.links for span in uploads)


def test_spans_say_nothing_of_devices(traced: tuple[list[bytes], list[str | bytes]]) -> None:
    bodies, secret = traced
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


def test_nothing_is_imported_or_sent_without_an_endpoint(monkeypatch) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    program = """
import sys
import hdpmf.untrusted.aggregator.prefork, hdpmf.untrusted.service.telemetry
from hdpmf.common.base import traces
with traces.exporting("x"), traces.span("y", {"traceparent": "z"}, reports=1):
    traces.count(reports=2)
    assert traces.trace_headers() == {}
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
