from __future__ import annotations

import numpy as np
import pytest

from tests.unit.gpu.gpu_worlds import relative

pytest.importorskip("msgspec")
pytest.importorskip("narwhals")

from hdpmf import PrivacySpec, synthetic_world
from hdpmf.errors import DivergedError
from hdpmf.models import make_model
from hdpmf.models.multi_fit import Fit, fit_together


@pytest.fixture(autouse=True)
def _pretend(monkeypatch, device, models_engine):
    monkeypatch.setattr("hdpmf.models.factorization.use_gpu", lambda name: name == "gpu")
    monkeypatch.setattr("hdpmf.models.training.gpu", lambda: device)
    monkeypatch.setattr("hdpmf.models.training.fits", lambda n: True)
    monkeypatch.setattr("hdpmf.models.multi_fit.gpu", lambda: device)


@pytest.fixture(scope="module")
def world():
    ratings = synthetic_world(40, 25, 500, rng=3)
    return ratings, PrivacySpec.paper().draw(ratings, rng=1)


def test_a_grid_is_its_cells(world):
    """Over the same ratings, models fitted together are the models fitted alone."""
    ratings, weights = world
    given = [
        {"name": name, "learning_rate": rate, "reg": reg, "epochs": 3, "rng": 7, "n_factors": 3}
        for name in ("hdpmf", "hdpmf-w", "mf")
        for rate, reg in ((0.05, 0.01), (0.01, 0.1))
    ]
    models = [make_model(**one) for one in given]
    done = list(fit_together([Fit(model, ratings, weights) for model in models]))
    assert sorted(one.number for one in done) == list(range(len(models)))
    assert all(one.error is None for one in done)
    for one, model in zip(given, models, strict=True):
        alone = make_model(**one, on="gpu").fit(ratings, weights)
        assert relative(model.catalogue_.factors, alone.catalogue_.factors) < 1e-6
        assert relative(model.devices_.vectors, alone.devices_.vectors) < 1e-6
        assert model.score(ratings) == pytest.approx(alone.score(ratings), rel=1e-5)


@pytest.mark.parametrize("name", ["hdpmf", "pdpmf", "dpmf", "mf"])
def test_folds_beside_each_other_are_the_folds_alone(world, name):
    """Without noise: which ratings a fold has, what it samples and how many rate an item is its
    own affair.
    """
    ratings, weights = world
    folds = list(ratings.k_fold(3, rng=1))
    params = {"learning_rate": 0.05, "epochs": 2, "rng": 3, "n_factors": 3} | (
        {} if name == "mf" else {"epsilon": 1e12}
    )
    models = [make_model(name, **params) for _ in folds]
    for one in fit_together(
        [Fit(model, train, weights) for model, (train, _) in zip(models, folds, strict=True)]
    ):
        assert one.error is None
    for model, (train, validation) in zip(models, folds, strict=True):
        alone = make_model(name, **params, on="gpu").fit(train, weights)
        assert relative(model.catalogue_.factors, alone.catalogue_.factors) < 1e-5
        assert np.array_equal(model.catalogue_.raters, alone.catalogue_.raters)
        assert model.score(validation) == pytest.approx(alone.score(validation), rel=1e-4)
        assert model.recommend(ratings.users.ids[0], 3)


@pytest.mark.parametrize(
    ("name", "solver"), [("hdpmf", "batch"), ("hdpmf", "sequential"), ("mf", "sequential")]
)
def test_seeds_beside_each_other_are_the_seeds_alone(world, name, solver):
    ratings, weights = world
    params = {"learning_rate": 0.02, "epochs": 2, "solver": solver, "n_factors": 3}
    models = [make_model(name, **params, rng=seed) for seed in (1, 2)]
    done = list(fit_together([Fit(model, ratings, weights) for model in models]))
    assert done[-1].last
    for seed, model in zip((1, 2), models, strict=True):
        alone = make_model(name, **params, rng=seed, on="gpu").fit(ratings, weights)
        assert relative(model.catalogue_.factors, alone.catalogue_.factors) < 1e-6


@pytest.mark.parametrize("name", ["hdpmf", "pdpmf", "mf"])
def test_sequential_folds_have_the_orders_and_the_noise_that_they_have_alone(world, name):
    ratings, weights = world
    folds = list(ratings.k_fold(2, rng=1))
    params = {"learning_rate": 0.02, "epochs": 2, "rng": 3, "solver": "sequential", "n_factors": 3}
    models = [make_model(name, **params) for _ in folds]
    list(
        fit_together(
            [Fit(model, train, weights) for model, (train, _) in zip(models, folds, strict=True)]
        )
    )
    for model, (train, _) in zip(models, folds, strict=True):
        alone = make_model(name, **params, on="gpu").fit(train, weights)
        assert relative(model.catalogue_.factors, alone.catalogue_.factors) < 1e-5
        assert relative(model.devices_.vectors, alone.devices_.vectors) < 1e-5


def test_one_that_runs_away_leaves_the_others_alone(world):
    ratings, _ = world
    models = [
        make_model("mf", learning_rate=rate, epochs=20, rng=0, scale_steps=False)
        for rate in (50.0, 0.001)
    ]
    done = {
        one.number: one.error for one in fit_together([Fit(model, ratings) for model in models])
    }
    assert isinstance(done[0], DivergedError)
    assert done[1] is None
    assert np.isfinite(models[1].catalogue_.factors).all()


def test_more_views_than_bits_and_more_factors_than_fit(world, monkeypatch):
    ratings, weights = world
    monkeypatch.setattr("hdpmf.private.kernels.gpu.layout.MAX_VIEWS", 3)
    monkeypatch.setattr("hdpmf.models.multi_fit._FACTORS_AT_A_TIME", 65 * 4 * 3)
    folds = [train for train, _ in ratings.k_fold(4, rng=1)]
    models = [
        make_model("hdpmf", epochs=1, rng=0, n_factors=3, reg=reg)
        for reg in (0.1, 0.2)
        for _ in folds
    ]
    fits = [Fit(model, train, weights) for model, train in zip(models, folds * 2, strict=True)]
    assert sorted(one.number for one in fit_together(fits)) == list(range(8))
    assert all(model.catalogue_.factors.shape == (25, 3) for model in models)
