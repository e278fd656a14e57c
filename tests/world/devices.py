"""Devices on real stores, with noise off, seeded or released, and what they say."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.data import Ratings
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.net.carrier import FilesHere
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.protocol import (
    AnyCatalogue,
    CatalogueTable,
    DeviceCard,
    Envelope,
    ItemFacts,
    ListTable,
    Message,
    Plan,
    Refusal,
    Reply,
    Round,
    decode,
)
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.publish import public_files
from tests.world.messages import RUN, envelope

M = TypeVar("M", bound=Message)
OPEN = Policy(
    methods=(
        "mf", "dpmf", "pdpmf", "hdpmf", "hdpmf-w", "hdpmf-r", "hdpmf-paid", "hdp-sum", "hdp-bit",
    ),
    allow_nominal=True,
    require_sums=False,
    allow_unprotected=True,
    min_participants=3,
    min_devices=3,
    min_neighbours=2,
    min_fraction="0",
    max_colluding="0",
    max_credit=100,
    max_epsilon_per_run=None,
    min_epsilon_per_run=1e-9,
)  # fmt: skip
"""A policy that allows nearly everything."""


def whole_life_policy(**settings: Any) -> Policy:
    """A policy by which one run may spend all that a rating has for its life.

    By default it may not. Tests of spent ratings would need several runs otherwise.
    """
    return Policy(max_epsilon_per_run=None, **settings)


class NoNoise:
    """Noise off."""

    def uniforms(self, n: int) -> np.ndarray:
        return np.zeros(n)

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        return np.zeros(np.shape(sigma), np.int64)

    def laplace_share(
        self, scale: object, n_shares: int, size: Any, *, count: int = 1
    ) -> np.ndarray:
        return np.zeros(size, np.int64)

    def discrete_laplace(self, scale: object, size: Any) -> np.ndarray:
        return np.zeros(size, np.int64)

    def bits(self, p_plus: np.ndarray, epsilon: Any = None) -> np.ndarray:
        return np.asarray(p_plus) > 0.5


class Device(Participant):
    """A participant whose store tests may look into.

    Attributes:
        store: Its store.
        files: The recommender's files, where no carrier is given.
        said: What it told its owner, where no log is given.
        offers: What came to it, each once, in order.
    """

    def __init__(self, store: DeviceStore, carrier: Any = None, **options: Any) -> None:
        self.files = FilesHere({})
        self.said: list[str] = []
        carrier = self.files if carrier is None else carrier
        super().__init__(store, carrier, **({"log": self.said.append} | options))
        self.store = store
        self.offers: dict[bytes, None] = {}

    def answer(self, offer: bytes) -> bytes:
        """As a participant does, keeping what came."""
        self.offers[offer] = None
        return super().answer(offer)

    def told(self, kind: type[M]) -> list[M]:
        """The messages of a kind that came outside of secure sums, in order."""
        envelopes = [found for found in map(decode, self.offers) if isinstance(found, Envelope)]
        jobs = [decode(found.body) for found in envelopes if found.part == "job"]
        return [message for message in jobs if isinstance(message, kind)]

    def look_now(self) -> None:
        """Look at the recommender's files."""
        self.poll_soon()
        self.look()

    def learn(
        self,
        table: AnyCatalogue,
        numbers: Round | ItemFacts | None = None,
        plan: Plan | None = None,
        lists: ListTable | None = None,
        *,
        run: bytes = RUN,
    ) -> bool:
        """Look at these items and this model; False where it refuses anything of it."""
        model = (
            None
            if numbers is None
            else PublicModel.of_run({"run": run.hex()}, table, numbers, plan, lists)
        )
        self.files.files = public_files(table, model)
        before = len(self.said)
        self.look_now()
        return not any(line.startswith("refused") for line in self.said[before:])

    @property
    def name(self) -> str:
        """Its identity, as networks and rosters have it."""
        return self.store.identity.public.hex()

    @property
    def card(self) -> DeviceCard:
        """Its entry on a roster."""
        return DeviceCard(name=self.name[:8], identity=self.name, users=self.store.users)


def make_store(
    ratings: Ratings | Mapping[str, float],
    *,
    users: int = 1,
    policy: Policy | None = OPEN,
    path: Any = ":memory:",
    weights: PrivacyWeights | None = None,
    catalogue: CatalogueTable | None = None,
) -> DeviceStore:
    """A device's store with these ratings (of one user, where they are stars by item); the item
    table is pinned where one is given.
    """
    store = DeviceStore.create(path, users=users, policy=policy)
    if isinstance(ratings, Ratings):
        if len(ratings):
            store.add(ratings)
            if weights is not None:
                store.set_weights(weights, ratings)
    else:
        for item, value in ratings.items():
            store.rate(item, value)
    if catalogue is not None:
        store.pin_catalogue(catalogue)
    return store


def rows_in(store: DeviceStore, table: str) -> int:
    """How many rows a table of a store in memory has, by a copy of it."""
    with closing(sqlite3.connect(":memory:")) as copy:
        copy.deserialize(store.to_bytes())
        return int(copy.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def enrol(
    devices: Sequence[Device], others: int = 0, users: Sequence[int] | None = None
) -> list[DeviceIdentity]:
    """Let all devices pin a roster of themselves and so many others, whose keys are returned."""
    strangers = [DeviceIdentity.generate() for _ in range(others)]
    stores = [device.store for device in devices]
    keys = [*(store.identity.public for store in stores), *(one.public for one in strangers)]
    counts = users or [*(store.users for store in stores), *(1 for _ in strangers)]
    for store in stores:
        store.pin_roster(keys, counts)
    return strangers


def ask(device: Participant, message: Message, number: int = 0, *, run: bytes = RUN) -> Any:
    """What the device says to a message; a Refusal where it refuses."""
    reply = decode(device.answer(envelope(message, number, run=run)))
    assert isinstance(reply, Reply)
    found = decode(reply.body)
    assert isinstance(found, Refusal) == (reply.part == "refusal")
    return found


class WaitingSum(NamedTuple):
    """A job on a device that is for a secure sum.

    Attributes:
        number: The job.
        numbers: What goes into the sum; None when it is in.
        joined: A sum is under way for it.
    """

    number: int
    numbers: np.ndarray | None
    joined: bool


def waiting_sum(device: Participant, run: bytes = RUN) -> WaitingSum | None:
    """The job of a run that waits for a secure sum on a device, by what `suspend` tells of it."""
    sums, _ = msgspec.msgpack.decode(device.suspend())
    if run not in sums:
        return None
    number, numbers, client, *_ = msgspec.msgpack.decode(sums[run])
    kept = None if numbers is None else np.frombuffer(numbers, np.int64)
    return WaitingSum(number, kept, client is not None)


def waiting_numbers(device: Participant, run: bytes = RUN) -> np.ndarray:
    """The numbers that wait for a secure sum on a device."""
    found = waiting_sum(device, run)
    assert found is not None
    assert found.numbers is not None
    return found.numbers


def part_of(ratings: Ratings, begin: int, end: int) -> Ratings:
    """The ratings of the users from ``begin`` to ``end``, over the whole catalogue."""
    own = ratings.take((ratings.user_codes >= begin) & (ratings.user_codes < end))
    return Ratings.from_arrays(
        ratings.users.ids[own.user_codes],
        ratings.items.ids[own.item_codes],
        own.values,
        scale=ratings.scale,
        item_table=ratings.item_table,
        items_index=ratings.items,
    )
