"""Every share of noise has the size that the law gives it: per item for normals, per sum for
Laplace noise.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacySpec, SeededNoise, Stretch
from hdpmf.common.privacy.mechanisms import Paid
from hdpmf.common.protocol import ItemCounts, Plan, Round, Survey
from hdpmf.common.protocol.messages import GRADIENT_STEP
from hdpmf.private.client import GradientClient
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.private.client.device_gradients import DeviceGradientClient
from hdpmf.untrusted.recommender import Recommender

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=900, rng=0)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)
WORKERS = Workers(1)
FACTORS, ROUNDS, EVERYONE = 4, 60, 200
HERE = WORLD.take(np.flatnonzero(WORLD.user_codes % 2 == 0))
SHARES = HERE.item_counts() / np.maximum(WORLD.item_counts(), 1)


class Silent(SeededNoise):
    """No noise, but the same gradients."""

    def normals(self, shape):
        return np.zeros(shape, np.float32)

    def discrete_gaussian(self, sigma):
        return np.zeros(np.shape(sigma), np.int64)


class Sized(SeededNoise):
    """Notes every Laplace share and every bit that was asked for."""

    def __init__(self):
        super().__init__(1)
        self.shares, self.budgets = [], []

    def laplace_share(self, scale, n_shares, size, *, count=1):
        self.shares.append((n_shares, count))
        return super().laplace_share(scale, n_shares, size, count=count)

    def bits(self, p_plus, epsilon=None):
        self.budgets.append(epsilon)
        return super().bits(p_plus, epsilon)


def plan_for(mechanism):
    return Plan(
        n_items=40,
        n_factors=FACTORS,
        epochs=ROUNDS,
        learning_rate=1e-6,
        reg=0.0,
        mechanism=mechanism,
        epsilon=1.0,
        scale_low=1.0,
        scale_high=5.0,
        scale_steps=True,
        fresh_noise=True,
    )


def shard_of(kind, mechanism, noise, **options):
    if kind is DeviceGradientClient:
        options = {
            "n_users": 30,
            "everyone": EVERYONE,
            "sharing": EVERYONE,
            "min_raters": 1,
            "simulation": True,
        } | options
    return kind(HERE, WEIGHTS, mechanism, noise, 7, WORKERS, **options)


def drawn_noise(kind):
    """What half of the raters add to each item, in units of the whole noise's deviation:
    (rounds, items, factors).
    """
    plan, mechanism = plan_for("stretch"), Stretch()
    shards = [shard_of(kind, mechanism, noise) for noise in (SeededNoise(11, 2), Silent(1, 2))]
    recommender = Recommender(plan, mechanism, SeededNoise(3, 1), h_per_item=True)
    opening = recommender.open([shards[0].accept(plan)])
    shards[1].accept(plan)
    for shard in shards:
        shard.open(opening)
    recommender.start([ItemCounts(counts=WORLD.item_counts().astype(np.int64))])
    factors = np.zeros((40, FACTORS), np.float32)
    h = np.full((40, FACTORS), 0.5, np.float32)
    drawn = []
    for number in range(1, ROUNDS + 1):
        for shard in shards:
            shard.receive(
                Round(number=number, item_factors=factors, raters=recommender.raters, h=h)
            )
        noisy, bare = (shard.contribute().sums.astype(np.float64) for shard in shards)
        drawn.append(noisy - bare)
    whole = 2 * math.sqrt(FACTORS) * 4.0 / 1.0 * math.sqrt(2 * 0.5)
    assert whole > 100 * GRADIENT_STEP
    return np.array(drawn) / whole


@pytest.mark.parametrize("kind", [GradientClient, DeviceGradientClient])
def test_gaussian_shares_are_sized_by_the_raters_of_each_item(kind):
    """Variances per item by chi-squared, 240 draws each, at level 1e-6 over all items and both
    sides.

    Shares sized by all users (60, or the 200 of the run) instead of an item's raters (at most 41)
    have at most two thirds of the variance; the test sees that on at least one item with a
    probability above 0.999, computed below.
    """
    n = ROUNDS * FACTORS
    rated = SHARES > 0
    level = 1e-6 / (2 * np.count_nonzero(rated))
    low, high = stats.chi2.ppf([level, 1 - level], n)
    noise = drawn_noise(kind)
    assert not noise[:, ~rated].any()
    statistic = (noise[:, rated] ** 2).sum(axis=(0, 2)) / SHARES[rated]
    assert (statistic > low).all()
    assert (statistic < high).all()
    too_small = WORLD.item_counts()[rated] / WORLD.n_users
    missed = np.prod(stats.chi2.sf(low / too_small, n))
    assert missed < 1e-3


@pytest.mark.parametrize("kind", [GradientClient, DeviceGradientClient])
def test_laplace_shares_of_training_are_sized_by_who_shares(kind):
    """Not by who is here, nor by all users of the run."""
    plan, noise = plan_for("paid"), Sized()
    shard = shard_of(kind, Paid(), noise, n_users=30, sharing=48)
    recommender = Recommender(plan, Paid(), SeededNoise(3, 1), h_per_item=True)
    recommender.start([shard.open(recommender.open([shard.accept(plan)]))])
    shard.receive(recommender.next_round())
    shard.contribute()
    assert noise.shares == [(48, 30)]


def survey_for(design):
    return Survey(
        design=design,
        coding="threshold" if design == "L" else "soft",
        epsilon=0.7,
        n_items=40,
        catalogue="c",
        contributors=48,
        scale_low=1.0,
        scale_high=5.0,
        scale_step=1.0,
    )


def answered(design):
    noise = Sized()
    shard = OneRoundClient(
        HERE, WEIGHTS, noise, epsilon=0.7, catalogue="c", n_users=30, simulation=True
    )
    shard.accept(survey_for(design))
    return noise, shard.contribute()


def test_laplace_shares_of_a_survey_are_sized_by_its_contributors():
    noise, _ = answered("A")
    assert noise.shares == [(48, 30)] * 3


def test_bits_are_clamped_to_the_budget_of_their_rating():
    """Rounding of a probability never costs more than the rating's own epsilon: the sampler is
    told what that is.
    """
    noise, answer = answered("L")
    np.testing.assert_array_equal(np.concatenate(noise.budgets), 0.7 * answer.units / 64)
