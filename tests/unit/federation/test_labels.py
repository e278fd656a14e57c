"""Taste labels between machines: the service and real device agents give the library's facts,
whoever is restarted.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.priors import POPULARITY, Labels
from hdpmf.common.net import DeviceReply, InProcessNetwork
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.protocol import DeviceCard, Envelope, Grouping, ItemFacts, decode
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.errors import ConfigError, FederationError
from hdpmf.lab.simulate.population import deal
from hdpmf.lab.simulate.simulate import simulate
from hdpmf.models import HDPSum, load_prior, one_round
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommendations import predict_ratings, recommend
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.aggregation.masks import SumBrokenOffError
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.outcome import state
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Pace, RunSettings

pytestmark = pytest.mark.slow

WORLD = synthetic_world(60, 50, 2_200, rng=3)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)
FEATURES = ItemFeatures.of_table(WORLD.item_table, WORLD.items)
SCORE = {name: (-1.0) ** place for place, name in enumerate(FEATURES.names)} | {POPULARITY: 0.3}
EPSILON = 8.0  # so that a small world has heads
DEVICES = 6
POLICY = Policy(
    epsilon=EPSILON,
    min_participants=2,
    min_devices=2,
    min_neighbours=1,
    threshold_fraction="1/2",
    max_rounds=2,
    max_colluding="0",
    max_credit=10,
    max_total=None,
)
SETTINGS = RunSettings(
    method="hdp-sum",
    view="sums",
    minimum=30,
    rounds=2,
    epsilon=EPSILON,
    labels=SCORE,
    prior="films-100k",
    credit=10,
    max_colluding=0.0,
)


class Silent:
    """Noise off, and labels as the scores say."""

    def laplace_share(
        self, scale: object, n_shares: int, size: Any, *, count: int = 1
    ) -> np.ndarray:
        return np.zeros(size, np.int64)

    def discrete_laplace(self, scale: object, size: Any) -> np.ndarray:
        return np.zeros(size, np.int64)

    def bits(self, p_plus: np.ndarray, epsilon: Any = None) -> np.ndarray:
        return np.asarray(p_plus) > 0.5


class Killed(BaseException):
    """The recommender's process is gone."""


