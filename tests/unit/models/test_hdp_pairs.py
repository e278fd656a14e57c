"""hdp-pairs as an estimator: what it takes, what it refuses, and what its lists and reasons say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hdpmf import HDPPairs, PrivacyWeights, Ratings, load_model, synthetic_world
from hdpmf.common.privacy.pairs import spent
from hdpmf.common.privacy.sampling import ReleasedNoise
from hdpmf.errors import ConfigError, PrivacyError, RatingsError
from hdpmf.models.baselines import MostPopular, UserMean
from hdpmf.private.client.pairs import SERVERS

WORLD = synthetic_world(400, 60, 6_000, rng=0)
TRAIN, TEST = WORLD.hold_out(3, rng=0)
CLICKS = Ratings.from_arrays(TRAIN.user_ids, TRAIN.item_ids, None)
MANY = 1_000.0
"""An epsilon at which there is next to no noise, and what is learned shows."""


def two_circles(people: int = 300) -> Ratings:
    """People of two circles, each of which chooses among its own half of the items."""
    rng = np.random.default_rng(0)
    users, items = [], []
    for user in range(people):
        own = rng.choice(20, 8, replace=False) + 20 * (user % 2)
        users += [user] * 8
        items += own.tolist()
    return Ratings.from_arrays(np.array(users), np.array(items), None)


def test_lists_are_of_ones_own_circle_and_reasons_name_what_goes_together() -> None:
    world = two_circles()
    model = HDPPairs(MANY, rng=0).fit(world)
    inside, why = [], []
    for user in range(20):
        own = set(world.item_ids[world.user_ids == user].tolist())
        for each in model.recommend(user, 5):
            inside.append((each.item >= 20) == (user % 2 == 1))
            if each.reason is not None and each.reason.startswith("because you chose"):
                why.append({int(word) for word in each.reason.split() if word.isdecimal()} <= own)
    assert np.mean(inside) > 0.9
    assert len(why) >= 20
    assert all(why)


def test_noise_is_of_both_servers_and_as_large_as_the_plan_says() -> None:
    model = HDPPairs(1.0, rng=0)
    plan = model.plan(TRAIN)
    assert spent(plan).epsilon(1e-5) <= 1.0
    weights = PrivacyWeights.uniform(TRAIN)
    first, second = (model.answer(plan, TRAIN, weights, ReleasedNoise()) for _ in range(2))
    assert first.noises == SERVERS == 2
    off = (first.values - second.values) / np.sqrt(2 * SERVERS) / plan.values
    # 61 squared normals: outside once in 10^6 runs.
    assert 0.3 < (off**2).mean() < 2.3


def test_a_person_of_less_weight_has_less_in_every_sum() -> None:
    model = HDPPairs(MANY, rng=0)
    plan = model.plan(TRAIN)
    whole, half = (
        model.answer(plan, TRAIN, PrivacyWeights.uniform(TRAIN, w), ReleasedNoise())
        for w in (1.0, 0.5)
    )
    assert half.linear.sum() == pytest.approx(whole.linear.sum() / 2, rel=0.05)


def test_clicks_have_lists_and_no_stars() -> None:
    model = HDPPairs(MANY, rng=0).fit(CLICKS)
    assert not model.plan(CLICKS).stars
    assert model.facts_.similarity is None
    assert len(model.recommend(1, 5)) == 5
    with pytest.raises(ConfigError, match="predicts no ratings"):
        model.predict(1, 1)


def test_lists_alone_predict_no_ratings() -> None:
    model = HDPPairs(8.0, stars=False, rng=0).fit(TRAIN)
    assert not model.predicts_ratings
    assert model.plan(TRAIN).values == 0
    with pytest.raises(ConfigError, match="no error"):
        model.score(TEST)
    own = model.devices_.means[model.devices_.users.find([1])]
    assert model.predict(1, [1, 2]) == pytest.approx(np.repeat(own, 2))


@pytest.mark.parametrize("train", [TRAIN, CLICKS], ids=["stars", "clicks"])
def test_saving_keeps_lists_and_the_public_part_has_nobody(train: Ratings, tmp_path: Path) -> None:
    model = HDPPairs(8.0, rng=0).fit(train)
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    for user in (1, 5, 9):
        told = [(one.item, one.reason) for one in model.recommend(user)]
        assert told == [(one.item, one.reason) for one in again.recommend(user)]
    public = load_model(tmp_path / "model", public_only=True)
    assert len(public.devices_.users) == 0
    newcomer = train.take(train.user_codes == 0)
    public.fold_in(newcomer)
    listed = [each.item for each in public.recommend(newcomer.users.ids[0])]
    assert listed == [each.item for each in model.recommend(newcomer.users.ids[0])]


def test_one_user_can_be_taken_out_without_the_others() -> None:
    model = HDPPairs(8.0, rng=0).fit(TRAIN)
    alone = model.only_users(3)
    assert alone.devices_.users.ids.tolist() == [3]
    assert [one.item for one in alone.recommend(3)] == [one.item for one in model.recommend(3)]


@pytest.mark.parametrize(
    "wrong", [{"heads": 1}, {"heads": "many"}, {"cap": 0.0}, {"cap": 2}, {"heads": True}]
)
def test_options_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        HDPPairs(rng=0, **wrong).fit(TRAIN)  # type: ignore[arg-type]


def test_budgets_that_cannot_be_are_refused() -> None:
    for wrong in ({"epsilon": 0.0}, {"delta": 0.0}, {"delta": 0.5}):
        with pytest.raises(PrivacyError):
            HDPPairs(rng=0, **wrong).fit(TRAIN)
    with pytest.raises(RatingsError, match="implicit"):
        HDPPairs(rng=0).fit(TRAIN).score(CLICKS)


def test_a_sparse_shop_learns_how_people_rate_and_no_noise_as_taste() -> None:
    shop = synthetic_world(3_000, 1_000, 24_000, rng=7, mean=4.4, pull=2, features=False)
    train, test = shop.hold_out(3, rng=0)
    model = HDPPairs(8.0, rng=0).fit(train)
    assert abs(model.facts_.mean - train.values.mean()) < 0.25
    assert model.score(test)["mse"] < 0.85 * UserMean().fit(train).score(test)["mse"]
    noise = HDPPairs(0.1, rng=0, stars=False).fit(train)
    order = noise._order()
    assert (order.scores(np.arange(20)) == order.apart.scores(np.arange(20))).all()


def test_few_people_among_very_many_items_get_a_model_all_the_same() -> None:
    world = synthetic_world(60, 2_000, 1_500, rng=0, features=False)
    for seed in range(4):
        assert np.isfinite(HDPPairs(1.0, rng=seed).fit(world).facts_.similarity.columns).all()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [(0.0, 10.0), (1.0, 5.0)])
def test_a_world_without_features_is_at_least_as_good_as_popular(
    scale: tuple[float, float],
) -> None:
    world = synthetic_world(1_500, 150, 45_000, rng=1)
    low, high = world.scale.low, world.scale.high
    values = scale[0] + (world.values - low) * (scale[1] - scale[0]) / (high - low)
    world = Ratings.from_arrays(world.user_ids, world.item_ids, values, scale=scale)
    train, test = world.hold_out(5, rng=0)
    popular = MostPopular().fit(train).rank(test)["ndcg"]
    assert HDPPairs(4.0, rng=0).fit(train).rank(test)["ndcg"] >= popular


@pytest.mark.parametrize("seed", [0, 5])
def test_a_run_that_is_all_noise_has_a_model(seed: int) -> None:
    """By these seeds the trace of the cosines is negative; columns for stars were infinite."""
    world = synthetic_world(20, 60, 400, rng=2)
    model = HDPPairs(epsilon=0.5, rng=seed, n_threads=1).fit(world)
    assert np.isfinite(model.facts_.similarity.columns).all()
