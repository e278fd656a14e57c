"""``hdpmf recommender``: set up, enrol, look, and refuse."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .conftest import Call

pytest.importorskip("cryptography")

from hdpmf.untrusted.service.daemon import Daemon
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.participants import Admission

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(call: Call, tmp_path: Path) -> Path:
    items = tmp_path / "items.csv"
    items.write_text("item,title,genres,year\n7,Seven,Crime|Drama,1995\n3,Three,Drama,\n5,Five,,\n")
    made = call(
        "recommender", "init", tmp_path / "shop", "--items", items, "--scale", 1, 10,
        "--name", "shop", "--json",
    ).json  # fmt: skip
    assert (made["items"], made["scale"]) == (3, [1.0, 10.0, 1.0])
    assert made["address"] == "https://localhost:9443"
    assert "BEGIN CERTIFICATE" in (tmp_path / "shop" / "tls" / "authority.pem").read_text()
    return tmp_path / "shop"


def enrol(folder: Path, count: int) -> None:
    with ServiceFolder(folder).participants() as participants:
        participants.add([Admission(bytes([each]) * 32) for each in range(count)])


def test_status_counts_who_is_enrolled(call: Call, folder: Path) -> None:
    enrol(folder, 2)
    assert "2 people are enrolled" in call("recommender", "status", folder).out
    state = call("recommender", "status", folder, "--json").json
    assert (state["runs"], state["model"], state["name"]) == ([], None, "shop")


def test_it_proposes_what_a_run_asks_of_a_person(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServiceFolder, "people", 100_000)
    result = call("recommender", "status", folder, "--json")
    assert result.json["proposal"] == {"epsilon": 1, "life": 4, "runs": 11}
    assert "11 such runs" in call("recommender", "status", folder).out


def test_a_run_that_cannot_be_says_why(call: Call, tmp_path: Path, folder: Path) -> None:
    enrol(folder, 1)
    for options, said in (
        (("--give-up",), "no unfinished run"),
        ((), "no pair of servers is pinned"),
    ):
        ended = call("recommender", "run", folder, *options)
        assert (ended.code, said in ended.err) == (2, True), ended.err
    assert "is no recommender" in call("recommender", "serve", tmp_path / "nothing").err


def test_sigterm_ends_serving_in_order(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Daemon, "live", lambda self: os.kill(os.getpid(), signal.SIGTERM))
    ended = call("recommender", "serve", folder)
    assert (ended.code, "continues at the next start" in ended.err) == (0, True)
    assert signal.getsignal(signal.SIGTERM) is before
    assert not ServiceFolder(folder).is_serving()
