"""A rating of hdp-sum pays once, whatever the number of runs, by the shard's own numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hdpmf.common.data import Ratings, RatingScale
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.accounting import cost
from hdpmf.common.privacy.coding import make_coding, sum_channels
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import SumContribution
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.untrusted.recommender.sums import make_survey

pytestmark = pytest.mark.slow

N_USERS, N_ITEMS, EACH = 30, 20, 8
STARS = RatingScale(1.0, 5.0, 1.0)


def ratings(values: np.ndarray) -> Ratings:
    users = np.repeat(np.arange(N_USERS), EACH)
    items = (users * 3 + np.tile(np.arange(EACH), N_USERS) * 2) % N_ITEMS
    return Ratings.from_arrays(users, items, values, scale=STARS)


def released(
    values: np.ndarray, present: np.ndarray, n_runs: int, epsilon: float
) -> list[SumContribution]:
    """What the runs of one year release, with the same noise for the same run. Rating k is in
    run k mod n_runs.
    """
    world = ratings(values)
    weights = PrivacyWeights.uniform(world, 0.5)
    found = []
    for run in range(n_runs):
        rows = np.flatnonzero(present & (np.arange(len(values)) % n_runs == run))
        shard = OneRoundClient(
            world.take(rows),
            weights.take(rows),
            SeededNoise(1, run),
            epsilon=epsilon,
            catalogue="c",
            simulation=True,
        )
        shard.accept(
            make_survey("A", epsilon, STARS, n_items=N_ITEMS, catalogue="c", contributors=N_USERS)
        )  # fmt: skip
        answer = shard.contribute()
        assert isinstance(answer, SumContribution)
        found.append(answer)
    return found


def paid(
    one: list[SumContribution], other: list[SumContribution], epsilon: float
) -> list[Fraction]:
    """In each run, how far the log-likelihood of what is released can be apart in two worlds:
    moves over scales.
    """
    channels = sum_channels(make_coding("auto", STARS, epsilon), epsilon)
    assert channels.total is not None
    return [
        int(np.abs(a.scores - b.scores).sum()) / channels.score.scale
        + int(np.abs(a.weights - b.weights).sum()) / channels.weight.scale
        + abs(a.total - b.total) / channels.total.scale
        for a, b in zip(one, other, strict=True)
    ]


@pytest.mark.parametrize("n_runs", [1, 4, 12, 52])
def test_a_rating_pays_in_one_run_only_and_its_weight_times_epsilon(n_runs: int) -> None:
    values = np.random.default_rng(0).integers(1, 6, N_USERS * EACH).astype(np.float64)
    values[5], there = 1.0, np.ones(len(values), bool)
    changed, gone = values.copy(), there.copy()
    changed[5], gone[5] = 5.0, False
    before = released(values, there, n_runs, 0.8)
    by_value = paid(before, released(changed, there, n_runs, 0.8), 0.8)
    by_presence = paid(before, released(values, gone, n_runs, 0.8), 0.8)
    assert sum(by_value) == Fraction(1, 2) * Fraction(
        0.8
    )  # weight times epsilon, of the law's own scales
    assert sum(by_presence) <= Fraction(3, 4) * Fraction(1, 2) * Fraction(0.8)
    for costs in (by_value, by_presence):
        assert [run for run, spent in enumerate(costs) if spent] == [5 % n_runs]


def test_a_person_pays_the_same_in_one_run_as_in_many() -> None:
    """The accountant adds up a person's ratings; that they are in different runs changes nothing
    for a pure cost.
    """
    together = cost("hdp-sum", "sums", unit="user", weight=[0.3] * 12, epsilon=1.0).pure
    apart = sum(
        cost("hdp-sum", "sums", unit="user", weight=[0.3] * 3, epsilon=1.0).pure for _ in range(4)
    )
    assert together == pytest.approx(apart)
    assert together == pytest.approx(12 * 19 / 64)  # weights are sent in 64ths, rounded down
