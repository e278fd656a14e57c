"""Simulated federations: the library's results in any partition, its accuracy with noise, and
what it cost.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean, variance
from typing import Any

import numpy as np
import pytest

from hdpmf.common.data import load_dataset, synthetic_world
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.common.protocol import ItemFacts, Round
from hdpmf.errors import ConfigError
from hdpmf.lab.simulate.simulate import simulate
from hdpmf.lab.simulate.virtual_device import deal, only_users
from hdpmf.models import make_model
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.settings import RunSettings
from tests.world import as_on_devices

pytestmark = pytest.mark.slow

WORLD = synthetic_world(24, 30, 500, rng=3)


@pytest.mark.parametrize(
    ("view", "devices", "processes"),
    [
        ("messages", 24, 1),
        ("messages", 24, 2),
        ("messages", 7, 1),
        ("messages", 1, 1),
        ("sums", 24, 1),
        ("sums", 5, 2),
    ],
)
def test_without_noise_the_factors_are_the_librarys(
    view: Any, devices: int, processes: int
) -> None:
    settings = RunSettings(
        method="mf", view=view, minimum=24, rounds=4, factors=3, credit=24, max_colluding=0.0
    )
    found = simulate(WORLD, settings, devices=devices, processes=processes)
    library = make_model("mf", n_factors=3, epochs=4, rng=0).fit(as_on_devices(WORLD))
    final = found.outcome.model.numbers
    assert isinstance(final, Round)
    np.testing.assert_allclose(final.item_factors, library.catalogue_.factors, atol=1e-5)
    # The devices' own vectors, too, by way of what they predict.
    users = WORLD.users.ids[WORLD.user_codes]
    predicted = found.model.predict(users, WORLD.items.ids[WORLD.item_codes])
    expected = library.predict(
        [str(user) for user in users.tolist()], WORLD.items.ids[WORLD.item_codes]
    )
    np.testing.assert_allclose(predicted, expected, atol=1e-4)


@pytest.mark.parametrize(("method", "view"), [("hdp-sum", "sums"), ("hdp-bit", "messages")])
def test_one_round_designs_are_measured_as_the_librarys(method: Any, view: Any) -> None:
    settings = RunSettings(
        method=method, view=view, minimum=120, rounds=1, epsilon=2.0, credit=20, max_colluding=0.0
    )
    train, test = synthetic_world(120, 60, 4_000, rng=3).hold_out(3, rng=0)
    found = simulate(train, settings, test=test, devices=6)
    library = make_model(method, epsilon=2.0, rng=0).fit(train)
    facts = found.outcome.model.numbers
    assert isinstance(facts, ItemFacts)
    assert found.result.mse == pytest.approx(library.score(test)["mse"], abs=0.05)
    assert (found.result.status, found.result.epsilon) == ("proved", pytest.approx(2.0))
    assert found.result.user_mean_mse == make_model("user-mean").fit(train).score(test)["mse"]


def test_the_same_seed_gives_the_same_result_in_any_number_of_processes() -> None:
    settings = RunSettings(method="hdpmf", view="messages", minimum=24, rounds=3, factors=3)
    weights = PrivacySpec.paper().draw(WORLD, 0)
    runs = [
        simulate(WORLD, settings, weights, seed=4, processes=n).outcome.model.numbers
        for n in (1, 2)
    ]
    other = simulate(WORLD, settings, weights, seed=5).outcome.model.numbers
    assert all(isinstance(numbers, Round) for numbers in (*runs, other))
    np.testing.assert_allclose(runs[0].item_factors, runs[1].item_factors, atol=1e-6)  # type: ignore[union-attr]
    assert not np.allclose(runs[0].item_factors, other.item_factors, atol=1e-3)  # type: ignore[union-attr]


def test_with_noise_the_accuracy_is_the_librarys(data_folder: Path) -> None:
    """Over 5 seeds on ML-100K. Silos instead of 943 devices: the same noise and messages, fewer
    of them.
    """
    train, test = load_dataset("ml-100k").hold_out(10, rng=0)
    settings = RunSettings(
        method="hdpmf", view="messages", minimum=train.n_users, rounds=10, epsilon=1.0
    )
    ours, theirs = [], []
    for seed in range(5):
        weights = PrivacySpec.paper().draw(train, seed)
        ours.append(simulate(train, settings, weights, test=test, devices=3, seed=seed).result.mse)
        theirs.append(
            float(make_model("hdpmf", epochs=10, rng=seed).fit(train, weights).score(test)["mse"])
        )
    assert all(score is not None for score in ours)
    found = [score for score in ours if score is not None]
    deviation = math.sqrt((variance(found) + variance(theirs)) / 5)
    assert abs(mean(found) - mean(theirs)) < 3 * deviation


def test_users_are_dealt_once_with_their_own_ratings_and_weights() -> None:
    weights = PrivacySpec.paper().draw(WORLD, 1)
    for devices in (1, 5, 24):
        homes = deal(WORLD, weights, devices, seed=2)
        assert len(homes) == devices
        sizes = [home.ratings.n_users for home in homes]
        assert sum(sizes) == 24
        assert max(sizes) - min(sizes) <= 1
        found = {
            (user, item): (value, weight)
            for home in homes
            for user, item, value, weight in zip(
                home.ratings.users.ids[home.ratings.user_codes].tolist(),
                home.ratings.item_codes.tolist(),
                home.ratings.values.tolist(),
                home.weights.for_ratings(home.ratings).tolist(),
                strict=True,
            )
        }
        rows = zip(
            WORLD.users.ids[WORLD.user_codes].tolist(),
            WORLD.item_codes.tolist(),
            WORLD.values.tolist(),
            weights.for_ratings(WORLD).tolist(),
            strict=True,
        )
        assert found == {(str(user), item): (value, weight) for user, item, value, weight in rows}


@pytest.mark.parametrize("devices", [24, 5])
def test_no_more_ratings_of_a_person_take_part_than_policies_allow(devices: int) -> None:
    settings = RunSettings(
        method="hdp-sum",
        view="sums",
        minimum=5,
        rounds=1,
        epsilon=1e5,
        credit=24,
        max_colluding=0.0,
    )
    facts = simulate(WORLD, settings, devices=devices, max_ratings=3).outcome.model.numbers
    assert isinstance(facts, ItemFacts)
    assert float(facts.popularity.sum()) == pytest.approx(3 * 24, rel=0.02)


def test_more_devices_than_users_are_refused() -> None:
    with pytest.raises(ConfigError, match="24 users can be dealt to 1 to 24 devices"):
        deal(WORLD, PrivacyWeights.uniform(WORLD), 25, 0)


def test_a_part_of_the_users_keeps_the_catalogue() -> None:
    chosen = np.arange(24) % 3 == 0
    part = only_users(WORLD, chosen)
    assert part.n_users == 8
    assert part.items == WORLD.items
    assert set(part.users.ids.tolist()) == set(WORLD.users.ids[chosen].tolist())
    assert len(part) == int(chosen[WORLD.user_codes].sum())


def test_bytes_and_rounds_are_counted() -> None:
    settings = RunSettings(method="hdpmf", view="messages", minimum=24, rounds=3, factors=3)
    metrics = Metrics()
    result = simulate(WORLD, settings, metrics=metrics).result
    assert result.rounds == metrics.rounds_done == 3
    assert result.bytes_per_device * 24 == pytest.approx(metrics.bytes_in + metrics.bytes_out)
    assert result.bytes_up > 30 * 3 * 4  # at least a round's gradients
    assert metrics.refusals == {}
