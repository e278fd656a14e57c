"""Simulated federations with two servers: every device's real report is in the sum, and nothing
else but the noise.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.coding import make_coding, make_ruler, weight_units
from hdpmf.common.protocol import SumContribution
from hdpmf.lab.simulate.simulate import Simulation, simulate
from hdpmf.models import make_model
from hdpmf.untrusted.service.settings import RunSettings

pytestmark = pytest.mark.slow

WORLD = synthetic_world(24, 30, 500, rng=3)
HARDLY_ANY_NOISE = 1e4
REPORT_BYTES = 2_718  # of 30 items and five levels


def answer_of(found: Simulation) -> SumContribution:
    answer = found.outcome.answer
    assert isinstance(answer, SumContribution)
    return answer


def settings(world: Ratings, epsilon: float) -> RunSettings:
    return RunSettings(
        method="hdp-sum", view="two-servers", minimum=world.n_users, rounds=1, epsilon=epsilon
    )


@pytest.mark.parametrize(("devices", "processes"), [(24, 1), (5, 2)])
def test_every_report_is_in_the_sum_once(devices: int, processes: int) -> None:
    weights = PrivacySpec.paper().draw(WORLD, 0)
    found = simulate(
        WORLD, settings(WORLD, HARDLY_ANY_NOISE), weights, devices=devices, processes=processes
    )
    units = weight_units(weights.for_ratings(WORLD))
    coded = units * make_coding("auto", WORLD.scale, HARDLY_ANY_NOISE).encode(WORLD.values)
    ruled = int((units * make_ruler(WORLD.scale).encode(WORLD.values)).sum())
    n, answer = WORLD.n_items, answer_of(found)
    # Noise of a scale below 1, twice; the total, which has a fiftieth of epsilon, has more.
    np.testing.assert_allclose(answer.weights, np.bincount(WORLD.item_codes, units, n), atol=4)
    np.testing.assert_allclose(answer.scores, np.bincount(WORLD.item_codes, coded, n), atol=8)
    assert answer.total == pytest.approx(ruled, abs=60)
    assert (found.result.users, found.result.devices, found.result.rounds) == (24, devices, 1)
    # One report for each user, however many are on a device, and all of one length.
    assert found.result.bytes_up * devices == 24 * REPORT_BYTES


def test_both_servers_noise_is_in_it() -> None:
    world = synthetic_world(4, 2_000, 60, rng=1)
    found = simulate(world, settings(world, 1.0), processes=1)
    exact = np.bincount(world.item_codes, np.full(len(world), 64), world.n_items)
    noise = answer_of(found).weights - exact
    one = 2.0 * 256.0**2  # the variance of one server's: discrete Laplace of scale 4 * 64 / epsilon
    # With n = 2,000 and a kurtosis of 4.5 the estimate is off by 4 % (one standard deviation).
    assert noise.var() == pytest.approx(2 * one, rel=0.2)


def test_the_same_seed_gives_the_same_result_and_its_error_is_the_librarys_with_two_noises() -> (
    None
):
    train, test = synthetic_world(120, 60, 4_000, rng=3).hold_out(3, rng=0)
    first, second = (
        simulate(train, settings(train, 2.0), test=test, devices=d, processes=1) for d in (120, 6)
    )
    assert first.result.mse == second.result.mse
    assert (first.result.status, first.result.epsilon, first.result.view) == (
        "proved",
        2.0,
        "two-servers",
    )
    library = make_model("hdp-sum", epsilon=2.0, rng=0).fit(train).score(test)["mse"]
    assert first.result.mse == pytest.approx(library, abs=0.06)
