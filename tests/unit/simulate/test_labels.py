"""Taste labels between machines: the service and real device agents give the library's facts,
whoever is restarted.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.priors import POPULARITY, Labels
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.protocol import Envelope, Grouping, ItemFacts, decode, encode
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.errors import ConfigError, FederationError
from hdpmf.lab.simulate.simulate import simulate
from hdpmf.models import HDPSum, load_prior, one_round
from hdpmf.private.device.recommendations import predict_ratings, recommend
from hdpmf.untrusted.service.aggregation.masks import SumBrokenOffError
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.outcome import state
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import RunSettings
from tests.world import Federation, Killed, NoNoise, whole_life_policy

pytestmark = pytest.mark.slow

WORLD = synthetic_world(60, 50, 2_200, rng=3)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)
FEATURES = ItemFeatures.of_table(WORLD.item_table, WORLD.items)
SCORE = {name: (-1.0) ** place for place, name in enumerate(FEATURES.names)} | {POPULARITY: 0.3}
EPSILON = 8.0  # so that a small world has heads
DEVICES = 6
POLICY = whole_life_policy(
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


def federation(folder: Path, **options: Any) -> Federation:
    """Six devices with ten users each, without noise: labels are as the scores say."""
    return Federation(
        WORLD,
        [10] * DEVICES,
        folder,
        policy=POLICY,
        weights=WEIGHTS,
        noise=lambda number: NoNoise(),
        **options,
    )


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> HDPSum:
    """The model of one process, without noise."""
    shipped = load_prior("films-100k")
    assert shipped is not None
    assert shipped.labels is not None
    prior = dataclasses.replace(shipped, labels=Labels(SCORE, shipped.labels.prior))
    monkeypatch.setattr(one_round, "SeededNoise", lambda seed, stream: NoNoise())
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
    town = federation(tmp_path)
    outcome = town.run(SETTINGS)
    assert library.facts_.patterns.any()  # there are heads enough, and a contrast
    same(outcome.model.numbers, library)
    assert (outcome.summary["rounds"], outcome.summary["users"], outcome.summary["refusals"]) == (
        2,
        60,
        {},
    )
    users = WORLD.users.ids[WORLD.user_codes]
    items = [str(item) for item in WORLD.items.ids[WORLD.item_codes].tolist()]
    expected = library.predict(users, WORLD.items.ids[WORLD.item_codes])
    for store, agent in zip(town.stores, town.devices, strict=True):
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
        town = federation(folder)
        run = town.service.begin(SETTINGS)
        town.network.replies_left = point
        try:
            outcome = town.service.conduct(run)
            ended = True  # before the moment came
        except Killed:
            outcome = town.restart_service().conduct(run)
        same(outcome.model.numbers, library)
        groupings = [device.told(Grouping) for device in town.devices]
        assert len({encode(found) for told in groupings for found in told}) == 1
        assert [len(told) for told in groupings] == [1] * DEVICES
        for store in town.stores:
            entries = store.ledger.entries()
            assert [entry.ratings > 0 for entry in entries].count(True) == 1
            assert [entry.number for entry in entries if entry.action == "sent"] == [0, 1]
        point += 7
    assert point > 10 * 7


def test_devices_that_are_all_restarted_between_the_sums(tmp_path: Path, library: HDPSum) -> None:
    town = federation(tmp_path)
    service = town.service

    def restart() -> None:
        town.restart(*range(DEVICES))

    service.metrics.listeners.append(restart)
    outcome = service.conduct(service.begin(SETTINGS))
    same(outcome.model.numbers, library)


def test_a_device_that_goes_away_between_the_sums_is_in_the_first_only(tmp_path: Path) -> None:
    town = federation(tmp_path)
    service = town.service

    def leave() -> None:
        if service.metrics.number == 1:
            town.disconnect(0)

    service.metrics.listeners.append(leave)
    run = service.begin(SETTINGS)
    outcome = service.conduct(run)
    assert town.folder.run_files(run).load().users == [60, 50]
    assert outcome.summary["devices"] == 5
    assert [
        entry.number for entry in town.stores[0].ledger.entries() if entry.action == "sent"
    ] == [0]
    town.connect(0)
    town.look()
    assert town.devices[0].model is not None


def test_who_missed_the_first_sum_is_not_asked_for_the_second(tmp_path: Path) -> None:
    town = federation(tmp_path)
    service, away = town.service, town.cards[0].identity

    def first_messages_lost(data: bytes) -> bytes:
        envelope = decode(data)
        assert isinstance(envelope, Envelope)
        if envelope.part == "sum" and envelope.number == 0:
            return b"lost"
        return town.answers[away](data)

    town.network.attach(away, first_messages_lost)
    run = service.begin(SETTINGS)
    service.conduct(run)
    assert town.folder.run_files(run).load().users == [50, 50]
    assert not [entry for entry in town.stores[0].ledger.entries() if entry.action == "sent"]


def test_a_second_sum_that_breaks_off_ends_the_run(tmp_path: Path) -> None:
    """Devices do not put numbers into a third one; what they paid is paid."""
    town = federation(tmp_path)
    answered: Counter[int] = Counter()

    def vanish(number: int, data: bytes) -> bytes:
        envelope = decode(data)
        assert isinstance(envelope, Envelope)
        answered[number] += envelope.part == "sum" and envelope.number == 1
        return b"lost" if answered[number] > 3 else town.answers[town.devices[number].name](data)

    for number, card in enumerate(town.cards):
        town.network.attach(card.identity, partial(vanish, number))
    service = town.service
    with pytest.raises(SumBrokenOffError, match="this run cannot go on"):
        service.conduct(service.begin(SETTINGS))
    assert {
        entry.number for entry in town.stores[0].ledger.entries() if entry.action == "sent"
    } == {0, 1}


def test_who_only_wants_the_model_gets_it_with_the_prior_and_pays_nothing(tmp_path: Path) -> None:
    town = federation(tmp_path)
    town.disconnect(5)
    town.run(SETTINGS)
    town.connect(5)
    town.look()
    late = town.stores[5]
    assert late.ledger.spent_total() == 0.0
    model = town.devices[5].model
    assert model is not None
    user = str(late.ratings().users.ids[0])
    assert len(recommend(late, 3, user=user, model=model, keep_rated=True)) == 3


def test_answers_by_labels_are_not_put_together_with_a_later_cohorts(tmp_path: Path) -> None:
    town = federation(tmp_path, joined=5)
    town.run(SETTINGS)
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
    service = Service(ServiceFolder.create(tmp_path / "r", Config(name="bare"), table))
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
