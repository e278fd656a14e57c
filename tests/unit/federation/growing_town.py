"""A service and eight real device agents that add ratings between runs."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.net import InProcessNetwork
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.lab.simulate.population import deal
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Pace, RunSettings

WORLD = synthetic_world(8, 40, 160, rng=3)
PACE = Pace(gather=0.0, deadline=5.0, attempts=2, pause=0.0)
# With such an epsilon there is next to no noise. Each rating could pay it four times over.
SUMS = RunSettings(method="hdp-sum", view="sums", minimum=6, rounds=1, epsilon=5_000.0)
BITS = RunSettings(method="hdp-bit", view="messages", minimum=6, rounds=1, epsilon=5_000.0)
POLICY = Policy(
    methods=("hdp-sum", "hdp-bit"),
    require_sums=False,
    epsilon=20_000.0,
    max_total=None,
    min_participants=2,
    min_devices=2,
    min_neighbours=1,
    threshold_fraction="1/2",
    max_list_bytes=0,
)


class Town:
    """A device for each user, eight unless told otherwise. They hold every second rating, and
    add the others later.
    """

    def __init__(self, folder: Path, stack: ExitStack, world: Ratings = WORLD) -> None:
        table = catalogue_table(world.items, world.scale, world.item_table)
        self.folder = ServiceFolder.create(folder / "r", Config(name="town", pace=PACE), table)
        self.stores: list[DeviceStore] = []
        self.later: list[Ratings] = []
        self.network, self.agents, self.cards = (
            InProcessNetwork({}),
            list[Participant](),
            list[DeviceCard](),
        )
        for number, home in enumerate(deal(world, PrivacyWeights.uniform(world), world.n_users, 0)):
            store = stack.enter_context(DeviceStore.create(":memory:", policy=POLICY))
            store.add(home.ratings.take(np.arange(0, len(home.ratings), 2)))
            self.later.append(home.ratings.take(np.arange(1, len(home.ratings), 2)))
            name = store.identity.public.hex()
            self.agents.append(Participant(store, noise=SeededNoise(number), simulation=True))
            self.network.attach(name, self.agents[-1].answer)
            self.cards.append(DeviceCard(name=f"d{number}", identity=name))
            self.stores.append(store)
        self.folder.enroll(self.cards)
        for store in self.stores:
            store.pin_roster(
                [bytes.fromhex(card.identity) for card in self.cards], [1] * len(self.cards)
            )
        self.service = Service(self.folder, self.network, sleep=lambda _: None)

    def run(self, settings: RunSettings) -> RunOutcome:
        return self.service.conduct(self.service.begin(settings))

    def held(self) -> np.ndarray:
        """How many of the ratings that devices hold are of each item."""
        return sum(
            np.bincount(_items(store.ratings()), minlength=WORLD.n_items) for store in self.stores
        )  # type: ignore[return-value]

    def add_later_ones(self) -> None:
        for store, ratings in zip(self.stores, self.later, strict=True):
            store.add(ratings)


def _items(ratings: Ratings) -> np.ndarray:
    places = {str(item): place for place, item in enumerate(WORLD.items.ids.tolist())}
    return np.array([places[str(item)] for item in ratings.item_ids.tolist()], np.int64)