class Wire(InProcessNetwork):
    """Keeps the messages with a grouping; the recommender dies when the n-th reply arrives,
    where so wanted.
    """

    def __init__(self) -> None:
        super().__init__({})
        self.left: int | None = None
        self.groupings: set[bytes] = set()

    def exchange(self, outgoing: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        for data in outgoing.values():
            sent = decode(data)
            if (
                isinstance(sent, Envelope)
                and sent.part == "job"
                and isinstance(decode(sent.body), Grouping)
            ):
                self.groupings.add(data)
        for reply in super().exchange(outgoing, deadline):
            if self.left == 0:
                self.left = None
                raise Killed
            self.left = None if self.left is None else self.left - 1
            yield reply


class Town:
    """Devices with ten users each, and a service."""

    def __init__(self, folder: Path, *, enrolled: int = DEVICES) -> None:
        self.wire = Wire()
        self.stores, self.agents, self.cards = [], [], []
        for number, home in enumerate(deal(WORLD, WEIGHTS, DEVICES, 0)):
            store = DeviceStore.create(":memory:", users=home.ratings.n_users, policy=POLICY)
            store.add(home.ratings)
            store.set_weights(home.weights, home.ratings)
            self.stores.append(store)
            self.agents.append(agent_of(store))
            name = store.identity.public.hex()
            self.cards.append(DeviceCard(name=f"d{number}", identity=name, users=store.users))
        table = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
        pace = Pace(gather=0.0, deadline=5.0, attempts=2, pause=0.0)
        self.folder = ServiceFolder.create(folder / "r", Config(name="town", pace=pace), table)
        self.folder.enroll(self.cards[:enrolled])
        for store in self.stores[:enrolled]:
            store.pin_roster(
                [bytes.fromhex(card.identity) for card in self.cards[:enrolled]],
                [card.users for card in self.cards[:enrolled]],
            )
        for number in range(enrolled):
            self.connect(number)

    @property
    def service(self) -> Service:
        """As after a restart: all that it knows is in the folder."""
        return Service(self.folder, self.wire, sleep=lambda _: None)

    def connect(self, number: int) -> None:
        # Looked up when a message comes, so that a test can put a restarted agent in its place.
        self.wire.attach(self.cards[number].identity, lambda data: self.agents[number].answer(data))


def agent_of(store: DeviceStore) -> Participant:
    return Participant(store, noise=Silent(), simulation=True, seed=0)  # type: ignore[arg-type]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> HDPSum:
    """The model of one process, without noise."""
    shipped = load_prior("films-100k")
    assert shipped is not None
    assert shipped.labels is not None
    prior = dataclasses.replace(shipped, labels=Labels(SCORE, shipped.labels.prior))
    monkeypatch.setattr(one_round, "SeededNoise", lambda seed, stream: Silent())
    return HDPSum(EPSILON, labels=True, prior=prior, rng=0).fit(WORLD, WEIGHTS)


def same(facts: Any, library: HDPSum) -> None:
    expected = library.facts_
    assert isinstance(facts, ItemFacts)
    assert (facts.labels, facts.prior, facts.mean) == (True, "films-100k", expected.mean)
    for name in ("bias", "variance", "popularity", "patterns"):
        np.testing.assert_array_equal(getattr(facts, name), getattr(expected, name))


def test_without_noise_facts_and_predictions_are_the_librarys(
    tmp_path: Path, library: HDPSum
) -> None:
    town = Town(tmp_path)
    outcome = town.service.conduct(town.service.begin(SETTINGS))
    assert library.facts_.patterns.any()  # there are heads enough, and a contrast
    same(outcome.model.numbers, library)
    assert (outcome.summary["rounds"], outcome.summary["users"], outcome.summary["refusals"]) == (
        2,
        60,
        {},
    )
    assert outcome.summary["delivered"] == DEVICES
    users = WORLD.users.ids[WORLD.user_codes]
    items = [str(item) for item in WORLD.items.ids[WORLD.item_codes].tolist()]
    expected = library.predict(users, WORLD.items.ids[WORLD.item_codes])
    for store, agent in zip(town.stores, town.agents, strict=True):
        own = np.isin([str(user) for user in users.tolist()], store.ratings().users.ids)
        names = [str(user) for user in users[own].tolist()]
        found = predict_ratings(
            store, names, [items[at] for at in np.flatnonzero(own)], model=agent.model
        )
        np.testing.assert_allclose(found, expected[own], atol=1e-4)


def test_a_killed_recommender_goes_on_with_the_same_grouping(
    tmp_path: Path, library: HDPSum
) -> None:
    point, ended = 0, False
    while not ended:
        folder = tmp_path / str(point)
        folder.mkdir()
        town = Town(folder)
        run = town.service.begin(SETTINGS)
        town.wire.left = point
        try:
            outcome = town.service.conduct(run)
            ended = True  # before the moment came
        except Killed:
            outcome = town.service.conduct(run)
        same(outcome.model.numbers, library)
        assert len(town.wire.groupings) == 1
        for store in town.stores:
            entries = store.ledger.entries()
            assert [entry.ratings > 0 for entry in entries].count(True) == 1
            assert [entry.number for entry in entries if entry.action == "sent"] == [0, 1]
        point += 7
    assert point > 10 * 7


def test_devices_that_are_all_restarted_between_the_sums(tmp_path: Path, library: HDPSum) -> None:
    town = Town(tmp_path)
    service = town.service

    def restart() -> None:
        town.agents[:] = map(agent_of, town.stores)

    service.metrics.listeners.append(restart)
    outcome = service.conduct(service.begin(SETTINGS))
    same(outcome.model.numbers, library)


def test_a_device_that_goes_away_between_the_sums_is_in_the_first_only(tmp_path: Path) -> None:
    town = Town(tmp_path)
    service = town.service

    def leave() -> None:
        if service.metrics.number == 1:
            town.wire.detach(town.cards[0].identity)

    service.metrics.listeners.append(leave)
    run = service.begin(SETTINGS)
    outcome = service.conduct(run)
    assert town.folder.run_files(run).load().users == [60, 50]
    assert outcome.summary["devices"] == 5
    assert [
        entry.number for entry in town.stores[0].ledger.entries() if entry.action == "sent"
    ] == [0]
    town.connect(0)
    assert service.hand_out() == 1


def test_who_missed_the_first_sum_is_not_asked_for_the_second(tmp_path: Path) -> None:
    town = Town(tmp_path)
    service, away = town.service, town.cards[0].identity

    def first_messages_lost(data: bytes) -> bytes:
        envelope = decode(data)
        assert isinstance(envelope, Envelope)
        if envelope.part == "sum" and envelope.number == 0:
            return b"lost"
        return town.agents[0].answer(data)

    town.wire.attach(away, first_messages_lost)
    run = service.begin(SETTINGS)
    service.conduct(run)
    assert town.folder.run_files(run).load().users == [50, 50]
    assert not [entry for entry in town.stores[0].ledger.entries() if entry.action == "sent"]


def test_a_second_sum_that_breaks_off_ends_the_run(tmp_path: Path) -> None:
    """Devices do not put numbers into a third one; what they paid is paid."""
    town = Town(tmp_path)
    answered: Counter[int] = Counter()

    def vanish(number: int, data: bytes) -> bytes:
        envelope = decode(data)
        assert isinstance(envelope, Envelope)
        answered[number] += envelope.part == "sum" and envelope.number == 1
        return b"lost" if answered[number] > 3 else town.agents[number].answer(data)

    for number, card in enumerate(town.cards):
        town.wire.attach(card.identity, partial(vanish, number))
    service = town.service
    with pytest.raises(SumBrokenOffError, match="this run cannot go on"):
        service.conduct(service.begin(SETTINGS))
    assert {
        entry.number for entry in town.stores[0].ledger.entries() if entry.action == "sent"
    } == {0, 1}


def test_who_only_wants_the_model_gets_it_with_the_prior_and_pays_nothing(tmp_path: Path) -> None:
    town = Town(tmp_path)
    town.wire.detach(town.cards[5].identity)
    town.service.conduct(town.service.begin(SETTINGS))
    town.connect(5)
    assert town.service.hand_out() == 1
    late = town.stores[5]
    assert late.ledger.spent_total() == 0.0
    model = town.agents[5].model
    assert model is not None
    assert len(recommend(late, 3, user=str(late.ratings().users.ids[0]), model=model)) == 3


def test_answers_by_labels_are_not_put_together_with_a_later_cohorts(tmp_path: Path) -> None:
    town = Town(tmp_path, enrolled=5)
    town.service.conduct(town.service.begin(SETTINGS))
    town.folder.enroll(town.cards[5:])
    with pytest.raises(FederationError, match="not put together"):
        town.service.begin(SETTINGS)
    # Nor taken for those of a run without labels.
    plain = RunSettings(
        method="hdp-sum",
        view="sums",
        minimum=30,
        rounds=1,
        epsilon=EPSILON,
        credit=10,
        max_colluding=0.0,
    )
    assert len(town.folder.record(town.service.begin(plain)).cohort) == DEVICES


def test_items_without_features_are_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    table = catalogue_table(WORLD.items, WORLD.scale)
    service = Service(ServiceFolder.create(tmp_path / "r", Config(name="bare"), table), Wire())
    with pytest.raises(ConfigError, match="item features"):
        service.begin(SETTINGS)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rounds": 1}, "hdp-sum with labels has 2 rounds, not 1"),
        ({"labels": None}, "hdp-sum has 1 round, not 2"),
        ({"design": "S"}, "design A"),
        ({"labels": {}}, "finite weights"),
        ({"labels": {"year": float("nan")}}, "finite weights"),
        ({"epsilon": 5e-5}, "at least 0.0001"),
        ({"method": "hdpmf", "labels": None}, "has no option .prior."),
    ],
)
def test_settings_that_make_no_sense(changes: dict[str, Any], said: str) -> None:
    fields = {name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__}
    with pytest.raises(ConfigError, match=said):
        RunSettings(**(fields | changes))


