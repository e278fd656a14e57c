"""Simulated federations: the library's accuracy, by real stores, reports and servers."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.protocol import ItemFacts
from hdpmf.lab.simulate.simulate import deal, only_users, simulate
from hdpmf.models import make_model
from hdpmf.untrusted.service.settings import RunSettings

pytestmark = pytest.mark.slow

WORLD = synthetic_world(24, 30, 500, rng=3)


def test_it_is_measured_as_the_librarys() -> None:
    train, test = synthetic_world(120, 60, 4_000, rng=3).hold_out(3, rng=0)
    found = simulate(train, RunSettings(minimum=120, epsilon=2.0), test=test)
    library = make_model("hdp-sum", epsilon=2.0, rng=0).fit(train)
    assert found.result.mse == pytest.approx(library.score(test)["mse"], abs=0.05)
    assert (found.result.status, found.result.epsilon) == ("proved", pytest.approx(2.0))
    assert found.result.user_mean_mse == make_model("user-mean").fit(train).score(test)["mse"]
    assert found.outcome.summary["users"] == 120
    assert min(found.result.bytes_up, found.result.bytes_down) > 1000


def test_without_much_noise_weights_are_those_of_all_users() -> None:
    weights = PrivacySpec.paper().draw(WORLD, 0)
    facts = simulate(WORLD, RunSettings(minimum=24, epsilon=1e5), weights).outcome.model.numbers
    assert isinstance(facts, ItemFacts)
    whole = np.bincount(WORLD.item_codes, weights.for_ratings(WORLD), WORLD.n_items)
    np.testing.assert_allclose(facts.popularity, whole, atol=0.6)


def test_a_seed_gives_the_same_result_and_another_one_another() -> None:
    settings = RunSettings(minimum=24)
    first, again, other = (
        simulate(WORLD, settings, seed=seed).outcome.model.numbers for seed in (4, 4, 5)
    )
    assert isinstance(first, ItemFacts)
    assert isinstance(again, ItemFacts)
    assert isinstance(other, ItemFacts)
    np.testing.assert_array_equal(first.bias, again.bias)
    assert not np.allclose(first.bias, other.bias, atol=1e-3)


def test_users_are_dealt_once_with_their_own_ratings_and_weights() -> None:
    weights = PrivacySpec.paper().draw(WORLD, 1)
    for user, (part, own) in enumerate(deal(WORLD, weights)):
        rows = WORLD.user_codes == user
        np.testing.assert_array_equal(part.item_codes, WORLD.item_codes[rows])
        np.testing.assert_array_equal(part.values, WORLD.values[rows])
        np.testing.assert_allclose(own.for_ratings(part), weights.for_ratings(WORLD)[rows])


def test_a_part_of_the_users_keeps_the_catalogue() -> None:
    chosen = np.arange(24) % 3 == 0
    part = only_users(WORLD, chosen)
    assert part.n_users == 8
    assert part.items == WORLD.items
    assert set(part.users.ids.tolist()) == set(WORLD.users.ids[chosen].tolist())
    assert len(part) == int(chosen[WORLD.user_codes].sum())
