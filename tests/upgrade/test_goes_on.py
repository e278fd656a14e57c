"""A run that version 0.2.0 had under way goes on: its recommender, its two servers and its
devices, all of today.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from old_commands import DEVICES
from old_versions import passphrase, unpack

from hdpmf.common.aggregation.two_servers.dap import id_from_text
from hdpmf.common.net.summing import ServersHere
from hdpmf.common.protocol import Task, decode
from hdpmf.common.protocol.servers import Server
from hdpmf.errors import DapError, TransportError
from hdpmf.private.device.consent import give_answer, pending
from hdpmf.private.device.joined import at_recommender
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.recommendations import kept_model
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.folder import AggregatorFolder
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.service import Service

SHOP = "https://localhost:29443"
USERS = 4


class Outside:
    """The folders of the recommender and of the two servers, and a clock."""

    def __init__(self, place: Path, ends: ExitStack) -> None:
        self.files = place / "recommender" / "public"
        index = json.loads((self.files / "index.json").read_bytes())
        self.name = bytes.fromhex(index["task"]["id"])
        task = decode((self.files / f"task-{self.name.hex()}.msgpack").read_bytes())
        assert isinstance(task, Task)
        self.task, self.now = task, task.begin + 1.0
        self.uploads: list[tuple[bytes, bytes]] = []
        self.reachable = True
        folders = {role: AggregatorFolder(place / role) for role in ("leader", "helper")}
        data = {role: ServerDatabase(folder.database_url) for role, folder in folders.items()}
        for database in data.values():
            ends.callback(database.close)
        options = {
            role: {"clock": self.clock, "rules": folder.config.tasks.rules, "marks": folder.marks}
            for role, folder in folders.items()
        }
        self.helper = Helper(folders["helper"].keys, data["helper"], **options["helper"])
        self.leader = Leader(
            folders["leader"].keys, data["leader"], self.helper, **options["leader"]
        )

    def clock(self) -> float:
        return self.now

    def fetch(self, name: str, most: int, etag: str = "") -> tuple[bytes, str] | None:
        data = (self.files / name).read_bytes()
        tag = sha256(data).hexdigest()
        return None if tag == etag else (data, tag)

    def upload(
        self, leader: Server, path: str, headers: dict[str, str], body: bytes, leaving: object
    ) -> int:
        if not self.reachable:
            raise TransportError("unreachable")
        assert callable(leaving)
        leaving()
        name = id_from_text(path.split("/")[2], 32)
        self.uploads.append((name, body))
        try:
            self.leader.upload(
                name, body, headers["hdpmf-device"], bytes.fromhex(headers["hdpmf-signature"])
            )
        except DapError as error:
            pytest.fail(str(error))
        return 201


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as ends:
        yield Outside(unpack("0.2.0", tmp_path / "old") / "killed", ends)


@contextmanager
def device(outside: Outside, name: str) -> Iterator[tuple[DeviceStore, Participant]]:
    """A device at the shop's place."""
    place = outside.files.parents[1]
    with DeviceStore.open(
        place / f"{name}.sqlite", passphrase=passphrase(name), serving=True
    ) as store:
        view = at_recommender(store, SHOP)
        yield (
            view,
            Participant(
                view,
                outside,
                recommender=SHOP,
                every=60.0,
                clock=outside.clock,
                uniform=lambda: 0.5,
            ),
        )


def live(outside: Outside, reporter: Participant, until: float) -> None:
    """Let time pass for a device."""
    outside.now = outside.task.begin + 1.0
    while outside.now < until:
        outside.now = min(outside.now + reporter.step(), until)
    reporter.step()


def actions(store: DeviceStore, run: bytes) -> list[str]:
    return [entry.action for entry in store.ledger.entries() if entry.run == run.hex()]


@pytest.mark.slow
def test_a_run_under_way_goes_on_to_its_end(outside: Outside) -> None:
    folder = ServiceFolder(outside.files.parent)
    run = folder.unfinished()
    assert run is not None
    for name in DEVICES:
        with device(outside, name) as (store, reporter):
            if name == "ana":
                (asked,) = pending(store, outside.now)
                assert asked.recommender == SHOP
                give_answer(store, asked.key, "once")
            spent = store.ledger.spent_total()
            live(outside, reporter, outside.task.end - 0.5)
            assert actions(store, outside.name) == ["agreed", "sent"]
            # Only the rating that no run had asked about pays, and once.
            assert store.ledger.spent_total() == pytest.approx(spent + 0.2)
            sent = len(outside.uploads)
            live(outside, reporter, outside.task.end + 400.0)
            assert len(outside.uploads) == sent
    assert {name for name, _ in outside.uploads} == {outside.name}
    assert len({body for _, body in outside.uploads}) == len(outside.uploads) == USERS

    outside.now = outside.task.begin + 1.0

    def sleep(seconds: float) -> None:
        outside.now += seconds

    service = Service(
        folder,
        servers=ServersHere(outside.leader, outside.helper),
        sleep=sleep,
        clock=outside.clock,
    )
    outcome = service.conduct(run)
    assert (outcome.summary["users"], outcome.summary["tasks"]) == (USERS, [outside.name.hex()])
    assert folder.unfinished() is None
    assert len(folder.runs()) == 2
    with device(outside, "ana") as (store, reporter):
        live(outside, reporter, outside.task.end + 100.0)
        model = kept_model(store)
        assert model is not None
        assert model.run == run.hex()
        assert actions(store, outside.name) == ["agreed", "sent", "received"]


def test_what_never_left_is_given_back_when_the_time_is_over(outside: Outside) -> None:
    outside.reachable = False
    with device(outside, "school") as (store, reporter):
        spent = store.ledger.spent_total()
        left = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
        live(outside, reporter, outside.task.end + 1.0)
        assert actions(store, outside.name) == ["agreed", "returned"]
        assert outside.uploads == []
        assert store.ledger.spent_total() == pytest.approx(spent)
        now = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
        assert sorted(now - left) == pytest.approx([0.0] * (len(left) - 1) + [0.2])
