"""HDPMF with a price that is paid: the noise has its law, the sensitivity holds, nothing else
depends on a rating.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.methods import METHODS
from hdpmf.common.privacy import PrivacySpec, SeededNoise
from hdpmf.common.privacy.mechanisms import Paid, dense_laplace_scale
from hdpmf.common.protocol import Plan, Round
from hdpmf.errors import ConfigError, PrivacyError, ProtocolError
from hdpmf.models import HDPMF, make_model
from hdpmf.private.client import GradientClient
from hdpmf.private.client.devices import constrained_ridge, constrained_ridges
from hdpmf.private.client.gradients import stand_in_vectors
from hdpmf.private.kernels.batch import group
from hdpmf.untrusted.recommender import Recommender

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=1500, rng=0)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)
WORKERS = Workers(1)
ROUNDS = 3


class Silent(SeededNoise):
    def discrete_laplace(self, scale, size):
        return np.zeros(size, np.int64)


def plan_for(**changes):
    fields = {
        "n_items": WORLD.n_items,
        "n_factors": 4,
        "epochs": ROUNDS,
        "learning_rate": 0.05,
        "reg": 0.01,
        "mechanism": "paid",
        "epsilon": 2.0,
        "scale_low": 1.0,
        "scale_high": 5.0,
        "scale_steps": True,
        "fresh_noise": True,
    }
    return Plan(**(fields | changes))


def opened(ratings=WORLD, noise=None):
    plan = plan_for()
    shard = GradientClient(ratings, WEIGHTS, Paid(), noise or SeededNoise(5, 2), 7, WORKERS)
    recommender = Recommender(plan, Paid(), SeededNoise(3, 1), h_per_item=True)
    recommender.start([shard.open(recommender.open([shard.accept(plan)]))])
    return shard, recommender


def with_one_changed(index):
    values = WORLD.values.copy()
    values[index] = 1.0 if values[index] > 3 else 5.0
    return Ratings.from_arrays(WORLD.user_ids, WORLD.item_ids, values, scale=WORLD.scale), abs(
        float(values[index] - WORLD.values[index])
    )


@pytest.mark.parametrize("index", [0, 700, 1400])
def test_a_changed_rating_moves_one_item_by_no_more_than_the_noise_covers(index):
    """For any factors that the recommender may send, in every round, also after the first."""
    other, difference = with_one_changed(index)
    shards = [opened(ratings, Silent(1, 2))[0] for ratings in (WORLD, other)]
    _, recommender = opened()
    rng = np.random.default_rng(index)
    weight = WEIGHTS.for_ratings(WORLD)[index]
    for number in range(1, ROUNDS + 1):
        factors = rng.normal(0, 10.0**number, (WORLD.n_items, 4)).astype(np.float32)
        message = Round(number=number, item_factors=factors, raters=recommender.raters, h=None)
        sums = []
        for shard in shards:
            shard.receive(message)
            sums.append(shard.contribute().sums.astype(np.float64))
        moved = np.abs(sums[0] - sums[1]).sum(axis=1)
        item = WORLD.item_codes[index]
        tolerance = 1e-5 * np.abs(sums[0]).max()  # float32 sums
        assert np.delete(moved, item).max() == 0
        # A stand-in has length 1, and its coordinates add up to at most sqrt(K).
        assert 2 * weight * difference * (1 - 1e-3) - tolerance <= moved[item]
        assert moved[item] <= 2 * weight * difference * 2 + tolerance
    assert not np.allclose(
        shards[0].vectors, shards[1].vectors
    )  # the devices' own vectors do differ


def test_the_noise_of_all_rounds_costs_epsilon():
    # One round moves by at most 2 W Delta sqrt(K) and has scale b: T rounds cost 2 W Delta sqrt(K)
    # T / b.
    scale = float(dense_laplace_scale(4, 4.0, 2.0, ROUNDS, 0.25)) * 0.25
    assert ROUNDS * 2 * 4.0 * 2 / scale == pytest.approx(2.0)
    with pytest.raises(PrivacyError):
        dense_laplace_scale(4, 4.0, 0.0, ROUNDS, 0.25)


def test_every_number_has_laplace_noise():
    """Kolmogorov-Smirnov at level 0.001, rated items or not."""
    drawn = []
    for seed in range(60):
        sums = []
        for noise in (SeededNoise(seed, 2), Silent(1, 2)):
            plan = plan_for()
            shard = GradientClient(WORLD, WEIGHTS, Paid(), noise, 7, WORKERS)
            recommender = Recommender(plan, Paid(), SeededNoise(3, 1), h_per_item=True)
            opening = recommender.open([shard.accept(plan)])
            recommender.start([shard.open(opening)])
            message = recommender.next_round()
            assert message.h is None
            shard.receive(message)
            sums.append(shard.contribute().sums.astype(np.float64))
        drawn.append(sums[0] - sums[1])
    noise = np.concatenate(drawn)
    b = 2 * 2 * 4.0 * ROUNDS / 2.0
    assert stats.kstest(noise.ravel(), stats.laplace(scale=b).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.1


def test_stand_ins_depend_on_what_was_rated_and_stay_in_the_unit_ball():
    users, items = np.array([0, 0, 1], np.int32), np.array([0, 1, 2], np.int32)
    V = np.array([[3e30, 0], [3e30, 0], [0, -2e-3]], np.float32)
    one, other = (
        stand_in_vectors(group(users, items, np.array(values, np.float32), None, 3), V)
        for values in ([1, 1, 1], [5, 2, 3])
    )
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(one, [[1, 0], [0, -1], [0, 0]], atol=2e-6)
    assert (np.linalg.norm(one.astype(np.float64), axis=1) <= 1).all()


def test_a_shard_refuses_other_raters_or_another_plan_during_training():
    shard, recommender = opened()
    message = recommender.next_round()
    shard.receive(message)
    recommender.aggregate([shard.contribute()])
    later = recommender.next_round()
    with pytest.raises(ProtocolError, match="raters have changed"):
        shard.receive(
            Round(number=2, item_factors=later.item_factors, raters=later.raters + 1000, h=None)
        )
    with pytest.raises(ProtocolError, match="training has begun"):
        shard.accept(plan_for(epsilon=50.0))
    shard.receive(later)
    assert np.isfinite(shard.contribute().sums).all()


def test_what_would_void_the_guarantee_is_refused():
    train, validation = WORLD.hold_out(3, rng=0)
    for wrong in ({"solver": "sequential"}, {"noise": "once"}, {"early_stopping": 2}):
        with pytest.raises(ConfigError, match="keeps its guarantee only with"):
            HDPMF(mechanism="paid", rng=0, **wrong).fit(train, validation=validation)


def test_the_method_says_what_it_guarantees():
    model = make_model("hdpmf-paid", epsilon=3.0, epochs=20, rng=0)
    assert (model.epochs, model.solver, METHODS["hdpmf-paid"].label) == (20, "batch", "HDPMF, paid")
    claim = model.privacy
    assert (claim.epsilon, claim.status, claim.view) == (
        3.0,
        "proved",
        "sums over users (secure aggregation)",
    )


def test_with_little_noise_it_learns():
    train, test = WORLD.hold_out(5, rng=0)
    quiet, loud = (
        HDPMF(4, 0.2, epochs=30, epsilon=epsilon, mechanism="paid", rng=0)
        .fit(train)
        .score(test)["mse"]
        for epsilon in (1e6, 0.1)
    )
    assert quiet < 1.4 < loud


def test_all_users_at_once_are_fitted_like_each_alone():
    rng = np.random.default_rng(0)
    users, items = (
        np.repeat(np.arange(20, dtype=np.int32), 9),
        rng.integers(0, 30, 180).astype(np.int32),
    )
    values, factors = rng.uniform(1, 5, 180), rng.normal(0, 2, (30, 4)).astype(np.float32)
    by_user = group(users, items, values, None, 21)  # the last one has no ratings
    together = constrained_ridges(by_user, factors, 0.01)
    for user in range(20):
        own = users == user
        alone = constrained_ridge(factors[items[own]], values[own].astype(np.float32), 0.01, 1.0)
        np.testing.assert_allclose(together[user], alone, rtol=1e-4, atol=1e-5)
    assert (together[20] == 0).all()


@pytest.mark.parametrize("size", [1.0, 1e3, 1e4])
def test_factors_of_any_size_leave_every_vector_in_the_unit_ball(size: float):
    """With fewer ratings than factors some directions have no weight, or one below 0 by rounding;
    what is paid for is the unit ball.
    """
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(200, dtype=np.int32), 2)
    items = rng.integers(0, 30, 400).astype(np.int32)
    factors = (size * rng.normal(0, 1, (30, 6))).astype(np.float32)
    by_user = group(users, items, rng.uniform(1, 5, 400), None, 200)
    vectors = constrained_ridges(by_user, factors, 0.0)
    assert np.linalg.norm(vectors, axis=1).max() <= 1.0 + 1e-6
