"""A device that travels as bytes between any two messages: the same results as one that stays in
its process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.net import InProcessNetwork
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.servers import Servers
from hdpmf.lab.simulate.simulate import simulate
from hdpmf.lab.simulate.virtual_device import (
    DeviceRatings,
    PublicFacts,
    SentReport,
    Vectors,
    VirtualDevice,
)
from hdpmf.private.device.policy import Policy
from hdpmf.untrusted.service.settings import RunSettings

pytestmark = pytest.mark.slow

WORLD = synthetic_world(12, 20, 150, rng=3)
TABLE = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)


class TravellingDevices:
    """Devices of which nothing is kept but bytes."""

    def __init__(self, parts: Sequence[DeviceRatings], policy: str, seed: int) -> None:
        self.states: dict[str, bytes] = {}
        cards = []
        for number, part in enumerate(parts):
            device = VirtualDevice.create(part, Policy.from_toml(policy), number, seed)
            cards.append(device.card)
            self.states[device.card.identity] = device.to_bytes()
        self.cards = tuple(cards)
        self.public = PublicFacts.of(TABLE)
        self.network = InProcessNetwork(
            {name: lambda data, name=name: self.answer(name, data) for name in self.states}
        )

    def answer(self, name: str, data: bytes) -> bytes:
        device = VirtualDevice.from_bytes(self.states[name], self.public)
        reply = device.answer(data)
        self.states[name] = device.to_bytes()
        return reply

    def pin_roster(self, cards: Sequence[DeviceCard]) -> None:
        self.public = PublicFacts.of(TABLE, cards)
        for name, state in self.states.items():
            device = VirtualDevice.from_bytes(state, self.public)
            device.pin_roster(cards)
            self.states[name] = device.to_bytes()

    def learn(self, files: Mapping[str, bytes]) -> None:
        for name, state in self.states.items():
            device = VirtualDevice.from_bytes(state, self.public)
            device.learn(files)
            self.states[name] = device.to_bytes()

    def reports(
        self, servers: Servers, files: Mapping[str, bytes], now: float
    ) -> Iterator[SentReport]:
        for name, state in self.states.items():
            device = VirtualDevice.from_bytes(state, self.public)
            yield from device.reports(servers, files, now)
            self.states[name] = device.to_bytes()

    def vectors(self) -> list[Vectors]:
        found = [
            VirtualDevice.from_bytes(state, self.public).vectors for state in self.states.values()
        ]
        return [vectors for vectors in found if vectors is not None]

    def close(self) -> None:
        self.states.clear()


@pytest.mark.parametrize(
    ("method", "view", "more"),
    [
        ("hdpmf", "messages", {"rounds": 3, "factors": 3}),
        ("hdpmf", "sums", {"rounds": 3, "factors": 3, "max_colluding": 0.0}),
        ("mf", "sums", {"rounds": 2, "factors": 3, "max_colluding": 0.0}),
        (
            "hdp-bit",
            "messages",
            {"rounds": 1, "patterns": 0},
        ),  # patterns are found from a random start
        ("hdp-sum", "sums", {"rounds": 1, "max_colluding": 0.0}),
        ("hdp-sum", "two-servers", {"rounds": 1}),
    ],
)
def test_a_device_that_travels_gives_the_same_model(
    method: str, view: Any, more: dict[str, Any]
) -> None:
    settings = RunSettings(method=method, view=view, minimum=12, **more)
    weights = PrivacySpec().draw(WORLD, rng=5)
    here = simulate(WORLD, settings, weights, test=WORLD, seed=4)
    there = simulate(WORLD, settings, weights, test=WORLD, seed=4, engine=TravellingDevices)
    assert there.result.mse == pytest.approx(here.result.mse, rel=1e-5)
    pairs = WORLD.users.ids[WORLD.user_codes], WORLD.items.ids[WORLD.item_codes]
    np.testing.assert_allclose(there.model.predict(*pairs), here.model.predict(*pairs), atol=1e-4)
    assert there.outcome.summary["refusals"] == {}


def test_a_stream_of_noise_goes_on_where_it_was() -> None:
    one, other = SeededNoise(3, 1), SeededNoise(3, 1)
    one.bits(np.full(7, 0.5))
    one.normals((3,))
    other.state = one.state
    np.testing.assert_array_equal(one.normals((5,)), other.normals((5,)))
    np.testing.assert_array_equal(one.bits(np.full(9, 0.3)), other.bits(np.full(9, 0.3)))
