"""Each alert of the shipped rules fires on its series alone, and ends (``promtool test rules``)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.deploy.prometheus import ALERTS, alert_names, missing, promtool

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.skipif(
    "CI" not in os.environ and bool(missing()), reason="needs apt-get install prometheus"
)

_AT = 'job="hdpmf-server",instance="sums:9444"'
_BUILD = f'hdpmf_build_info{{{_AT},role="leader",version="1",python="3"}}'
_HEALTHY = {f"up{{{_AT}}}": "1x400", _BUILD: "1x400"}


def during(before: str, fault: str, after: str) -> str:
    """Values of a series: ten minutes, then 130 minutes of a fault, then 260 minutes."""
    return f"{before}x9 {fault}x129 {after}x260"


def of_recommender(alert: str) -> dict[str, str]:
    name = f'hdpmf_alert{{job="hdpmf-recommender",instance="rec:9500",name="{alert}"}}'
    return {name: during("0", "1", "0")}


def of_server(metric: str, labels: str, values: str) -> dict[str, str]:
    return {f"hdpmf_aggregator_{metric}{{{_AT}{labels}}}": values}


_GROWS = "0x9 0+1x129 129x260"

SERIES = {
    "HdpmfDown": {f"up{{{_AT}}}": during("1", "0", "1")},
    "HdpmfRestarting": {f"process_start_time_seconds{{{_AT}}}": "1x9 1+60x129 7741x260"},
    "HdpmfTooFewPeople": of_recommender("devices"),
    "HdpmfRunGivenUpOrStopped": of_recommender("run"),
    "HdpmfDiskNearlyFull": of_recommender("disk"),
    "HdpmfFolderUnreadable": of_recommender("unreadable"),
    "HdpmfServerErrors": of_server("answers_total", ',resource="task",status="500"', _GROWS),
    "HdpmfServerOverloaded": of_server("uploads_total", ',outcome="busy"', _GROWS),
    "HdpmfReportsWaiting": {
        **of_server("waiting_reports", "", during("0", "5", "0")),
        **of_server("aggregated_reports_total", "", "7x400"),
    },
    "HdpmfReportsRejected": of_server("rejected_reports", ',reason="hpke_decrypt_error"', _GROWS),
    "HdpmfClocksDiffer": of_server("clock_skew_seconds", "", during("1", "-31", "-2")),
    "HdpmfPartnerAway": of_server("partner_reachable", "", during("1", "0", "1")),
}


FURTHER = {
    "HdpmfDown": {f"up{{{_AT}}}": during("1", "_", "1")},  # nothing is watched
    "HdpmfServerErrors": of_server("troubles_total", ',what="TransportError"', _GROWS),
    "HdpmfDiskNearlyFull": {
        **of_server("free_bytes", "", during("9e11", "4e9", "9e11")),
        **of_server("disk_bytes", "", "1e12x400"),
    },
}
NO_FAULTS = (
    {**of_server("free_bytes", "", "9e8x400"), **of_server("disk_bytes", "", "1e9x400")},
    of_server("uploads_total", ',outcome="failed"', _GROWS),  # devices come back
)


def test_every_alert_as_it_is_shipped_fires_on_its_series_alone_and_ends(tmp_path: Path) -> None:
    assert set(SERIES) == set(alert_names())
    assert len(SERIES) <= 12
    checks = {"9m": [], "130m": [1], "395m": []}
    tests = [
        {
            "name": alert,
            "interval": "1m",
            "input_series": [
                {"series": name, "values": values} for name, values in (_HEALTHY | fault).items()
            ],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": when,
                    "exp_samples": [
                        {"labels": f'{{alertname="{alert}"}}', "value": value} for value in values
                    ],
                }
                for when, values in checks.items()
            ],
        }
        for alert, fault in (*SERIES.items(), *FURTHER.items())
    ]
    tests += [
        {
            "name": "no fault",
            "interval": "1m",
            "input_series": [
                {"series": name, "values": values} for name, values in (_HEALTHY | fine).items()
            ],
            "promql_expr_test": [{"expr": "ALERTS", "eval_time": "130m", "exp_samples": []}],
        }
        for fine in NO_FAULTS
    ]
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    promtool("check", "rules", str(ALERTS), cwd=tmp_path)
    promtool("test", "rules", "tests.yml", cwd=tmp_path)
