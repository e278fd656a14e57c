from __future__ import annotations

import math
from pathlib import Path

import pytest

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.errors import ConfigError, DatasetError, DivergedError, RatingsError
from hdpmf.lab.experiments import tune
from hdpmf.lab.experiments.tuning import TuningResult
from hdpmf.models import make_model

pytestmark = pytest.mark.filterwarnings("ignore:hyper-parameters are chosen by errors")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ratings.csv"
    synthetic_world(60, 40, 1_200, rng=3).write(path)
    return path


def test_the_errors_are_those_of_the_library(file: Path, tmp_path: Path) -> None:
    """One cell worked out by hand: the same folds, the same weights, the same seed."""
    tuned = tune(
        "mf",
        file,
        n_factors=3,
        learning_rates=[0.05, 0.01],
        regs=[0.01],
        folds=3,
        epochs=5,
        seed=4,
        n_jobs=1,
        solver="sequential",
        out=tmp_path / "out",
    )
    ratings = Ratings.read(file)
    errors = []
    for train, validation in ratings.k_fold(3, rng=4):
        weights = PrivacySpec().draw(train, rng=4)
        model = make_model(
            "mf", n_factors=3, learning_rate=0.05, reg=0.01, epochs=5, solver="sequential", rng=4
        )
        seen = (train.user_counts()[validation.user_codes] > 0) & (
            train.item_counts()[validation.item_codes] > 0
        )
        errors.append(model.fit(train, weights).score(validation.take(seen))["mse"])
    assert tuned.grid[0].values == {"learning_rate": 0.05, "reg": 0.01}
    assert tuned.grid[0].mse == pytest.approx(sum(errors) / 3)
    assert tuned.best.mse == min(row.mse for row in tuned.grid)
    assert tuned.done.total == 6


def test_it_goes_on_where_it_was(file: Path, tmp_path: Path) -> None:
    def again(folds: int, rates: list[float]) -> tuple[int, int]:
        tuned = tune(
            "pdpmf",
            file,
            learning_rates=rates,
            regs=[0.01],
            folds=folds,
            epochs=2,
            n_jobs=1,
            out=tmp_path / "o",
        )
        return tuned.done.total, tuned.done.reused

    assert again(2, [0.01, 0.005]) == (4, 0)
    assert again(2, [0.01, 0.005]) == (0, 4)
    assert again(2, [0.01, 0.005, 0.001]) == (2, 4)
    assert again(3, [0.01, 0.005]) == (6, 0)


def test_nothing_is_kept_without_a_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert math.isfinite(
        tune(
            "hdpmf", file, learning_rates=[0.01, 0.02], regs=[0.1], folds=2, epochs=2, n_jobs=1
        ).best.mse
    )
    assert sorted(tmp_path.iterdir()) == before


def test_grids_suit_the_solver(file: Path) -> None:
    rates = {}
    for method, solver in (("hdpmf", "batch"), ("hdpmf", "sequential"), ("dpmf", "sequential")):
        tuned = tune(method, file, folds=2, epochs=1, n_jobs=1, solver=solver)
        rates[method, solver] = {row.values["learning_rate"] for row in tuned.grid}
    assert rates["hdpmf", "batch"] == {0.1, 0.05, 0.01, 0.005}
    assert rates["hdpmf", "sequential"] == {0.05, 0.01, 0.005, 0.001}
    assert rates["dpmf", "sequential"] == {0.005, 0.001, 0.0005, 0.0001}


def test_all_diverged(file: Path) -> None:
    with pytest.raises(DivergedError, match="no combination"):
        tune(
            "mf",
            file,
            learning_rates=[1e6, 2e6],
            regs=[0.01],
            folds=2,
            epochs=30,
            n_jobs=1,
            solver="sequential",
        )


def test_arguments_that_make_no_sense(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown method"):
        tune("svd", file)
    with pytest.raises(ConfigError, match="nothing to tune"):
        tune("user-mean", file)
    with pytest.raises(ConfigError, match="folds"):
        tune("mf", file, folds=1)
    with pytest.raises(ConfigError, match="solver"):
        tune("mf", file, solver="magic")
    with pytest.raises(ConfigError, match="hdpmf-paid has no option 'solver'"):
        tune("hdpmf-paid", file, solver="sequential")
    with pytest.raises(ConfigError, match="mf has no option 'epsilon'"):
        tune("mf", file, epsilon=1.0)
    with pytest.raises(ConfigError, match="describe files"):
        tune("mf", "synthetic", scale=(1, 5))
    with pytest.raises(RatingsError, match="cannot read"):
        tune("mf", tmp_path / "absent.csv")


def test_a_data_set_that_is_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HDPMF_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match="MovieLens 1M"):
        tune("mf", "ml-1m")


def test_a_bayesian_search_repeats_goes_on_and_is_not_a_grid(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")

    def search(out: Path, trials: int = 6, **more: object) -> TuningResult:
        return tune(
            "mf", file, n_factors=2, epochs=3, folds=2, search="bayes", trials=trials,
            learning_rates=[0.005, 0.1], regs=[0.001, 0.01], out=out, n_jobs=1, **more,
        )  # fmt: skip

    first = search(tmp_path / "a")
    tried = [row.values for row in first.grid]
    assert len({row["learning_rate"] for row in tried}) == 6
    assert all(0.005 <= row["learning_rate"] <= 0.1 for row in tried)
    assert first.best.mse == min(row.mse for row in first.grid if row.status == "done")
    assert first.done.total == 12
    again = search(tmp_path / "a")
    assert (again.done.total, again.done.reused) == (0, 12)
    further = search(tmp_path / "a", trials=8)
    assert [row.values for row in further.grid][:6] == tried
    assert further.done.total == 4
    lists = search(tmp_path / "a", trials=2, by="ndcg_at_10")
    assert math.isfinite(lists.best.ndcg)
    with pytest.raises(ConfigError, match="trials are for"):
        tune("mf", file, trials=3)


def test_tuning_a_private_method_on_ones_own_ratings_warns(file: Path) -> None:
    with pytest.warns(UserWarning, match="epsilon does not cover that choice"):
        tune("hdpmf", file, learning_rates=[0.01, 0.005], regs=[0.01], epochs=2, folds=2, n_jobs=1)
