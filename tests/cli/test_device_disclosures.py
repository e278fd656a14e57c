"""``hdpmf device ledger`` and ``hdpmf device receipt``."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hdpmf.common.protocol.task import task_id
from tests.unit.device.reporting_world import PERIOD, STARS, World, make_store, make_task, reporter
from tests.world import live

from .conftest import Call
from .device_world import pay

pytestmark = pytest.mark.slow


def test_ledger_says_what_was_sent_and_what_it_reveals(rated: Path, call: Call) -> None:
    assert "None of your ratings have ever been sent" in call("device", "ledger", rated).out
    pay(rated)
    said = " ".join(call("device", "ledger", rated).out.split())
    for words in (
        "films.example:9443",
        "for 3 ratings",
        "secure sum",
        "sees one sum over devices",
        "PROVED",
        "at most 63 %",
    ):
        assert words in said, words
    document = call("device", "ledger", rated, "--json").json
    (run,) = document["runs"]
    assert run["cost"]["pure_epsilon"] == pytest.approx(0.5)
    assert (run["cost"]["status"], run["ratings"], run["sent"]) == ("proved", 3, 1)
    assert document["spent_total"] == 1.5
    together = document["spent_together"]
    assert (together["proved"], together["delta"]) == (True, 1e-5)
    assert together["pure_epsilon"] == pytest.approx(1.5)
    assert together["epsilon_at_delta"] == pytest.approx(1.5, rel=1e-3)
    assert "the ratings of one user have used epsilon 1.5" in said
    assert [one["action"] for one in document["entries"]] == ["agreed", "sent"]


def test_ledger_is_honest_about_what_protects_nothing(
    rated: Path, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "all.toml").write_text('methods = ["mf"]\nallow_unprotected = true\n')
    assert call("device", "policy", rated, "--set", tmp_path / "all.toml").code == 0
    pay(rated, method="mf", view="messages", status="none")
    said = " ".join(call("device", "ledger", rated).out.split())
    assert "NO GUARANTEE" in said
    assert "infinitely much" in said
    document = call("device", "ledger", rated, "--json").json
    assert (document["spent_total"], document["unprotected"]) == (None, True)
    assert document["entries"][1]["epsilon"] is None
    assert "without any protection" in call("device", "status", rated).out


RUN = task_id(make_task()).hex()


@pytest.fixture
def reported(tmp_path: Path) -> Path:
    """A store that has reported once."""
    where, world = tmp_path / "me.sqlite", World()
    world.publish(task=make_task())
    with make_store(path=where) as store:
        live(reporter(store, world), world, PERIOD + 200)
    assert len(world.uploads) == 1
    return where


def test_a_receipt_is_written_and_checked(tmp_path: Path, reported: Path, call: Call):
    file = tmp_path / "receipt.json"
    done = call("device", "receipt", reported, RUN[:8], "--out", file)
    assert done.code == 0
    assert "holds no rating" in done.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not any(item in file.read_text() for item in STARS)
    reported.unlink()
    said = " ".join(call("device", "receipt", "--check", file).out.split())
    assert "The signature holds" in said
    assert "no proof that anybody got the bytes" in said
    assert f"Run {RUN}, asked for by https://films.example." in said
    assert "Summed by Leaders (https://leaders.example:8443) and Helpers" in said
    assert (
        "Terms: hdp-sum, view two-servers, epsilon 0.5, 1 round, in sums over 100 people at least."
        in said
    )
    assert "The leader answered 201 at" in said
    told = call("device", "receipt", "--check", file, "--json").json
    assert told["signature_holds"]
    assert told["receipt"]["run"] == RUN
    file.write_text(file.read_text().replace("201", "202"))
    wrong = call("device", "receipt", "--check", file)
    assert wrong.code == 2
    assert "does not hold" in wrong.err
    assert wrong.out == ""
