"""Ratings that are added between two runs get in at the next one, and every rating is in exactly one answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hdpmf.device.agent import DeviceAgent
from hdpmf.device.policy import Policy
from hdpmf.device.store import DeviceStore
from hdpmf.errors import ConfigError
from hdpmf.federation.population import deal
from hdpmf.privacy import PrivacyWeights
from hdpmf.privacy.coding import WEIGHT_UNITS
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.protocol import BitContribution, DeviceCard, SumContribution
from hdpmf.protocol.catalogue import catalogue_table
from hdpmf.ratings import Ratings, synthetic_world
from hdpmf.recommender.release import Release
from hdpmf.service.folder import Config, ServiceFolder
from hdpmf.service.outcome import RunOutcome
from hdpmf.service.service import Service
from hdpmf.service.settings import Pace, RunSettings
from hdpmf.transport import InProcessNetwork

WORLD = synthetic_world(8, 40, 160, rng=3)
PACE = Pace(gather=0.0, deadline=5.0, attempts=2, pause=0.0)
# With such an epsilon there is next to no noise. Each rating could pay it four times over.
SUMS = RunSettings(method="hdp-sum", view="sums", minimum=6, rounds=1, epsilon=5_000.0)
BITS = RunSettings(method="hdp-bit", view="messages", minimum=6, rounds=1, epsilon=5_000.0)
POLICY = Policy(
    methods=("hdp-sum", "hdp-bit"), require_sums=False, epsilon=20_000.0, max_total=None, min_participants=2,
    min_devices=2, min_neighbours=1, threshold_fraction="1/2", max_list_bytes=0,
)  # fmt: skip


class Town:
    """Eight devices that hold every second rating of theirs, and add the others later."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        table = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
        self.folder = ServiceFolder.create(folder / "r", Config(name="town", pace=PACE), table)
        self.stores: list[DeviceStore] = []
        self.later: list[Ratings] = []
        network, cards = InProcessNetwork({}), []
        for number, home in enumerate(deal(WORLD, PrivacyWeights.uniform(WORLD), 8, 0)):
            store = stack.enter_context(DeviceStore.create(":memory:", policy=POLICY))
            store.add(home.ratings.take(np.arange(0, len(home.ratings), 2)))
            self.later.append(home.ratings.take(np.arange(1, len(home.ratings), 2)))
            name = store.identity.public.hex()
            network.attach(name, DeviceAgent(store, noise=SeededNoise(number), simulation=True).answer)
            cards.append(DeviceCard(name=f"d{number}", identity=name, node=name))
            self.stores.append(store)
        self.folder.enroll(cards)
        for store in self.stores:
            store.pin_roster([bytes.fromhex(card.identity) for card in cards], [1] * len(cards))
        self.service = Service(self.folder, network, sleep=lambda _: None)

    def run(self, settings: RunSettings) -> RunOutcome:
        return self.service.conduct(self.service.begin(settings))

    def held(self) -> np.ndarray:
        """How many of the ratings that devices hold are of each item."""
        return sum(np.bincount(_items(store.ratings()), minlength=WORLD.n_items) for store in self.stores)  # type: ignore[return-value]

    def add_later_ones(self) -> None:
        for store, ratings in zip(self.stores, self.later, strict=True):
            store.add(ratings)


def _items(ratings: Ratings) -> np.ndarray:
    places = {str(item): place for place, item in enumerate(WORLD.items.ids.tolist())}
    return np.array([places[str(item)] for item in ratings.item_ids.tolist()], np.int64)


def rated(answer: Any) -> np.ndarray:
    """How many ratings of each item are in what a run released."""
    if isinstance(answer, BitContribution):
        return np.bincount(answer.items, minlength=WORLD.n_items)
    assert isinstance(answer, SumContribution)
    return np.rint(answer.weights[: WORLD.n_items] / WEIGHT_UNITS).astype(np.int64)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        yield Town(tmp_path, stack)


@pytest.mark.parametrize("settings", [SUMS, BITS], ids=["sums", "bits"])
def test_new_ratings_are_in_the_second_answer_only(town: Town, settings: RunSettings) -> None:
    first, before = town.run(settings), town.held()
    town.add_later_ones()
    second = town.run(settings)
    np.testing.assert_array_equal(rated(first.answer), before)
    np.testing.assert_array_equal(rated(second.answer), town.held() - before)
    # Nobody has anything new: everybody takes part all the same, and pays nothing.
    paid = [store.ledger.spent_total() for store in town.stores]
    third = town.run(settings)
    assert not rated(third.answer).any()
    assert [store.ledger.spent_total() for store in town.stores] == paid
    assert [outcome.summary["devices"] for outcome in (first, second, third)] == [8, 8, 8]
    assert [outcome.summary["cohorts"] for outcome in (first, second, third)] == [1, 2, 3]


def test_bits_of_all_runs_stay_in_the_data_set(town: Town) -> None:
    town.run(BITS)
    town.add_later_ones()
    outcome = town.run(BITS)
    release = Release.load(town.folder.path / "runs" / outcome.run.hex() / "ratings.release")
    np.testing.assert_array_equal(rated(release.bits), town.held())


def test_a_rating_that_changes_or_returns_is_not_released_again(town: Town) -> None:
    town.run(SUMS)
    store = town.stores[0]
    user, item = str(store.ratings().user_ids[0]), str(store.ratings().item_ids[0])
    store.rate(item, 1.0, user=user)
    assert not rated(town.run(SUMS).answer).any()


def test_sums_of_another_epsilon_are_put_together_and_bits_are_not(town: Town) -> None:
    town.run(SUMS)
    assert town.run(msgspec.structs.replace(SUMS, epsilon=4_000.0)).summary["cohorts"] == 2
    with pytest.raises(ConfigError, match="ask as it did"):
        town.service.begin(msgspec.structs.replace(SUMS, design="S"))
    town.run(BITS)
    with pytest.raises(ConfigError, match="ask as it did"):
        town.service.begin(msgspec.structs.replace(BITS, epsilon=4_000.0))
    assert town.folder.unfinished() is None
