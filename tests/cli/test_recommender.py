"""``hdpmf recommender``: set up, enrol, look, and refuse."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from .conftest import Call

pytest.importorskip("cryptography")

from hdpmf.common.protocol.identity import Identity
from hdpmf.untrusted.service.daemon import Daemon, Request, request_in
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.service import Service

pytestmark = pytest.mark.slow


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "items.csv"
    path.write_text(
        'item,title,genres,year\n7,Seven,Crime|Drama,1995\n3,Three,Drama,\n5,"Five, or so",,2001\n'
    )
    return path


def card(folder: Path, number: int, users: int = 1) -> Path:
    path = folder / f"card{number}.json"
    identity = Identity.generate().public.hex()
    fields = {"name": f"device {number}", "identity": identity, "users": users}
    path.write_text(json.dumps(fields))
    return path


def test_a_recommender_is_set_up_and_devices_are_enrolled(
    call: Call, tmp_path: Path, items: Path
) -> None:
    folder = tmp_path / "shop"
    made = call(
        "recommender",
        "init",
        folder,
        "--items",
        items,
        "--scale",
        1,
        10,
        "--name",
        "shop",
        "--json",
    ).json
    assert made["items"] == 3
    assert made["scale"] == [1.0, 10.0, 1.0]
    assert made["address"] == "https://localhost:9443"
    assert Path(made["authority"]).read_text().startswith("-----BEGIN CERTIFICATE-----")
    cards = [card(tmp_path, number, users=number) for number in (1, 2, 3)]
    found = call("recommender", "enroll", folder, *cards, "--json").json
    assert [one["users"] for one in found["devices"]] == [1, 2, 3]
    again = call("recommender", "enroll", folder, cards[0], "--json")
    assert again.code == 2
    assert "two devices have the same name 'device 1'" in again.json["error"]["message"]
    fewer = call("recommender", "enroll", folder, "--remove", "device 2", "--json").json
    assert len(fewer["devices"]) == 2
    assert fewer["digest"] != found["digest"]
    shown = call("recommender", "status", folder)
    assert shown.code == 0
    assert fewer["digest"] in shown.out
    assert "2 devices, 4 users" in shown.out
    state = call("recommender", "status", folder, "--json").json
    assert (state["runs"], state["model"], state["name"]) == ([], None, "shop")


def test_a_data_sets_items_and_scale(call: Call, tmp_path: Path) -> None:
    made = call(
        "recommender",
        "init",
        tmp_path / "r",
        "--data",
        "synthetic",
        "--reach",
        "films.example",
        "--json",
    ).json
    assert made["items"] == 400
    assert made["address"] == "https://films.example:9443"


def test_a_run_needs_devices_and_a_method_that_can_be_run(
    call: Call, tmp_path: Path, items: Path
) -> None:
    folder = tmp_path / "r"
    call("recommender", "init", folder, "--items", items)
    assert "no device is enrolled" in call("recommender", "run", folder).err
    call("recommender", "enroll", folder, card(tmp_path, 1))
    assert (
        "cannot run 'user-mean'" in call("recommender", "run", folder, "--method", "user-mean").err
    )
    assert "made for the view 'sums'" in call("recommender", "run", folder, "--messages").err
    assert "devices have no prior 'x'" in call("recommender", "run", folder, "--set", "prior=x").err
    assert "no unfinished run" in call("recommender", "run", folder, "--give-up").err
    assert "is no recommender" in call("recommender", "serve", tmp_path / "nothing").err


@pytest.mark.parametrize(
    ("users", "options", "words"),
    [
        # A library of 240 people and two persons: a device counts for one, so three devices can
        # hide nobody.
        ((240, 1, 1), [], "sums may be over 2 users; the policy asks for 16"),
        ((1,) * 400, ["--minimum", 30], "asks for 1/10 of the roster, which is 40"),
        ((1,) * 20, ["--epsilon", 1], "allows 0.5 (max_epsilon_per_run)"),
        ((30,) * 20, ["--credit", 30, "--minimum", 300], "counts 30 users on one device"),
        ((1,) * 20, ["--method", "hdp-bit"], "does not allow hdp-bit"),
        ((1,) * 22, [], ""),
    ],
)
def test_what_devices_refuse_by_default_is_said_at_once(
    call: Call,
    tmp_path: Path,
    items: Path,
    users: tuple[int, ...],
    options: list[object],
    words: str,
) -> None:
    folder = tmp_path / "r"
    call("recommender", "init", folder, "--items", items)
    assert (
        call(
            "recommender",
            "enroll",
            folder,
            *(card(tmp_path, n, count) for n, count in enumerate(users)),
        ).code
        == 0
    )
    with ServiceFolder(folder).serving():
        asked = call("recommender", "run", folder, *options)
    assert asked.code == 0, asked.err
    assert words in asked.err
    assert ("Warning: by default devices refuse this run" in asked.err) == bool(words)


def test_where_a_process_serves_it_is_asked(call: Call, tmp_path: Path, items: Path) -> None:
    folder = tmp_path / "r"
    call("recommender", "init", folder, "--items", items)
    call("recommender", "enroll", folder, *(card(tmp_path, number) for number in range(4)))
    place = ServiceFolder(folder)
    with place.serving():
        assert "another process serves" in call("recommender", "serve", folder).err
        doomed = call("recommender", "run", folder, "--minimum", 9)
        assert "needs 9 users" in doomed.err
        assert request_in(place) is None
        answer = call("recommender", "run", folder, "--json")
        assert (
            "by default devices refuse this run: the run's sums may be over 3 users; the "
            "policy asks for 16" in answer.err
        )
        asked, request = answer.json, request_in(place)
        assert request is not None
        assert request.settings is not None
        assert (request.run, asked["requested"], request.settings.minimum) == (
            asked["run"],
            True,
            3,
        )
        assert "waits in" in call("recommender", "run", folder).err
        run = Service(place).begin(request.settings, bytes.fromhex(request.run))
        assert "is under way in the process" in call("recommender", "run", folder).err
        assert call("recommender", "run", folder, "--give-up", "--json").json["requested"]
        assert request_in(place) == Request(run=run.hex())
        assert place.unfinished() == run
    assert call("recommender", "run", folder, "--give-up", "--json").json["given_up"]
    assert place.unfinished() is None


def test_sigterm_ends_serving_in_order(
    call: Call, tmp_path: Path, items: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "r"
    call("recommender", "init", folder, "--items", items)
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Daemon, "live", lambda self: os.kill(os.getpid(), signal.SIGTERM))
    ended = call("recommender", "serve", folder)
    assert (ended.code, "continues at the next start" in ended.err) == (0, True)
    assert signal.getsignal(signal.SIGTERM) is before
    assert not ServiceFolder(folder).is_serving()
