"""A recommender hands on lists of the two servers' keys: newer ones in time, forged ones never."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyhpke")

from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.key_list import (
    KeyList,
    PublishedKeys,
    SignedKeyList,
    read_published_keys,
)
from hdpmf.common.protocol.published import file_name
from hdpmf.errors import TransportError
from hdpmf.lab.simulate.simulate import ServersHere
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.keys import pin_servers
from hdpmf.untrusted.service.service import Service
from tests.world import Clock, KnownNoise, ServerPair

from .two_servers_world import World


class Shop:
    """A recommender with two servers whose keys rotate."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock(1_000_000_000.0)
        noises = KnownNoise(0), KnownNoise(0)
        self.pair = ServerPair(self.clock, noises)
        self.lines: list[str] = []
        self.folder = ServiceFolder.create(path / "shop", Config(name="shop"), World().table.table)
        pin_servers(self.folder.path, "shop", self.pair.servers)
        self.servers = ServersHere(self.pair.leader, self.pair.helper)
        self.service = self.start()

    def start(self) -> Service:
        return Service(
            self.folder,
            connect=lambda servers, party: self.servers,
            clock=self.clock,
            log=self.lines.append,
        )

    @property
    def index(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder.path / "public/index.json").read_bytes())
        return found

    @property
    def shown(self) -> PublishedKeys:
        file = self.folder.path / "public" / file_name("keys", self.index["keys"])
        return read_published_keys(file.read_bytes())

    def rotate(self) -> None:
        for ring in self.pair.rings:
            ring.rotate(self.clock())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_lists_are_published_and_followed(shop: Shop) -> None:
    shop.service.publish(b"a task")
    first = shop.shown
    assert first == shop.pair.published_keys
    shop.rotate()
    shop.clock.now += 599
    shop.service.publish_keys()
    assert shop.shown == first  # servers are not asked all the time
    shop.clock.now += 1
    shop.service.publish_keys()
    assert shop.shown == shop.pair.published_keys != first
    assert shop.index["task"]  # the task under way stays


def test_a_server_that_is_away_takes_no_keys_away(shop: Shop) -> None:
    shop.service.publish()
    first = shop.shown

    def away() -> PublishedKeys:
        raise TransportError("the server of 'library' is away")

    shop.servers.signed_keys = away  # type: ignore[method-assign]
    shop.clock.now += 600
    shop.service.publish()
    assert shop.shown == first
    shop.start().publish()  # a new process, which has never seen them
    assert shop.shown == first
    assert any("is away; devices are shown the keys from before" in line for line in shop.lines)


def test_servers_that_were_away_at_first_are_asked_again_soon(shop: Shop) -> None:
    real = shop.servers.signed_keys

    def away() -> PublishedKeys:
        raise TransportError("away")

    shop.servers.signed_keys = away  # type: ignore[method-assign]
    shop.service.publish()
    assert shop.index["keys"] == ""
    shop.servers.signed_keys = real  # type: ignore[method-assign]
    shop.clock.now += 60
    shop.service.publish_keys()
    assert shop.shown == shop.pair.published_keys


def flipped(signed: Any) -> SignedKeyList:
    """A list with another signature."""
    return SignedKeyList(keys=signed.keys, signature=to_base64(bytes(64)))


RUBBISH = SignedKeyList(keys=KeyList(serial=1, not_after=2, configs="AA"), signature="rubbish")


@pytest.mark.parametrize(
    "forged",
    [
        lambda real: PublishedKeys(leader=real.leader, helper=real.leader),
        lambda real: PublishedKeys(leader=flipped(real.leader), helper=real.helper),
        lambda real: PublishedKeys(leader=RUBBISH, helper=real.helper),
    ],
    ids=["another server's", "changed", "rubbish"],
)
def test_forged_lists_are_not_published(
    shop: Shop, forged: Callable[[PublishedKeys], PublishedKeys]
) -> None:
    shop.service.publish()
    first = shop.shown
    shop.rotate()
    shop.servers.signed_keys = lambda: forged(shop.pair.published_keys)  # type: ignore[method-assign]
    shop.clock.now += 600
    shop.service.publish_keys()
    assert shop.shown == first


def test_keys_are_followed_while_reports_are_taken() -> None:
    world, followed = World(), list[float]()
    world.run(follow_keys=lambda: followed.append(world.now)).conduct()
    assert len(followed) > 10
