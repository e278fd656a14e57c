"""Real devices and the real two servers in one process: what comes out is what NumPy adds up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import Interval, id_from_text
from hdpmf.common.aggregation.two_servers.tokens import Token
from hdpmf.common.protocol.servers import Server
from hdpmf.errors import DapError
from hdpmf.private.device.pinned_servers import pin_servers
from hdpmf.private.device.policy import Policy
from tests.unit.aggregator.server_pair import HOUR, Pair
from tests.unit.device.reporting_world import (
    STARS,
    World,
    make_store,
    make_task,
    plain_sums,
    reporter,
)
from tests.world import live

RATINGS = [STARS, {}, {"item 01": 5.0, "item 02": 1.0}, {"item 11": 3.0, "item 00": 4.0}]


class LeadersDoor(World):
    """The recommender's files, and a real leader, which may be out of order at first."""

    def __init__(self, pair: Pair, out_of_order: int = 0) -> None:
        super().__init__(pair.published_keys.to_bytes())
        self.pair, self.left = pair, out_of_order

    def upload(
        self, leader: Server, path: str, headers: dict[str, str], body: bytes, leaving: Any
    ) -> int:
        leaving()
        self.pair.clock.now = self.now
        task = id_from_text(path.split("/")[2], 32)
        token = Token.from_header(headers["authorization"])
        self.uploads.append((task, token.nonce.hex(), body))
        self.left -= 1
        try:
            self.pair.leader.upload(task, body, token)
        except DapError:
            return 400
        return 500 if self.left >= 0 else 201


@pytest.mark.parametrize("out_of_order", [0, 5])
def test_the_servers_count_every_device_once(out_of_order: int) -> None:
    """Also where the leader has written a report down, and the device did not hear of it."""
    pair = Pair()
    begin = int(pair.clock.now) // HOUR * HOUR
    end = begin + 2 * HOUR
    document = make_task(
        servers=pair.keys[0].servers,
        collector=pair.collector,
        begin=begin,
        end=end,
        precision=HOUR,
        minimum=3,
    )
    world = LeadersDoor(pair, out_of_order)
    world.publish(task=document)
    stores = [make_store(ratings, policy=Policy(min_participants=3)) for ratings in RATINGS]
    for store in stores:
        pin_servers(store, pair.keys[0].servers)
    pair.helper.add_task(document)
    task = pair.leader.add_task(document)
    for place, store in enumerate(stores):
        world.now = float(begin)
        live(reporter(store, world, place / 4), world, 2 * HOUR)
    assert len(world.uploads) == len(stores) + out_of_order
    assert len({body for _, _, body in world.uploads}) == len(stores)
    pair.clock.now = float(end) + 1
    assert pair.aggregate_all() == len(stores)
    whole = Interval(begin, end - begin)
    numbers = pair.numbers(task, pair.collect(task, whole), whole)
    expected = np.sum([plain_sums(document, ratings) for ratings in RATINGS], axis=0)
    assert numbers == expected.tolist()


def test_a_device_that_is_not_enrolled_is_told_so_and_stops() -> None:
    pair = Pair()
    begin = int(pair.clock.now) // HOUR * HOUR
    document = make_task(
        servers=pair.keys[0].servers,
        collector=pair.collector,
        begin=begin,
        end=begin + HOUR,
        precision=HOUR,
        minimum=3,
    )
    world, store = LeadersDoor(pair), make_store(policy=Policy(min_participants=3))
    world.publish(task=document)
    pin_servers(store, pair.keys[0].servers)
    pair.helper.add_task(document)
    pair.leader.add_task(document)
    world.issues = [401]
    world.now = float(begin)
    live(reporter(store, world, 0.0), world, HOUR)
    assert pair.aggregate_all() == 0
    assert [entry.action for entry in store.ledger.entries()] == ["agreed", "returned"]
