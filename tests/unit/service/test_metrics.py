"""What is counted can be looked at: as Prometheus text, on a terminal, and as plain lines."""

from __future__ import annotations

import importlib
import io
import re
import sys
import urllib.error
import urllib.request

import pytest
from rich.console import Console

from hdpmf.common.base.progress import clock, size
from hdpmf.errors import ConfigError, MissingExtraError
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.progress import picture
from hdpmf.untrusted.service.telemetry import endpoint


def counted() -> Metrics:
    metrics = Metrics()
    metrics.method, metrics.rounds, metrics.stage = "hdpmf", 4, "round 2 of 4"
    metrics.bytes_in, metrics.bytes_out, metrics.present, metrics.members = 5_000, 2_500_000, 7, 6
    metrics.refusals.update({"policy": 2, "shape": 1})
    metrics.round_begins(1)
    metrics.round_ends(6)
    metrics.round_begins(2)
    return metrics


def test_the_endpoint_serves_all_counts_on_this_machine_only() -> None:
    with endpoint(counted(), 0) as port:
        text = (
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        )
        with pytest.raises(ConfigError, match="choose another port"), endpoint(counted(), port):
            pass
    values = dict(re.findall(r"^(hdpmf_recommender_\S+) (\S+)$", text, re.MULTILINE))
    assert values["hdpmf_recommender_rounds_total"] == "1.0"
    assert values["hdpmf_recommender_participants"] == "6.0"
    assert values["hdpmf_recommender_received_bytes_total"] == "5000.0"
    assert values['hdpmf_recommender_refusals_total{reason="policy"}'] == "2.0"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_without_the_package_the_endpoint_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, endpoint.__module__)
    with pytest.raises(MissingExtraError, match="hdpmf\\[federation\\]"):
        importlib.import_module(endpoint.__module__)


def test_the_live_view_shows_the_round_and_the_refusals() -> None:
    stream = io.StringIO()
    Console(file=stream, width=140).print(picture(counted()))
    for word in ("hdpmf", "round 2 of 4", "2.5 MB", "policy 2, shape 1"):
        assert word in stream.getvalue()


def test_times_and_sizes_for_people() -> None:
    assert [clock(None), clock(59.6), clock(3725)] == ["?", "1:00", "1:02:05"]
    assert [size(12), size(2_000), size(3.5e6), size(7e9)] == ["12 B", "2.0 KB", "3.5 MB", "7.0 GB"]
