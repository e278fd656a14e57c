"""The example dashboard and alert rules: every metric and label that they name is one that the
exporters have.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import generate_latest

from hdpmf.untrusted.aggregator.metrics import AggregatorMetrics
from hdpmf.untrusted.aggregator.serve import open_server
from hdpmf.untrusted.service.health import NAMES, FolderHealth
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.telemetry import UNREADABLE, RecommenderMetrics
from tests.aggregator.server_processes import LEADER, Pair

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD, RULES = DEPLOY / "grafana-dashboard.json", DEPLOY / "alerts.yml"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Every name that can be asked for."""
    folder = Pair(tmp_path_factory.mktemp("servers")).folders[LEADER]
    registry = RecommenderMetrics(Metrics(), lambda: FolderHealth(1, ()))
    with open_server(folder) as server:
        metrics = AggregatorMetrics()
        metrics.watch(folder, server)
        server.partner_clock.compare(time.time())
        text = (generate_latest(registry) + metrics.text()).decode()
    names = {"up"}  # Prometheus' own
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        names |= (
            {f"{name}_{part}" for part in ("bucket", "sum", "count")}
            if kind == "histogram"
            else {name}
        )
    return names


def named(text: str) -> set[str]:
    return set(re.findall(r"\b(?:hdpmf_\w+|process_\w+|up(?={))", text))


def expressions() -> list[str]:
    return [
        target["expr"]
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel.get("targets", ())
    ]


def test_every_metric_of_the_dashboard_exists(exported: set[str]) -> None:
    for expression in expressions():
        assert named(expression), expression
        assert named(expression) <= exported, expression


def test_every_metric_of_the_rules_exists(exported: set[str]) -> None:
    asked = re.findall(r"^ +expr: (.+)$", RULES.read_text(), re.MULTILINE)
    assert len(asked) == RULES.read_text().count("- alert:")
    for expression in asked:
        assert named(expression), expression
        assert named(expression) <= exported, expression


def test_the_rules_have_every_alert_by_name() -> None:
    assert set(re.findall(r'hdpmf_alert\{name="(\w+)"\}', RULES.read_text())) == {
        *NAMES,
        UNREADABLE,
    }
