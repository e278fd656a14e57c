"""A virtual device: a store and an agent with seeded noise, movable between processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np

from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import CatalogueTable, DeviceCard
from hdpmf.common.protocol.servers import Servers
from hdpmf.lab.simulate.population import DeviceRatings
from hdpmf.lab.simulate.reports import SentReport, reports_of
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.catalogues import PinnedCatalogue, PinnedRoster, pinned
from hdpmf.private.device.store.device_store import DeviceStore

_FIRST_STREAM = 100  # of a seed's noise; lower ones belong to the recommender and the two servers


@dataclass(frozen=True, slots=True, repr=False)
class Vectors:
    """The user vectors of a device, for whoever owns all of them: a simulation."""

    users: list[str]
    vectors: np.ndarray


class PublicFacts(msgspec.Struct, frozen=True, array_like=True):
    """The facts that all devices of a simulation share and know by digest.

    Attributes:
        catalogue: The item table.
        roster: The devices that may take part in a secure sum by masks; empty without one.
    """

    catalogue: bytes
    roster: bytes = b""

    @classmethod
    def of(cls, table: CatalogueTable, cards: Sequence[DeviceCard] = ()) -> PublicFacts:
        """Return the facts about these items and devices."""
        keys = [bytes.fromhex(card.identity) for card in cards]
        users = [card.users for card in cards]
        return cls(
            msgspec.msgpack.encode(table), PinnedRoster.bytes_of(keys, users) if cards else b""
        )


@lru_cache(maxsize=2)
def _hold(public: PublicFacts) -> tuple[PinnedCatalogue, PinnedRoster | None]:
    """Keep the facts in this process, where stores in memory find them."""
    return pinned(public.catalogue), PinnedRoster.from_bytes(
        public.roster
    ) if public.roster else None


class _State(msgspec.Struct, frozen=True, array_like=True):
    number: int
    seed: int
    store: bytes
    noise: tuple[int, ...]
    agent: bytes


class VirtualDevice:
    """One device of a simulation.

    Args:
        store: In memory.
        number: Of the device: draws differ between devices.
        seed: Of all draws.
    """

    def __init__(self, store: DeviceStore, number: int, seed: int) -> None:
        self._store = store
        self._number = number
        self._seed = seed
        self._noise = SeededNoise(seed, stream=_FIRST_STREAM + number)
        self._agent = Participant(store, noise=self._noise, simulation=True, seed=seed)

    @classmethod
    def create(cls, part: DeviceRatings, policy: Policy, number: int, seed: int) -> VirtualDevice:
        """Return a device with these ratings."""
        store = DeviceStore.create(":memory:", users=part.ratings.n_users, policy=policy)
        store.add(part.ratings)
        store.set_weights(part.weights, part.ratings)
        return cls(store, number, seed)

    @classmethod
    def from_bytes(cls, data: bytes, public: PublicFacts) -> VirtualDevice:
        """Return the device that `to_bytes` wrote, in the middle of whatever it was at."""
        _hold(public)
        state = msgspec.msgpack.decode(data, type=_State)
        device = cls(DeviceStore.from_bytes(state.store), state.number, state.seed)
        device._noise.state = state.noise
        device._agent.resume(state.agent)
        return device

    def to_bytes(self) -> bytes:
        """Return the whole device as bytes: ratings, keys, and the sum that it takes part in.

        Of the item table and the roster it has digests only.
        """
        state = _State(
            self._number,
            self._seed,
            self._store.to_bytes(),
            self._noise.state,
            self._agent.suspend(),
        )
        return msgspec.msgpack.encode(state)

    @property
    def card(self) -> DeviceCard:
        """The device as the roster lists it."""
        name = self._store.identity.public.hex()
        return DeviceCard(name=f"device {self._number}", identity=name, users=self._store.users)

    def pin_roster(self, cards: Sequence[DeviceCard]) -> None:
        """Pin the devices that may take part."""
        self._store.pin_roster(
            [bytes.fromhex(card.identity) for card in cards], [card.users for card in cards]
        )

    def answer(self, message: bytes) -> bytes:
        """Return the reply to a message of the recommender."""
        return self._agent.answer(message)

    def reports(
        self, servers: Servers, files: Mapping[str, bytes], now: float
    ) -> Iterator[SentReport]:
        """Return the reports to two servers, for the task that is published."""
        return reports_of([self._store], [self._noise], servers, files, now)

    @property
    def vectors(self) -> Vectors | None:
        """User vectors, once a run is finished that left some here."""
        model = self._agent.model
        if model is None or not model.users:
            return None
        flat = np.frombuffer(model.vectors, np.float32)
        return Vectors(list(model.users), flat.reshape(len(model.users), -1))

    def close(self) -> None:
        """Let it go."""
        self._store.close()
