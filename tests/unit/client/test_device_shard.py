"""What a device releases is on the grid: sensitivity to the last unit, noise of its law, a state
that goes on.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings, RatingScale, synthetic_world
from hdpmf.common.privacy import PrivacySpec, Sample, Stretch, Uniform, Weight
from hdpmf.common.privacy.mechanisms import Paid, dense_laplace_scale
from hdpmf.common.privacy.sampling import ReleasedNoise, SeededNoise
from hdpmf.common.protocol import Plan, Round
from hdpmf.common.protocol.messages import GRADIENT_STEP
from hdpmf.errors import PrivacyError, ProtocolError
from hdpmf.private.client import GradientClient
from hdpmf.private.client.device_gradients import DeviceGradientClient, GradientClientState
from hdpmf.untrusted.recommender import Recommender

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=1500, rng=0)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)
WORKERS = Workers(1)
NAMES = {Stretch: "stretch", Weight: "weight", Uniform: "uniform", Sample: "sample", Paid: "paid"}


class Silent:
    """Noise off."""

    def uniforms(self, n):
        return np.linspace(0, 1, n, endpoint=False)

    def discrete_gaussian(self, sigma):
        return np.zeros(np.shape(sigma), np.int64)

    def laplace_share(self, scale, n_shares, size, *, count=1):
        return np.zeros(size, np.int64)


def plan_for(mechanism, ratings=WORLD, **changes):
    scale = ratings.scale
    fields = {
        "n_items": ratings.n_items,
        "n_factors": 4,
        "epochs": 5,
        "learning_rate": 0.02,
        "reg": 0.01,
        "mechanism": NAMES[type(mechanism)],
        "epsilon": 1.0,
        "scale_low": scale.low,
        "scale_high": scale.high,
        "scale_steps": True,
        "fresh_noise": True,
    }
    return Plan(**(fields | changes))


def opened(mechanism, ratings=WORLD, noise=None, weights=WEIGHTS, plan=None, **options):
    plan = plan or plan_for(mechanism, ratings)
    settings = {"n_users": 60, "everyone": 60, "sharing": 60, "min_raters": 1, "simulation": True}
    settings |= options
    shard = DeviceGradientClient(
        ratings, weights, mechanism, noise or Silent(), 7, WORKERS, **settings
    )
    recommender = Recommender(plan, mechanism, SeededNoise(3, 1), h_per_item=True)
    opening = recommender.open([shard.accept(plan)])
    recommender.start([shard.open(opening)])
    return shard, recommender, opening


def round_with(recommender, number, factors, h=1.0):
    n, k = factors.shape
    table = None if h is None else np.full((n, k), h, np.float32)
    return Round(
        number=number, item_factors=factors.astype(np.float32), raters=recommender.raters, h=table
    )


@pytest.mark.parametrize(
    "scale", [RatingScale(1, 5, 1), RatingScale(0.5, 5, 0.5), RatingScale(0, 100)], ids=str
)
@pytest.mark.parametrize("index", [0, 700])
def test_paid_gradients_move_by_no_more_than_is_paid_for(scale, index):
    """In whole units, for factors of any size, and nearly reached: every value of one rating."""
    step = scale.step or 12.5
    rng = np.random.default_rng(1)
    values = (scale.low + step * rng.integers(0, round(scale.width / step) + 1, len(WORLD))).astype(
        np.float32
    )

    def table(value):
        changed = values.copy()
        changed[index] = value
        return Ratings(
            WORLD.users, WORLD.items, WORLD.user_codes, WORLD.item_codes, changed, scale=scale
        )

    weight = WEIGHTS.for_ratings(WORLD)[index]
    item = int(WORLD.item_codes[index])
    for size in (1e-3, 1.0, 1e4):
        factors = rng.normal(0, size, (40, 4))
        rows = []
        for value in np.arange(scale.low, scale.high + step / 2, step):
            shard, recommender, _ = opened(Paid(), table(value))
            shard.receive(round_with(recommender, 1, factors, None))
            rows.append(shard.contribute_units())
        moved = np.abs(np.array(rows)[:, None] - np.array(rows)[None])
        assert not np.delete(moved, item, axis=2).any()
        most = moved[:, :, item].sum(axis=-1).max()
        bound = 2 * weight * scale.width * math.sqrt(4) / GRADIENT_STEP
        assert 0.3 * bound < most <= bound
        # One round's cost is the sum of sizes over the scale of the noise.
        assert most / dense_laplace_scale(4, scale.width, 1.0, 5, GRADIENT_STEP) <= weight / 5


@pytest.mark.parametrize("n_shards", [1, 4])
def test_dense_shares_are_on_every_number_and_add_up(n_shards):
    """Discrete Laplace noise of the stated scale on all 160 numbers, by Kolmogorov and Smirnov
    at level 0.001.
    """
    parts = [
        WORLD.take(np.flatnonzero(WORLD.user_codes % n_shards == one)) for one in range(n_shards)
    ]
    drawn = []
    for seed in range(40):
        total = np.zeros((40, 4), np.int64)
        for one, part in enumerate(parts):
            for noise, sign in ((SeededNoise(100 * seed + one), 1), (Silent(), -1)):
                shard, recommender, _ = opened(Paid(), part, noise, n_users=60 // n_shards)
                shard.receive(round_with(recommender, 1, np.ones((40, 4)), None))
                total += sign * shard.contribute_units()
        drawn.append(total)
    scale = float(dense_laplace_scale(4, 4.0, 1.0, 5, GRADIENT_STEP))
    assert stats.kstest(np.ravel(drawn) / scale, "laplace").pvalue > 1e-3


def test_released_noise_is_on_the_grid_with_the_papers_deviation():
    shard, recommender, _ = opened(Stretch(), noise=ReleasedNoise(), simulation=False, min_raters=1)
    quiet, _, _ = opened(Stretch())
    drawn = []
    for number in range(1, 6):
        message = round_with(recommender, number, np.zeros((40, 4)), 0.5)
        for one in (shard, quiet):
            one.receive(message)
        drawn.append(shard.contribute_units() - quiet.contribute_units())
    sigma = 2 * math.sqrt(4) * 4.0 * math.sqrt(2 * 0.5) / GRADIENT_STEP
    assert stats.kstest(np.ravel(drawn) / sigma, "norm").pvalue > 1e-6
    assert (
        len({int(one) % 1024 for one in np.ravel(drawn)}) > 300
    )  # to the last unit, not a coarser grid


def test_the_message_is_made_of_the_whole_numbers():
    both = [opened(Stretch(), noise=SeededNoise(4))[0] for _ in range(2)]
    _, recommender, _ = opened(Stretch())
    for shard in both:
        shard.receive(round_with(recommender, 1, np.full((40, 4), 0.1)))
    units, sums = both[0].contribute_units(), both[1].contribute().sums
    assert np.array_equal(sums, (units * GRADIENT_STEP).astype(np.float32))


@pytest.mark.parametrize("mechanism", [Stretch(), Weight(), Uniform()])
def test_without_noise_it_is_the_shard_that_it_was(mechanism):
    class Quiet(SeededNoise):
        def normals(self, shape):
            return np.zeros(shape, np.float32)

    device, recommender, opening = opened(mechanism)
    plain = GradientClient(WORLD, WEIGHTS, mechanism, Quiet(1, 2), 7, WORKERS)
    plain.accept(plan_for(mechanism))
    plain.open(opening)
    message = recommender.next_round()
    for one in (device, plain):
        one.receive(message)
    np.testing.assert_allclose(
        device.contribute().sums, plain.contribute().sums, atol=GRADIENT_STEP
    )


def test_items_with_few_raters_stay_out_and_inflated_numbers_are_refused():
    shard, recommender, _ = opened(Stretch(), noise=SeededNoise(1), min_raters=38)
    few = recommender.raters < 38
    assert few.any() and not few.all()  # noqa: PT018  # one fact about the world
    message = round_with(recommender, 1, np.ones((40, 4)))
    inflated = Round(
        number=1, item_factors=message.item_factors, raters=message.raters + 25, h=message.h
    )
    with pytest.raises(ProtocolError, match="more raters than the 60 users"):
        shard.receive(inflated)
    shard.receive(message)
    units = shard.contribute_units()
    assert not units[few].any()
    assert units[~few].all(axis=1).any()


@pytest.mark.parametrize(
    ("mechanism", "fresh"),
    [(Stretch(), True), (Stretch(), False), (Sample(), True), (Sample(), False), (Paid(), True)],
)
def test_a_kept_state_goes_on_as_if_nothing_had_happened(mechanism, fresh):
    plan = plan_for(mechanism, fresh_noise=fresh)
    straight, recommender, opening = opened(mechanism, plan=plan, noise=SeededNoise(2))
    noise = SeededNoise(2)
    other, _, _ = opened(mechanism, plan=plan, noise=noise)
    for number in range(1, 5):
        message = round_with(
            recommender, number, np.random.default_rng(number).normal(0, 0.3, (40, 4))
        )
        if number == 3:
            state = GradientClientState.decode(other.state().encode())
            other = DeviceGradientClient(
                WORLD,
                WEIGHTS,
                mechanism,
                noise,
                99,
                WORKERS,
                n_users=60,
                everyone=60,
                sharing=60,
                min_raters=1,
                simulation=True,
            )
            other.resume(plan, opening, state)
            with pytest.raises(ProtocolError, match="has been answered"):
                other.contribute()
            with pytest.raises(ProtocolError, match="expected round 3"):
                other.receive(round_with(recommender, 2, np.zeros((40, 4))))
        for shard in (straight, other):
            shard.receive(message)
        assert np.array_equal(straight.contribute().sums, other.contribute().sums)
        assert np.array_equal(straight.vectors, other.vectors)


def test_a_state_of_other_ratings_is_refused():
    shard, recommender, opening = opened(Stretch())
    few = WORLD.take(np.flatnonzero(WORLD.item_codes < 9))
    fewer = DeviceGradientClient(
        few,
        WEIGHTS,
        Stretch(),
        Silent(),
        7,
        WORKERS,
        n_users=60,
        everyone=60,
        sharing=60,
        min_raters=1,
        simulation=True,
    )
    shard.receive(recommender.next_round())
    with pytest.raises(ProtocolError, match="does not belong"):
        fewer.resume(plan_for(Stretch()), opening, shard.state())


def test_seeded_noise_does_not_leave_a_device_and_released_noise_needs_one():
    with pytest.raises(PrivacyError, match="ReleasedNoise"):
        opened(Stretch(), noise=SeededNoise(1), simulation=False)
    shard = GradientClient(WORLD, WEIGHTS, Stretch(), ReleasedNoise(), 7, WORKERS)
    recommender = Recommender(plan_for(Stretch()), Stretch(), SeededNoise(3, 1), h_per_item=True)
    recommender.start([shard.open(recommender.open([shard.accept(plan_for(Stretch()))]))])
    shard.receive(recommender.next_round())
    units = shard.contribute().sums / np.float32(GRADIENT_STEP)
    assert np.array_equal(units, np.rint(units))
