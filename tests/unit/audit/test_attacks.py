"""Attacks that recover ratings."""

import dataclasses

import numpy as np
import pytest

from hdpmf.common.base.threads import Workers
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.gradients import Copies, SimulatedDevice, messages, record
from hdpmf.lab.audit.reconstruction import AttackSetting, reconstruct
from hdpmf.models import make_model

pytestmark = pytest.mark.slow


def test_reconstruction_beats_what_anybody_could_guess(world):
    """1,600 ratings at weight 1 and epsilon 1; the margin of 0.2 is many standard errors (0.013)
    wide.
    """
    found = reconstruct(AttackSetting(weight=1.0), world, 30)
    assert found.exact > max(found.modal_exact, found.item_mean_exact) + 0.2
    assert found.rmse < found.item_mean_rmse
    # Only totals: no rating of anybody.
    assert all(isinstance(value, int | float) for value in dataclasses.asdict(found).values())


@pytest.mark.parametrize("method", ["hdpmf", "hdpmf-w", "pdpmf"])
def test_noise_that_is_used_twice_is_no_noise(target, method):
    """The difference of two rounds is that of the gradients, of which each star has its own."""
    model = make_model(method, n_factors=4, epochs=8, rng=0, n_threads=1, noise="once")
    path = record(model, target.ratings, target.privacy_weights(), 0)
    own, ids = target.own, np.arange(50)
    items = target.ratings.item_codes[own]
    raters = np.maximum(path.raters[items], 1)
    weights = np.tile(target.weights[own], (len(ids), 1))
    stars = np.arange(1.0, 6.0)
    supposed = [
        Copies(ids, items, np.tile(target.values(star)[own].astype(float), (len(ids), 1)), weights)
        for star in stars
    ]
    with Workers(1) as workers:
        stream = messages(path, supposed[4], raters, SeededNoise(3, 1), 0, workers)
        kept = next(stream)
        seen = np.diff([next(stream)[:, target.position] for _ in range(3)], axis=0)
    apart = []
    for copies in supposed:
        device = SimulatedDevice(path, copies, kept, 0)
        told = [
            device.residuals(number)[:, target.position, None] * device.u for number in range(3)
        ]
        apart.append(np.linalg.norm(seen - np.diff(told, axis=0), axis=2).sum(axis=0))
    assert (np.argmin(apart, axis=0) == 4).all()
    assert np.max(apart[4]) < 1e-4 < np.sqrt(path.variance(0, items, raters)).min()


def test_what_cannot_be_attacked_is_refused(world):
    with pytest.raises(ConfigError, match="gradients"):
        AttackSetting("hdp-sum")
    with pytest.raises(ConfigError, match="at least one user"):
        reconstruct(AttackSetting(factors=4, epochs=3), world, 0)
