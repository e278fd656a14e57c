"""Simulated federations: the library's accuracy, by real stores, reports and servers."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.task import EVERYBODY
from hdpmf.lab.simulate.simulate import deal, only_users, simulate
from hdpmf.models import make_model
from hdpmf.models.hdp_pairs import HDPPairs
from hdpmf.untrusted.service.settings import RunSettings

pytestmark = pytest.mark.slow

WORLD = synthetic_world(24, 30, 500, rng=3)


@pytest.mark.parametrize("spec", [PrivacySpec(), PrivacySpec.paper()], ids=["default", "paper"])
def test_without_noise_the_model_is_the_librarys(
    spec: PrivacySpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every device's real report is in the sums once, and nothing else: all numbers are equal."""
    monkeypatch.setattr(
        SeededNoise, "discrete_gaussian", lambda self, sigma: np.zeros(sigma.shape, np.int64)
    )
    train, test = synthetic_world(60, 60, 1_500, rng=3).hold_out(3, rng=0)
    weights = spec.draw(train, 0)
    found = simulate(train, RunSettings(minimum=60, heads=20), weights, test=test)
    library = make_model("hdp-pairs", heads=20, rng=0)
    assert isinstance(library, HDPPairs)
    library.fit(train, weights)
    facts, lists = found.outcome.model.numbers, found.outcome.model.lists
    assert isinstance(facts, ItemFacts)
    assert lists is not None
    for name in ("mean", "bias", "variance", "popularity"):
        np.testing.assert_array_equal(getattr(facts, name), getattr(library.facts_, name))
    np.testing.assert_array_equal(lists.decode.whole, library.lists_.decode.whole)
    assert found.result.mse == library.score(test)["mse"]
    assert found.result.ndcg == library.rank(test, 10)["ndcg"]
    assert (found.result.status, found.result.epsilon) == ("proved", 8.0)
    assert found.result.user_mean_mse == make_model("user-mean").fit(train).score(test)["mse"]
    assert found.outcome.summary["users"] == found.result.devices == 60
    assert min(found.result.bytes_up, found.result.bytes_down) > 1000


def test_a_part_of_the_people_is_asked_anew_in_each_task() -> None:
    settings = RunSettings(minimum=4, heads=10, asked=EVERYBODY // 2)
    found = simulate(WORLD, settings).outcome
    reports = found.summary["reports"]
    assert all(4 <= count <= 20 for count in reports)  # of 24; wrong once in 10^3 seeds
    assert found.summary["users"] == reports[1]


def test_a_seed_gives_the_same_result_and_another_one_another() -> None:
    settings = RunSettings(minimum=24, heads=10)
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
