"""An operator's look at the recommender: certificates, alerts, and a status that is drawn again
and again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Call

pytest.importorskip("cryptography")

from hdpmf.cli.output import note
from hdpmf.cli.recommender.run import MonitoringOptions
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service.metrics import Metrics

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(call: Call, tmp_path: Path) -> Path:
    items = tmp_path / "items.csv"
    items.write_text("item,title\n7,Seven\n3,Three\n")
    assert (
        call(
            "recommender", "init", tmp_path / "rec", "--items", items, "--reach", "shop.example"
        ).code
        == 0
    )
    return tmp_path / "rec"


def test_certificates_are_shown_and_the_servers_is_renewed(call: Call, folder: Path) -> None:
    shown = call("recommender", "certificates", folder)
    assert shown.code == 0
    assert "authority: ends on " in shown.out
    assert "server: ends on " in shown.out
    assert "shop.example" in shown.out
    tls = folder / "tls"
    authority, server = (tls / "authority.pem").read_bytes(), (tls / "server.pem").read_bytes()
    renewed = call("recommender", "certificates", folder, "--renew", "--json")
    assert "within an hour" in renewed.err
    rows = {row["name"]: row for row in renewed.json["certificates"]}
    assert (
        396 * 86_400
        < rows["server"]["seconds_left"]
        <= 397 * 86_400
        < rows["authority"]["seconds_left"]
    )
    assert (tls / "authority.pem").read_bytes() == authority
    assert (tls / "server.pem").read_bytes() != server


def test_an_authority_is_announced_and_then_takes_over(call: Call, folder: Path) -> None:
    tls = folder / "tls"
    before = (tls / "authority.pem").read_bytes()
    assert call("recommender", "certificates", folder, "--change-over").code == 2
    both = call("recommender", "certificates", folder, "--new-authority", "--change-over")
    assert both.code == 2
    assert "one at a time" in both.err
    announced = call("recommender", "certificates", folder, "--new-authority", "--json")
    assert [row["name"] for row in announced.json["certificates"]] == [
        "authority",
        "successor",
        "server",
    ]
    assert "restarted" in announced.err
    assert (tls / "authority.pem").read_bytes() == before
    assert "successor: ends on " in call("recommender", "certificates", folder).out
    changed = call("recommender", "certificates", folder, "--change-over", "--json")
    assert changed.json["changed_over"] is True
    assert (tls / "authority.pem").read_bytes() != before
    assert [row["name"] for row in changed.json["certificates"]] == ["authority", "server"]


def test_with_json_every_line_of_the_log_is_json_notes_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with MonitoringOptions(log_format="json").log(Metrics()) as say:
        say("run 0123456789ab begins")
        note("listening")
    note("for people again")
    *lines, last = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["said"] for line in lines] == ["run 0123456789ab begins", "listening"]
    assert last == "for people again"
    with (
        pytest.raises(ConfigError, match="text or json"),
        MonitoringOptions(log_format="xml").log(Metrics()),
    ):
        pass
