"""What is counted can be looked at: as Prometheus text, on a terminal, and as plain lines."""

from __future__ import annotations

import importlib
import re
import sys
import time
import urllib.error
import urllib.request

import pytest

from hdpmf.common.base.progress import clock, size
from hdpmf.errors import ConfigError, MissingExtraError
from hdpmf.untrusted.service.metrics import Metrics, progress_line
from hdpmf.untrusted.service.telemetry import endpoint


def counted() -> Metrics:
    metrics = Metrics(stage="task 12 takes reports", runs_done=1)
    metrics.requests.update({200: 5, 410: 1})
    return metrics


def test_the_endpoint_serves_all_counts_on_this_machine_only() -> None:
    with endpoint(counted(), 0) as port:
        text = (
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        )
        with pytest.raises(ConfigError, match="choose another port"), endpoint(counted(), port):
            pass
    values = dict(re.findall(r"^(hdpmf_recommender_\S+) (\S+)$", text, re.MULTILINE))
    assert values["hdpmf_recommender_runs_total"] == "1.0"
    assert values['hdpmf_recommender_requests_total{status="410"}'] == "1.0"
    assert values['hdpmf_recommender_requests_total{status="404"}'] == "0.0"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_without_the_package_the_endpoint_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, endpoint.__module__)
    with pytest.raises(MissingExtraError, match="hdpmf\\[federation\\]"):
        importlib.import_module(endpoint.__module__)


def test_the_line_for_people_says_how_long_a_wait_is() -> None:
    metrics = counted()
    assert progress_line(metrics) == "task 12 takes reports"
    metrics.until = time.time() + 59.5
    assert progress_line(metrics).startswith("task 12 takes reports, ")


def test_times_and_sizes_for_people() -> None:
    assert [clock(None), clock(59.6), clock(3725)] == ["?", "1:00", "1:02:05"]
    assert [size(12), size(2_000), size(3.5e6), size(7e9)] == ["12 B", "2.0 KB", "3.5 MB", "7.0 GB"]
