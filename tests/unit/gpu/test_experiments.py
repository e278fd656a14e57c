"""Experiments on a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("msgspec")
pytest.importorskip("joblib")
pytest.importorskip("rich")


@pytest.fixture(autouse=True)
def _pretend(monkeypatch, device, models_engine):
    monkeypatch.setattr("hdpmf.lab.experiments.runner.use_gpu", lambda name: name == "gpu")
    monkeypatch.setattr("hdpmf.models.factorization.use_gpu", lambda name: name == "gpu")
    monkeypatch.setattr("hdpmf.models.training.gpu", lambda: device)
    monkeypatch.setattr("hdpmf.models.training.fits", lambda n: True)


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    from hdpmf import synthetic_world

    path = tmp_path_factory.mktemp("ratings") / "ratings.csv"
    synthetic_world(40, 25, 500, rng=3).write(path)
    return path


def test_what_trains_no_factors_is_done_as_ever(tmp_path, ratings):
    from hdpmf.lab.experiments import Store, resolve, run_experiments
    from hdpmf.lab.experiments.spec import parse_experiment

    text = f"""
name = "small"
title = "Small"
datasets = ["mine"]
methods = ["hdpmf", "user-mean", "hdp-sum"]
factors = [3]
seeds = [0, 1]
epochs = 2
[split]
per_user = 2
[tuning]
folds = 2
[tuning.grids.default]
learning_rate = [0.1, 0.01]
reg = [0.01]
[data.mine]
file = "{ratings.name}"
"""
    experiment, files = resolve(parse_experiment(text, "small"), ratings.parent)
    with Store(tmp_path / "out", create=True) as store:
        done = run_experiments([experiment], store, files=files, n_jobs=1, on="gpu")
        results = store.results().values()
    assert done.ran == {"done": 8 + 6}
    gpus = {result.run.method: result.host.get("gpu") for result in results}
    assert gpus["user-mean"] is None
    assert gpus["hdpmf"] is not None
    assert {"mse", "mse_all", "fit_seconds"} <= set(
        next(r.metrics for r in results if r.run.method == "hdpmf")
    )
