"""Virtual devices: users of a data set dealt to stores with real device code and seeded noise.

A device is reached by messages or reports to two servers, without a network, and can be moved
between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import msgspec
import numpy as np

from hdpmf.common.data import IdIndex, Ratings
from hdpmf.common.net.carrier import FilesHere
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import CatalogueTable, DeviceCard
from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import ConfigError, FederationError
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.pinned_servers import pin_servers
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.catalogues import PinnedCatalogue, PinnedRoster, pinned
from hdpmf.private.device.store.device_store import DeviceStore

_FIRST_STREAM = 100  # of a seed's noise; lower ones belong to the recommender and the two servers


@dataclass(frozen=True, slots=True, repr=False)
class DeviceRatings:
    """The ratings on one device.

    Attributes:
        ratings: Of its users, whose ids are text; the items are the whole catalogue's.
        gamma: Privacy weight of each item; one array for all devices.
    """

    ratings: Ratings
    beta: np.ndarray
    gamma: np.ndarray

    def __repr__(self) -> str:
        return f"DeviceRatings({self.ratings.n_users} users)"

    @property
    def weights(self) -> PrivacyWeights:
        """The users' privacy weights."""
        return PrivacyWeights(self.ratings.users, self.ratings.items, self.beta, self.gamma)


def only_users(ratings: Ratings, chosen: np.ndarray) -> Ratings:
    """The ratings of some users (a mask), over the same items."""
    part = ratings.take(chosen[ratings.user_codes])
    codes = (np.cumsum(chosen) - 1).astype(np.int32)
    return replace(
        part, users=IdIndex(ratings.users.ids[chosen]), user_codes=codes[part.user_codes]
    )


def deal(ratings: Ratings, weights: PrivacyWeights, devices: int, seed: int) -> list[DeviceRatings]:
    """Deal users to devices like cards from a shuffled deck; ConfigError with too few users."""
    n = ratings.n_users
    if not 1 <= devices <= n:
        raise ConfigError(f"{n:,} users can be dealt to 1 to {n:,} devices, not to {devices:,}")
    order = np.arange(n) if devices == n else np.random.default_rng([seed, 5]).permutation(n)
    home = np.empty(n, np.int64)
    home[order] = np.arange(n) % devices
    beta = weights.for_users(ratings.users)
    gamma = weights.for_items(ratings.items)
    names = np.array([str(user) for user in ratings.users.ids.tolist()])
    by_home = np.argsort(home[ratings.user_codes], kind="stable")
    ends = np.cumsum(np.bincount(home[ratings.user_codes], minlength=devices))
    rows = np.split(by_home, ends[:-1])
    members = np.split(
        np.argsort(home, kind="stable"), np.cumsum(np.bincount(home, minlength=devices))[:-1]
    )
    return [
        _part(ratings, (beta, gamma), names, own, users)
        for own, users in zip(rows, members, strict=True)
    ]


def _part(
    ratings: Ratings,
    weights: tuple[np.ndarray, np.ndarray],
    names: np.ndarray,
    rows: np.ndarray,
    users: np.ndarray,
) -> DeviceRatings:
    index = IdIndex(names[users])
    codes = np.empty(len(names), np.int32)
    codes[users] = index.find(names[users])
    own = Ratings(
        users=index,
        items=ratings.items,
        user_codes=codes[ratings.user_codes[rows]],
        item_codes=ratings.item_codes[rows],
        values=ratings.values[rows],
        timestamps=None,
        scale=ratings.scale,
        item_table=None,
        name=ratings.name,
    )
    beta, gamma = weights
    betas = np.empty(len(users))
    betas[codes[users]] = beta[users]
    return DeviceRatings(own, betas, gamma)


@dataclass(frozen=True, slots=True)
class SentReport:
    """A report as it left a device."""

    body: bytes = field(repr=False)


class _RecordingCarrier(FilesHere):
    """Has the recommender's files, and keeps what is uploaded."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(files)
        self.sent: list[SentReport] = []

    def upload(
        self,
        leader: object,
        path: str,
        headers: dict[str, str],
        body: bytes,
        leaving: Callable[[], None],
    ) -> int:
        leaving()
        self.sent.append(SentReport(body))
        return 201


@dataclass(frozen=True, slots=True, repr=False)
class Vectors:
    """The user vectors of a device, for whoever owns all of them: a simulation."""

    users: list[str]
    vectors: np.ndarray


class PublicFacts(msgspec.Struct, frozen=True, array_like=True):
    """The facts that all devices of a simulation share and know by digest.

    The roster is empty without a sum by masks.
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

    Draws of one seed differ between the numbers of devices.
    """

    def __init__(self, store: DeviceStore, number: int, seed: int) -> None:
        self._store = store
        self._number = number
        self._seed = seed
        self._noise = SeededNoise(seed, stream=_FIRST_STREAM + number)
        self._files = FilesHere({})
        self._agent = Participant(store, self._files, noise=self._noise, simulation=True, seed=seed)

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

    def learn(self, files: Mapping[str, bytes]) -> None:
        """Learn from what the recommender publishes now."""
        self._files.files = files
        self._agent.poll_soon()
        self._agent.look()

    def answer(self, message: bytes) -> bytes:
        """Return the reply to a message of the recommender."""
        return self._agent.answer(message)

    def reports(self, servers: Servers, files: Mapping[str, bytes], now: float) -> list[SentReport]:
        """Return the reports that leave for the task that is published.

        Raises:
            FederationError: The device did not report.
        """
        pin_servers(self._store, servers)
        said: list[str] = []
        carrier = _RecordingCarrier(files)
        Participant(
            self._store,
            carrier,
            recommender="recommender",
            clock=lambda: now,
            uniform=lambda: 0.0,
            noise=self._noise,
            simulation=True,
            log=said.append,
        ).step()
        if len(carrier.sent) != self._store.users:
            raise FederationError(
                f"a simulated device did not report: {said[-1] if said else 'no word'}"
            )
        return carrier.sent

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
