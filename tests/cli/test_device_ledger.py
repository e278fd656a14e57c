"""``hdpmf device ledger``: what was sent, and what it reveals."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.private.device.disclosures.ledger import Entry
from hdpmf.private.device.store.device_store import DeviceStore

from .conftest import Call
from .device_world import pay


def test_ledger_says_what_was_sent_and_what_it_reveals(rated: Path, call: Call) -> None:
    assert "Nothing was ever sent" in call("device", "ledger", rated).out
    pay(rated)
    said = " ".join(call("device", "ledger", rated).out.split())
    for words in (
        "films.example:9443",
        "for 3 ratings",
        "secure sum",
        "sees one sum over devices",
        "PROVED",
        "62 %",
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
    assert "the ratings of one user have spent epsilon 1.5 together" in said
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


def test_ledger_shows_the_last_entries_unless_asked_for_all(rated: Path, call: Call) -> None:
    for number in range(13):
        with DeviceStore.open(rated) as store:
            store.ledger.note(
                Entry(
                    recommender="r",
                    run="cd" * 16,
                    number=number,
                    method="hdpmf",
                    view="sums",
                    epsilon=1.0,
                    status="nominal",
                    action="refused",
                    words=f"refusal {number}.",
                )
            )
    pay(rated)
    for _ in range(10):
        with DeviceStore.open(rated) as store:
            store.ledger.note(
                Entry(
                    recommender="r",
                    run="cd" * 16,
                    number=99,
                    method="hdpmf",
                    view="sums",
                    epsilon=1.0,
                    status="nominal",
                    action="refused",
                    words="later",
                )
            )
    short = call("device", "ledger", rated).out
    assert "refusal 0." not in short
    assert "refusal 12." in short
    assert "Refused: 23" in short
    assert "refusal 0." in call("device", "ledger", rated, "--all").out