def test_the_statement_says_what_labels_cost() -> None:
    fields = {name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__}
    said = state(RunSettings(**(fields | {"epsilon": 1.0})), WORLD.scale)
    assert (said.status, said.epsilon) == ("proved", pytest.approx(1.0))
    assert "weight times 0.992" in said.guarantee
    assert said.sees.startswith("two sums")
    assert "label" in said.sees
    plain = state(RunSettings(method="hdp-sum", view="sums", minimum=30, rounds=1), WORLD.scale)
    assert "label" not in plain.sees + plain.guarantee


def test_a_simulation_by_labels_is_as_accurate_as_the_librarys() -> None:
    train, test = synthetic_world(150, 60, 6_000, rng=3).hold_out(3, rng=0)
    shipped = load_prior("films-100k")
    assert shipped is not None
    assert shipped.labels is not None
    settings = RunSettings(
        method="hdp-sum",
        view="sums",
        minimum=150,
        rounds=2,
        epsilon=4.0,
        labels=shipped.labels.score,
        prior="films-100k",
        credit=25,
        max_colluding=0.0,
    )
    found = simulate(train, settings, test=test, devices=6)
    library = HDPSum(4.0, labels=True, prior="films-100k", rng=0).fit(train)
    assert found.result.rounds == 2
    assert (found.result.status, found.result.epsilon) == ("proved", pytest.approx(4.0))
    assert found.result.mse == pytest.approx(library.score(test)["mse"], abs=0.05)
    assert found.outcome.model.numbers.patterns.shape == (60, 1)  # type: ignore[union-attr]
