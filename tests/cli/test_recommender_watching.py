"""An operator's look at the recommender: certificates, alerts, and a status that is drawn again
and again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Call

pytest.importorskip("cryptography")

from hdpmf.cli.options import host_and_port
from hdpmf.cli.output import json_output, note
from hdpmf.cli.recommender_run import _log
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


def test_with_json_every_line_of_the_log_is_json_notes_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with json_output(True), _log(Metrics()) as say:
        say("run 0123456789ab begins")
        note("listening")
    note("for people again")
    *lines, last = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["said"] for line in lines] == ["run 0123456789ab begins", "listening"]
    assert last == "for people again"


def test_counts_are_served_on_this_machine_unless_said_otherwise() -> None:
    assert host_and_port("9500") == ("127.0.0.1", 9500)
    assert host_and_port("0.0.0.0:9500") == ("0.0.0.0", 9500)
    assert host_and_port("[::1]:9500") == ("::1", 9500)
    for wrong in ("", "here", "9500:", "99999", "-1"):
        with pytest.raises(ConfigError, match="PORT"):
            host_and_port(wrong)
