"""The systemd units: what they run can be typed, and nobody is root."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from hdpmf.cli.main import app
from tests.deploy.page import ROOT, section, unit_command

SERVICES = ("aggregator", "recommender")
HARDENING = {
    "User": "hdpmf",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ReadWritePaths": "/srv/hdpmf",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "CapabilityBoundingSet": "",
    "UMask": "0077",
    "LimitCORE": "0",
}


def options(unit: str) -> dict[str, str]:
    text = (ROOT / "deploy" / f"{unit}.service").read_text("utf-8")
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("unit", SERVICES)
def test_a_service_has_no_rights_that_it_does_not_need(unit: str) -> None:
    found = options(unit)
    assert {name: found.get(name) for name in HARDENING} == HARDENING


def test_services_start_by_themselves_and_what_they_start_with_begins_no_run() -> None:
    assert (
        options("aggregator")["WantedBy"]
        == options("recommender")["WantedBy"]
        == "multi-user.target"
    )
    assert options("aggregator")["Restart"] == options("recommender")["Restart"] == "always"
    assert unit_command("recommender").split()[1:3] == ["recommender", "serve"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "deploy").glob("*.service")), ids=lambda path: path.stem
)
def test_what_a_unit_runs_can_be_typed(path: Path) -> None:
    program, *words = unit_command(path.stem).split()
    assert program.endswith("/hdpmf/bin/hdpmf")
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)


def test_the_page_starts_every_service() -> None:
    started = {
        line.words[-1]
        for number in range(2, 8)
        for line in section(number)
        if "systemctl" in line.words
    }
    assert started == {f"hdpmf-{unit}" for unit in SERVICES}


def test_metrics_are_on_where_the_example_for_prometheus_asks_for_them() -> None:
    asked = (ROOT / "deploy" / "prometheus.yml").read_text("utf-8")
    (port,) = re.findall(r'targets: \["127\.0\.0\.1:(\d+)"\]', asked)
    assert f"--metrics {port}" in unit_command("recommender")
    for example in ("compose.yml", "kubernetes/recommender.yml"):
        assert f'"--metrics", "0.0.0.0:{port}"' in (ROOT / "deploy" / example).read_text("utf-8")
