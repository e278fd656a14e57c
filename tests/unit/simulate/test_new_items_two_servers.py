"""The second day with two servers: real devices read the recommender's public files and report;
items come and go.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("sqlalchemy")

from hdpmf.common.aggregation.two_servers.dap.messages import id_from_text
from hdpmf.common.aggregation.two_servers.tokens import Token
from hdpmf.common.data import IdIndex, ItemTable, RatingScale
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import DeviceCard, SumContribution
from hdpmf.common.protocol.catalogue import catalogue_table, number_of
from hdpmf.errors import TransportError
from hdpmf.lab.simulate.two_servers import ServersInProcess
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.recommendations import recommend
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.aggregation.token_issuer import TokenIssuer
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.keys import change_items, pin_servers
from hdpmf.untrusted.service.publish import public_file
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Pace, RunSettings
from tests.world import PLENTY

pytestmark = pytest.mark.slow

ITEMS = [f"item {place}" for place in range(6)]
SETTINGS = RunSettings(
    method="hdp-sum", view="two-servers", minimum=2, rounds=1, epsilon=5_000.0, period=3600
)
NEW = ItemTable.build(
    ["a new one"], ["New"], [[]], [None]
)  # before all others, if they were sorted
OTHER = ItemTable.build(["another"], ["Other"], [[]], [None])


class Village:
    """Three devices, two servers, and a recommender that they share nothing with but files."""

    def __init__(self, folder: Path) -> None:
        self.pair = ServersInProcess(3)
        self.folder = ServiceFolder.create(
            folder / "r",
            Config(name="village", pace=Pace(pause=0.0, attempts=1)),
            catalogue_table(IdIndex(ITEMS), RatingScale(1.0, 5.0, 1.0)),
        )
        pin_servers(self.folder.path, "village", self.pair.servers)
        policy = msgspec.structs.replace(PLENTY, servers=(self.pair.servers.digest,))
        self.stores = [DeviceStore.create(":memory:", policy=policy) for _ in range(3)]
        self.folder.enroll(
            DeviceCard(name=f"d{n}", identity=store.identity.public.hex())
            for n, store in enumerate(self.stores)
        )
        self.issuer = TokenIssuer()
        self.lines: list[str] = []
        self.devices = [self.device(store) for store in self.stores]
        self.service = Service(
            self.folder,
            servers=self.pair.sum_servers,
            issuer=self.issuer,
            sleep=self.sleep,
            clock=lambda: self.pair.now,
        )

    def device(self, store: DeviceStore) -> Participant:
        return Participant(
            store,
            self,
            recommender="https://village",
            every=60.0,
            clock=lambda: self.pair.now,
            uniform=lambda: 0.5,
            log=self.lines.append,
            noise=SeededNoise(1),
            simulation=True,
        )

    def sleep(self, seconds: float) -> None:
        self.pair.now += max(seconds, 1.0)
        self.look()

    def look(self) -> None:
        for device in self.devices:
            device.step()

    def pass_time(self, seconds: float = 200.0) -> None:
        self.pair.now += seconds
        self.look()

    def run(self) -> np.ndarray:
        """How many ratings of each item are in the sum of a run."""
        outcome = self.service.conduct(self.service.begin(SETTINGS))
        self.pass_time()
        answer = outcome.answer
        assert isinstance(answer, SumContribution)
        return np.rint(answer.weights / 64).astype(int)

    # The carrier of a device

    def fetch(self, name: str, most: int) -> bytes:
        data = public_file(self.folder.path / "public", name)
        if data is None or len(data) > most:
            raise TransportError("not there")
        return data

    def upload(
        self, leader: Any, path: str, headers: dict[str, str], body: bytes, leaving: Any
    ) -> int:
        leaving()
        task = id_from_text(path.split("/")[2], 32)
        self.pair.leader.upload(task, body, Token.from_header(headers["authorization"]))
        return 201

    def request_token(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        signature = bytes.fromhex(headers["hdpmf-signature"])
        return self.issuer.take(path.split("/")[2], headers["hdpmf-device"], signature, body)


@pytest.fixture
def village(tmp_path: Path) -> Village:
    return Village(tmp_path)


def versions(village: Village) -> list[int]:
    return [store.pinned_catalogue.number for store in village.stores]  # type: ignore[union-attr]


def test_items_come_and_go(village: Village) -> None:
    for store in village.stores:
        store.rate(ITEMS[0], 5.0)
        store.rate(ITEMS[4], 2.0)
    village.stores[0].rate("a new one", 4.0)
    assert village.run().tolist() == [3, 0, 0, 0, 3, 0]
    assert versions(village) == [1, 1, 1]
    change_items(village.folder, NEW, [ITEMS[4]])
    village.service.publish_items()
    village.pass_time()
    assert versions(village) == [2, 2, 2]
    # The model of before is about the items of before.
    for store, device in zip(village.stores, village.devices, strict=True):
        listed = recommend(store, 50, keep_rated=True, model=device.model)
        assert {entry.item for entry in listed} == set(ITEMS) - {ITEMS[4]}
    village.stores[1].rate("a new one", 4.0)
    village.stores[1].rate(ITEMS[4], 3.0)
    village.stores[2].rate(ITEMS[1], 3.0)
    assert village.run().tolist() == [0, 1, 0, 0, 0, 0, 2]
    listed = recommend(village.stores[0], 50, keep_rated=True, model=village.devices[0].model)
    names = {entry.item for entry in listed}
    assert names == {*ITEMS, "a new one"} - {ITEMS[4]}
    assert all(store.pinned_catalogue.table.ids[-1] == "a new one" for store in village.stores)  # type: ignore[union-attr]


def test_a_run_under_way_keeps_its_items_and_is_shown_with_them(village: Village) -> None:
    village.stores[0].rate("a new one", 4.0)
    run = village.service.begin(SETTINGS)
    change_items(village.folder, NEW)
    seen: list[int] = []
    honest = village.look

    def look() -> None:
        honest()
        seen.extend(versions(village))

    village.look = look  # type: ignore[method-assign]
    outcome = village.service.conduct(run)
    assert isinstance(outcome.answer, SumContribution)
    assert len(outcome.answer.weights) == 6
    assert set(seen) == {1}
    village.pass_time()
    assert versions(village) == [2, 2, 2]
    assert number_of(village.folder.current_items) == 2
    assert village.run().tolist()[-1] == 1


def test_a_device_that_was_away_for_versions_catches_up(village: Village) -> None:
    village.run()
    away = village.devices.pop()
    change_items(village.folder, NEW)
    village.run()
    change_items(village.folder, OTHER, ["a new one"])
    village.service.publish_items()
    village.devices.append(away)
    village.stores[2].rate("another", 3.0)
    village.pass_time()
    assert versions(village) == [3, 3, 3]
    assert village.run().tolist()[-2:] == [0, 1]


def test_a_recommender_that_forgot_a_version_is_refused_in_words(village: Village) -> None:
    village.run()
    before = (village.folder.path / "catalogue.msgpack").read_bytes()
    change_items(village.folder, NEW)
    village.service.publish_items()
    village.pass_time()
    (village.folder.path / "catalogue.msgpack").write_bytes(before)
    change_items(village.folder, OTHER)
    village.service.publish()
    village.lines.clear()
    for _ in range(3):
        village.pass_time()
    said = [
        line
        for line in village.lines
        if "version 2 is another one than the version 2 that is pinned here" in line
    ]
    assert len(said) == 3  # each device once, not with every look
    assert all("hdpmf device forget --model" in line for line in said)
    village.stores[0].forget(model=True)
    village.devices[0] = village.device(village.stores[0])
    village.pass_time()
    assert village.stores[0].pinned_catalogue.table.ids[-1] == "another"  # type: ignore[union-attr]
