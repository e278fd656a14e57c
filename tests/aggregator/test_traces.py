"""Traces of two real servers and of runs, at a receiver of OTLP: what is in them, and what not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.base.logs import ENDPOINT, exporting
from hdpmf.common.net.https import HttpsClient
from hdpmf.common.net.sum_servers import ServerClient
from hdpmf.errors import TransportError
from hdpmf.untrusted.aggregator.leader import HelperClient
from tests.aggregator.otlp import check_spans, receiver, spans
from tests.aggregator.server_processes import HELPER, LEADER, Pair, make_task

DEVICE_TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[bytes], list[str | bytes]]:
    """Return what was exported from a whole period, and what may be in none of it."""
    with receiver() as (environment, bodies):
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


def test_both_servers_work_is_one_trace(traced: tuple[list[bytes], list[str | bytes]]) -> None:
    leader, helper = (spans(traced[0], f"hdpmf-{role}") for role in (LEADER, HELPER))
    assert {
        "answer reports", "store reports", "aggregate reports", "ask server", "collect batch",
        "read transaction", "write transaction",
    } <= {span.name for span in leader}  # fmt: skip
    asking = {span.span_id: span for span in leader if span.name == "ask server"}
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


def test_only_the_two_servers_pass_a_trace_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Pair(tmp_path).folders[LEADER].keys
    asked = Mock(side_effect=TransportError("the server of 'South' is away"))
    monkeypatch.setattr(HttpsClient, "request", asked)
    with receiver() as (environment, bodies):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with exporting("hdpmf-recommender"):
            for client in (ServerClient(keys.partner, keys.party), HelperClient(keys)):
                with client, pytest.raises(TransportError):
                    client.now()
    sent = ["traceparent" in call.kwargs["headers"] for call in asked.call_args_list]
    assert sent == [False, True]
    assert [span.name for span in spans(bodies, "hdpmf-recommender")] == ["ask server"] * 2
    check_spans(bodies, ["South"])


def test_nothing_is_imported_or_sent_without_an_endpoint(monkeypatch) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    program = """
import sys
import hdpmf.untrusted.aggregator.serve, hdpmf.untrusted.service.service
from hdpmf.common.base import logs as traces
with traces.exporting("x"), traces.span("y", {"traceparent": "z"}, reports=1):
    traces.count(reports=2)
    assert traces.trace_headers() == {}
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
