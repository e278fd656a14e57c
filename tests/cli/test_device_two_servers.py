"""``hdpmf device join`` with a recommender that uses two servers: pinning, reporting, and what
the owner sees.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hdpmf.cli.device.join import PinOptions, pin
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.protocol.servers import Servers
from hdpmf.private.device import connection, participant
from hdpmf.private.device.store.device_store import DeviceStore
from tests.unit.device.reporting_world import (
    KEYS,
    SERVERS,
    World,
    make_facts,
    make_task,
    server,
)

from .conftest import Call

pytestmark = pytest.mark.slow

WHERE = "https://films.example:8443"
OTHERS = Servers(leader=server("Leaders", KEYS[0], "a"), helper=server("Elsewhere", KEYS[2], "d"))


@pytest.fixture
def path(tmp_path: Path, call: Call) -> Path:
    where = tmp_path / "me.hdpmf"
    assert call("device", "init", where).code == 0
    for item, value in (("item 00", "1"), ("item 01", "5")):
        assert call("device", "rate", where, item, value).code == 0
    return where


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Path]:
    files = {"ca": ensure_certificates(tmp_path / "tls", ["films.example"]).authority}
    for name, pair in (("servers", SERVERS), ("others", OTHERS)):
        files[name] = tmp_path / f"{name}.json"
        files[name].write_bytes(pair.to_json())
    return files


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Two servers and a recommender in place of the network; a period that is over in no time."""
    made = World()
    monkeypatch.setattr(connection, "WebClient", lambda *_: made)
    steps = participant.Participant.step

    def step(self: participant.Participant) -> float:
        made.now += 60.0
        if made.uploads:
            made.publish(facts=make_facts(3.0 + len(made.uploads) / 10))
        return min(steps(self), 0.001)

    init = participant.Participant.__init__

    def with_clock(self: participant.Participant, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options, clock=lambda: made.now)

    monkeypatch.setattr(participant.Participant, "step", step)
    monkeypatch.setattr(participant.Participant, "__init__", with_clock)
    return made


def test_a_device_reports_and_its_owner_sees_to_whom(
    path: Path, given: dict[str, Path], world: World, call: Call
) -> None:
    world.publish(task=make_task())
    joined = call(
        "device",
        "join",
        path,
        WHERE,
        "--ca",
        given["ca"],
        "--servers",
        given["servers"],
        "--every",
        "30",
        "--once",
        "--json",
    )
    assert joined.code == 0, joined.err
    assert (joined.json["reports"], joined.json["model"]) == (1, True)
    for words in ("Leaders", "Helpers", SERVERS.digest, "Both together"):
        assert words in joined.err
    status = call("device", "status", path, "--json").json
    assert status["servers"] == {
        "leader": "Leaders",
        "helper": "Helpers",
        "digest": SERVERS.digest,
        "trusted": True,
    }
    assert status["model"]["view"] == "two-servers"
    said = " ".join(call("device", "ledger", path).out.split())
    assert "The recommender, and either server alone, see only" in said
    assert "shares for Leaders and Helpers" in said
    assert SERVERS.digest in call("device", "policy", path).out
    begin = world_begin(world) + 7200
    world.publish(task=make_task(begin=begin, end=begin + 7200))
    again = call("device", "join", path, "--once", "--json")  # everything is pinned
    assert (again.json["reports"], again.json["model"], len(world.uploads)) == (1, True, 2)


def test_another_pair_needs_the_owners_word(
    path: Path, given: dict[str, Path], world: World, call: Call
) -> None:
    def join(*arguments: object) -> Any:
        world.uploads.clear()
        world.publish(task=make_task(begin=world_begin(world), end=world_begin(world) + 7200))
        return call("device", "join", path, WHERE, *arguments, "--once", "--json")

    first = join("--ca", given["ca"], "--servers", given["servers"])
    assert first.code == 0, first.err
    refused = join("--servers", given["others"])
    assert refused.code == 2
    assert "--new-servers" in refused.json["error"]["message"]
    assert "--servers FILE" in join("--new-servers").json["error"]["message"]
    with DeviceStore.open(path) as store:
        assert store.policy.servers == (SERVERS.digest,)
    with DeviceStore.open(path) as store:
        pin(store, PinOptions(WHERE, servers=given["others"], new_servers=True))
        assert store.policy.servers == (OTHERS.digest,)
    policy = path.with_name("policy.toml")
    policy.write_text(f'servers = ["{SERVERS.digest}"]\n')
    assert call("device", "policy", path, "--set", policy).code == 0
    assert "does not trust them" in call("device", "status", path).out


def world_begin(world: World) -> int:
    return int(world.now // 3600 * 3600)
