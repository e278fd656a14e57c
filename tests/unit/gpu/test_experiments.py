"""Tuning with a GPU gives the table that a CPU gives."""

from __future__ import annotations

import pytest

pytest.importorskip("msgspec")
pytest.importorskip("joblib")
pytest.importorskip("rich")

from hdpmf.common.methods import METHODS
from hdpmf.lab.experiments import tune


@pytest.fixture(autouse=True)
def _pretend(monkeypatch, device):
    monkeypatch.setattr("hdpmf.lab.experiments.runner.use_gpu", lambda name: name == "gpu")
    monkeypatch.setattr("hdpmf.models.multi_fit.gpu", lambda: device)


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    from hdpmf import synthetic_world

    path = tmp_path_factory.mktemp("ratings") / "ratings.csv"
    synthetic_world(40, 25, 500, rng=3).write(path)
    return path


@pytest.mark.parametrize("method", ["hdpmf", "pdpmf", "mf"])
@pytest.mark.filterwarnings("ignore:hyper-parameters are chosen")
def test_cross_validation_is_the_same_without_noise(ratings, method, tmp_path):
    given = {
        "learning_rates": (0.1, 0.01, 1e6),
        "regs": (0.01,),
        "folds": 3,
        "epochs": 10,
        "n_jobs": 1,
        **METHODS[method].own(epsilon=1e12),
    }
    cpu = tune(method, ratings, **given)
    gpu = tune(method, ratings, **given, on="gpu", out=tmp_path)
    assert [row.status for row in gpu.grid] == [row.status for row in cpu.grid]
    for ours, theirs in zip(gpu.grid, cpu.grid, strict=True):
        assert ours.mse == pytest.approx(theirs.mse, rel=1e-3)
        assert ours.mae == pytest.approx(theirs.mae, rel=1e-3)
    assert gpu.best.values == cpu.best.values
    again = tune(
        method, ratings, **given, out=tmp_path
    )  # results are results, wherever they come from
    assert again.done.total == 0


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
    assert done.ran == {"done": 4 + 6}
    gpus = {result.run.method: result.host.get("gpu") for result in results}
    assert gpus["user-mean"] is None
    assert gpus["hdpmf"] is not None
    assert {"mse", "mse_all", "fit_seconds"} <= set(
        next(r.metrics for r in results if r.run.method == "hdpmf")
    )
