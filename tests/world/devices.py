"""Devices on real stores, with noise off, seeded or released, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hdpmf.common.data import Ratings
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.protocol import (
    AnyCatalogue,
    CatalogueTable,
    ItemFacts,
)
from hdpmf.errors import TooLongError, TransportError
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.publish import public_files
from tests.world.messages import RUN

PLENTY = Policy(min_participants=2, epsilon=20_000.0, max_total=None)
"""A policy with which few devices are enough, and a rating can pay for a sum without noise."""


def whole_life_policy(**settings: Any) -> Policy:
    """A policy by which one run may spend all that a rating has for its life.

    By default it may not. Tests of spent ratings would need several runs otherwise.
    """
    return Policy(max_epsilon_per_run=None, **settings)


class Files:
    """A recommender's files in memory, and no way out."""

    def __init__(self) -> None:
        self.files: Mapping[str, bytes] = {}

    def fetch(self, name: str, most: int) -> bytes:
        data = self.files.get(name)
        if data is None:
            raise TransportError(f"there is no {name}")
        if len(data) > most:
            raise TooLongError(f"{name} has {len(data):,} bytes; {most:,} are the most")
        return data


class Device(Participant):
    """A participant whose store tests may look into.

    Attributes:
        store: Its store.
        files: The recommender's files, where no carrier is given.
        said: What it told its owner, where no log is given.
    """

    def __init__(self, store: DeviceStore, carrier: Any = None, **options: Any) -> None:
        self.files = Files()
        self.said: list[str] = []
        carrier = self.files if carrier is None else carrier
        super().__init__(store, carrier, **({"log": self.said.append} | options))
        self.store = store

    def look_now(self) -> None:
        """Look at the recommender's files."""
        self.look()

    def learn(
        self,
        table: AnyCatalogue,
        numbers: ItemFacts | None = None,
        *,
        run: bytes = RUN,
    ) -> bool:
        """Look at these items and this model; False where it refuses anything of it."""
        model = (
            None
            if numbers is None
            else PublicModel.of_run({"run": run.hex()}, table, numbers, None)
        )
        self.files.files = public_files(table, model)
        before = len(self.said)
        self.look_now()
        return not any(line.startswith("refused") for line in self.said[before:])


def make_store(
    ratings: Ratings | Mapping[str, float],
    *,
    policy: Policy | None = None,
    path: Any = ":memory:",
    weights: PrivacyWeights | None = None,
    catalogue: CatalogueTable | None = None,
) -> DeviceStore:
    """A device's store with these ratings (of one user, where they are stars by item); the item
    table is pinned where one is given.
    """
    store = DeviceStore.create(path, policy=policy)
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


def as_on_devices(ratings: Ratings) -> Ratings:
    """Users' ids as text, which is how devices know them: first vectors follow from ids."""
    return Ratings.from_arrays(
        [str(user) for user in ratings.users.ids[ratings.user_codes].tolist()],
        ratings.items.ids[ratings.item_codes],
        ratings.values,
        scale=ratings.scale,
        items_index=ratings.items,
        item_table=ratings.item_table,
    )
