"""The published numbers, on the real data. Each band is for the mean of five seeds and is wider
than four standard errors of that mean (the deviations are in docs/reproduction.md)."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf import PrivacySpec, load_dataset, load_split, make_model
from hdpmf.common.methods import METHODS
from hdpmf.errors import DivergedError

pytestmark = pytest.mark.paper


@pytest.fixture(scope="module")
def ml_100k(data_folder):
    return load_split("ml-100k")


@pytest.fixture(scope="module")
def ml_1m(data_folder):
    return load_dataset("ml-1m").hold_out(per_user=10, rng=1)


def mean_mse(split, method, seeds=5, **params):
    train, test = split
    errors = []
    for seed in range(seeds):
        weights = PrivacySpec().draw(train, rng=seed)
        shared = METHODS[method].own(n_factors=10, reg=0.01, rng=seed)
        model = make_model(method, **shared, **params).fit(train, weights)
        errors.append(model.score(test)["mse"])
    return float(np.mean(errors))


@pytest.mark.parametrize(
    ("method", "learning_rate", "low", "high"),
    [
        ("mf", 0.01, 0.905, 0.945),
        ("hdpmf", 0.005, 1.42, 1.55),
        ("pdpmf", 0.005, 1.53, 1.66),
        ("pdpmf", 0.001, 1.46, 1.57),
        ("dpmf", 0.005, 4.5, 7.5),
        ("hdpmf-w", 0.005, 1.1, 1.30),
    ],
)
def test_sequential_on_ml_100k(ml_100k, method, learning_rate, low, high):
    assert low < mean_mse(ml_100k, method, learning_rate=learning_rate, solver="sequential") < high


def test_rescaling_is_indispensable(ml_100k):
    rescaled = mean_mse(ml_100k, "hdpmf", learning_rate=0.005, solver="sequential")
    assert mean_mse(ml_100k, "hdpmf-r", learning_rate=0.005, solver="sequential") >= 2 * rescaled


@pytest.mark.parametrize(("method", "bound"), [("mf", 0.94), ("hdpmf", 1.47)])
def test_batch_on_ml_100k(ml_100k, method, bound):
    errors = []
    for learning_rate in (0.1, 0.05, 0.01, 0.005):
        try:
            errors.append(mean_mse(ml_100k, method, learning_rate=learning_rate))
        except DivergedError:
            errors.append(np.inf)
    assert min(errors) < bound


def test_sequential_on_ml_1m(ml_1m):
    assert 0.99 < mean_mse(ml_1m, "hdpmf", seeds=1, learning_rate=0.005, solver="sequential") < 1.06
    assert 0.77 < mean_mse(ml_1m, "mf", seeds=1, learning_rate=0.01, solver="sequential") < 0.81


def test_the_trivial_baselines(ml_100k):
    """What the paper leaves out: a device that sends nothing beats its private methods here."""
    assert mean_mse(ml_100k, "user-mean", seeds=1) == pytest.approx(1.085, abs=0.006)
    assert mean_mse(ml_100k, "global-mean", seeds=1) == pytest.approx(1.258, abs=0.003)
