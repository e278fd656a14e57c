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
    "HdpmfNothingWatched": {f"up{{{_AT}}}": during("1", "_", "1")},
    "HdpmfDown": {f"up{{{_AT}}}": during("1", "0", "1")},
    "HdpmfWrongTarget": {
        f'hdpmf_build_info{{{_AT},role="leader",version="1",python="3"}}': during(
            "1", "stale _", "1"
        )
    },
    "HdpmfRestarting": {f"process_start_time_seconds{{{_AT}}}": "1x9 1+60x129 7741x260"},
    "HdpmfFilesRunningOut": {
        f"process_open_fds{{{_AT}}}": during("10", "95", "10"),
        f"process_max_fds{{{_AT}}}": "100x400",
    },
    "HdpmfTooFewDevices": of_recommender("devices"),
    "HdpmfCertificateEnding": of_recommender("certificate"),
    "HdpmfRunGivenUpOrStopped": of_recommender("run"),
    "HdpmfDiskNearlyFull": of_recommender("disk"),
    "HdpmfFolderUnreadable": of_recommender("unreadable"),
    "HdpmfCertificateEnded": {
        'hdpmf_recommender_certificate_seconds{certificate="server"}': during("9e6", "8e4", "9e6")
    },
    "HdpmfServerTroubles": of_server("troubles_total", ',what="TransportError"', _GROWS),
    "HdpmfServerErrors": of_server("answers_total", ',resource="task",status="500"', _GROWS),
    "HdpmfServerOverloaded": of_server("uploads_total", ',outcome="busy"', _GROWS),
    "HdpmfServerSlow": {
        **of_server("transaction_seconds_bucket", ',kind="write",le="1.0"', "0x400"),
        **of_server("transaction_seconds_bucket", ',kind="write",le="5.0"', _GROWS),
        **of_server("transaction_seconds_bucket", ',kind="write",le="+Inf"', _GROWS),
    },
    "HdpmfReportsWaiting": {
        **of_server("waiting_reports", "", during("0", "5", "0")),
        **of_server("aggregated_reports_total", "", "7x400"),
    },
    "HdpmfReportsLost": of_server("uploads_total", ',outcome="failed"', _GROWS),
    "HdpmfReportsRejected": of_server("rejected_reports", ',reason="hpke_decrypt_error"', _GROWS),
    "HdpmfClocksDiffer": of_server("clock_skew_seconds", "", during("1", "-31", "-2")),
    "HdpmfPartnerAway": of_server("partner_reachable", "", during("1", "0", "1")),
    "HdpmfServerDiskNearlyFull": {
        **of_server("free_bytes", "", during("9e11", "4e9", "9e11")),
        **of_server("disk_bytes", "", "1e12x400"),
    },
    "HdpmfServerCertificateEnding": of_server(
        "certificate_seconds", ',certificate="server"', during("2e6", "1e6", "3e6")
    ),
}


def test_every_alert_as_it_is_shipped_fires_on_its_series_alone_and_ends(tmp_path: Path) -> None:
    assert set(SERIES) == set(alert_names())
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
        for alert, fault in SERIES.items()
    ]
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    promtool("check", "rules", str(ALERTS), cwd=tmp_path)
    promtool("test", "rules", "tests.yml", cwd=tmp_path)
