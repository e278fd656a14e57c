"""Simulated federations with two servers: every device's real report is in the sum, and nothing
else but the noise.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.coding import make_coding, make_ruler, weight_units
from hdpmf.lab.simulate.simulate import simulate
from hdpmf.untrusted.service.settings import RunSettings

pytestmark = pytest.mark.slow

WORLD = synthetic_world(24, 30, 500, rng=3)
HARDLY_ANY_NOISE = 1e4
REPORT_BYTES = 2_718  # of 30 items and five levels


def test_every_report_is_in_the_sum_once() -> None:
    weights = PrivacySpec.paper().draw(WORLD, 0)
    found = simulate(WORLD, RunSettings(minimum=24, epsilon=HARDLY_ANY_NOISE), weights)
    units = weight_units(weights.for_ratings(WORLD))
    coded = units * make_coding("auto", WORLD.scale, HARDLY_ANY_NOISE).encode(WORLD.values)
    ruled = int((units * make_ruler(WORLD.scale).encode(WORLD.values)).sum())
    n, answer = WORLD.n_items, found.outcome.answer
    # Noise of a scale below 1, twice; the total, which has a fiftieth of epsilon, has more.
    np.testing.assert_allclose(answer.weights, np.bincount(WORLD.item_codes, units, n), atol=4)
    np.testing.assert_allclose(answer.scores, np.bincount(WORLD.item_codes, coded, n), atol=8)
    assert answer.total == pytest.approx(ruled, abs=60)
    assert found.result.devices == found.outcome.summary["users"] == 24
    assert found.result.bytes_up == REPORT_BYTES  # all of one length


def test_both_servers_noise_is_in_it() -> None:
    world = synthetic_world(4, 2_000, 60, rng=1)
    found = simulate(world, RunSettings(minimum=4, epsilon=1.0))
    exact = np.bincount(world.item_codes, np.full(len(world), 64), world.n_items)
    noise = found.outcome.answer.weights - exact
    one = 2.0 * 256.0**2  # the variance of one server's: discrete Laplace of scale 4 * 64 / epsilon
    # With n = 2,000 and a kurtosis of 4.5 the estimate is off by 4 % (one standard deviation).
    assert noise.var() == pytest.approx(2 * one, rel=0.2)
