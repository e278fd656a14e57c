"""The attacker's simulation of a device is the device, and the noise has the law that it is
scored by.
"""

import numpy as np
import pytest

from hdpmf.common.base.threads import Workers
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.lab.audit.replay import Copies, SimulatedDevice, messages, record
from hdpmf.lab.audit.training import device_scores
from hdpmf.models import make_model


def _path(name, target, **params):
    model = make_model(name, n_factors=4, epochs=12, rng=0, n_threads=1, **params)
    return record(model, target.ratings, target.privacy_weights(), 0)


def _copies(target, n):
    own = target.own
    values = np.tile(target.ratings.values[own].astype(float), (n, 1))
    return Copies(
        np.arange(n), target.ratings.item_codes[own], values, np.tile(target.weights[own], (n, 1))
    )


class _Silent(SeededNoise):
    """Noise off: what is left is the gradient."""

    def normals(self, shape):
        return np.zeros(shape, np.float32)

    def laplace_share(self, scale, n_shares, size, *, count=1):
        return np.zeros(size, np.int64)


@pytest.mark.parametrize("name", ["mf", "hdpmf", "hdpmf-w", "pdpmf", "dpmf", "hdpmf-paid"])
def test_the_simulated_device_is_the_real_one(target, name):
    path = _path(name, target)
    copies = _copies(target, 3)
    with Workers(1) as workers:
        ones = np.ones(copies.shape[1], np.int64)
        stream = messages(path, copies, ones, _Silent(0, 1), 5, workers)
        kept = next(stream)
        device = SimulatedDevice(path, copies, kept, None, 5)
        for number, sums in enumerate(stream):
            expected = device.residuals(number)[:, :, None] * device.u[:, None, :]
            assert sums == pytest.approx(expected, abs=2e-4)
        assert number == path.plan.epochs - 1


@pytest.mark.parametrize("view", ["messages", "sums"])
def test_noise_has_the_stated_variance(target, view):
    """8 Delta^2 K h / (eps^2 n_j); the ratio of 72,000 squares to it is within 4 standard errors
    of 1.
    """
    path = _path("hdpmf", target)
    copies = _copies(target, 400)
    raters = path.raters[copies.items] if view == "messages" else np.ones(copies.shape[1], np.int64)
    with Workers(1) as workers:
        stream = messages(path, copies, raters, SeededNoise(0, 1), 5, workers)
        device = SimulatedDevice(path, copies, next(stream), None, 5)
        noise = next(stream) - device.residuals(0)[:, :, None] * device.u[:, None, :]
    assert path.h is not None
    by_hand = 8 * 4.0**2 * 4 * path.h[0][copies.items] / raters[:, None]
    assert path.variance(0, copies.items, raters) == pytest.approx(by_hand, rel=1e-6)
    ratio = np.mean(noise**2 / by_hand)
    assert abs(ratio - 1) < 4 * np.sqrt(2 / noise.size)


def test_noise_with_h_of_its_own_is_laplace(target):
    """Squares and absolute values of 72,000 draws, within 4 standard errors: 2 b^2 and b."""
    path = _path("hdpmf", target)
    copies = _copies(target, 400)
    with Workers(1) as workers:
        ones = np.ones(copies.shape[1], np.int64)
        stream = messages(path, copies, ones, SeededNoise(0, 1), 5, workers, own_h=True)
        device = SimulatedDevice(path, copies, next(stream), None, 5)
        noise = next(stream) - device.residuals(0)[:, :, None] * device.u[:, None, :]
    assert path.laplace_scale == pytest.approx(2 * 4.0 * 2)
    scaled = noise / path.laplace_scale
    assert np.abs(scaled).mean() == pytest.approx(1.0, abs=4 / np.sqrt(noise.size))
    assert (scaled**2).mean() == pytest.approx(2.0, abs=4 * np.sqrt(20 / noise.size))


def test_scores_are_log_likelihood_ratios(target):
    """Means of +-D/2 and variance D for Gaussian noise, where both are estimated from 3,000 runs
    (4 sd).
    """
    scores = device_scores(target, _path("hdpmf", target), "sums", 3_000, 0).everything
    spread = scores.high.var()
    error = 4 * np.sqrt(spread / 3_000) + 4 * spread * np.sqrt(2 / 3_000)
    assert scores.high.mean() == pytest.approx(spread / 2, abs=error)
    assert scores.low.mean() == pytest.approx(-spread / 2, abs=error)


def test_a_stand_in_vector_leaves_no_indirect_channel(target):
    scores = device_scores(target, _path("hdpmf-paid", target), "messages", 50, 0)
    assert not scores.indirect.low.any()
    assert scores.direct.high.mean() > scores.direct.low.mean()
