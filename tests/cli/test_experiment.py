"""``hdpmf experiment`` and ``hdpmf paper``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hdpmf import Estimator, Ratings, UserMean
from hdpmf.cli.experiment import SOME_RUNS_FAILED
from hdpmf.errors import ConfigError
from hdpmf.lab import paper
from hdpmf.lab.experiments import read_experiment
from hdpmf.lab.experiments.execution import score

from .conftest import Call

SPEC = """
name = "own"
title = "Ratings of my own"
datasets = ["mine"]
methods = ["hdpmf", "user-mean"]
factors = [3]
seeds = [0, 1]
epochs = 3

[data.mine]
file = "train.csv"

[split]
per_user = 2

[tuning]
grids.default = { learning_rate = [0.01] }

[vary]
parameter = "epsilon"
values = [0.5, 2]
"""


def test_an_experiment_on_a_file_of_the_users(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "train.csv").write_bytes(files[0].read_bytes())
    (tmp_path / "own.toml").write_text(SPEC)
    arguments = ("experiment", "run", tmp_path / "own.toml", "--out", tmp_path / "out", "--jobs", 1)
    found = call(*arguments)
    assert found.code == 0, found.err
    assert "Ratings of my own [mine, K=3]" in found.out
    assert "epsilon=0.5" in found.out
    assert "HDPMF: epsilon is NOMINAL" in found.out
    assert "Privacy: SIMULATED noise, to compare methods. More: hdpmf privacy explain" in found.out
    assert "6 runs done now, 0 reused" in found.out
    report = call(*arguments, "--json").json
    assert (report["n_ran"], report["n_reused"]) == (0, 6)
    assert {(cell["method"], cell["x"]) for cell in report["cells"]} == {
        (method, x) for method in ("hdpmf", "user-mean") for x in (0.5, 2.0)
    }
    assert all(len(cell["mse"]["values"]) == 2 for cell in report["cells"])
    assert not (tmp_path / "out" / "users").exists()  # a figure has too many runs
    # Nothing in the store says where files are on this machine.
    assert str(tmp_path).encode() not in (tmp_path / "out" / "results.sqlite").read_bytes()


def _refusing(kind: type[Estimator]) -> Callable[..., dict[str, float | int]]:
    """A measurement that fails for one kind of model."""

    def measure(model: Estimator, train: Ratings, test: Ratings) -> dict[str, float | int]:
        if isinstance(model, kind):
            raise ConfigError("the disk ate it")
        return score(model, train, test)

    return measure


@pytest.mark.parametrize("shown", [(), ("--json",)])
def test_failed_runs_have_a_code_of_their_own_and_the_others_are_kept(
    call: Call,
    files: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shown: tuple[str, ...],
) -> None:
    (tmp_path / "train.csv").write_bytes(files[0].read_bytes())
    (tmp_path / "own.toml").write_text(SPEC)
    arguments = ("experiment", "run", tmp_path / "own.toml", "--out", tmp_path / "out", "--jobs", 1)
    with monkeypatch.context() as patch:
        patch.setattr("hdpmf.lab.experiments.execution.score", _refusing(UserMean))
        found = call(*arguments, *shown)
    assert found.code == SOME_RUNS_FAILED
    assert "failed: User mean: the disk ate it" in found.err
    assert "2 of 6 runs failed" in found.err
    if shown:
        assert found.json["failures"] == {"user-mean": "the disk ate it"}
        assert {(cell["method"], cell["status"]) for cell in found.json["cells"]} == {
            ("hdpmf", "done"),
            ("user-mean", "failed"),
        }
    again = call(*arguments, *shown)
    assert again.code == 0, again.err
    if shown:
        assert (again.json["n_ran"], again.json["n_reused"], again.json["failures"]) == (2, 4, {})


@pytest.mark.slow
def test_a_report_on_the_users_own_experiment(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "train.csv").write_bytes(files[0].read_bytes())
    (tmp_path / "own.toml").write_text(SPEC)
    call("experiment", "run", tmp_path / "own.toml", "--out", tmp_path / "out", "--jobs", 1)
    told = call("experiment", "report", tmp_path / "report", "--results", tmp_path / "out")
    assert told.code == 0, told.err
    assert "files written; open" in told.out
    fields = call(
        "experiment", "report", tmp_path / "report", "--results", tmp_path / "out", "--json"
    ).json
    assert "csv/own.csv" in fields["files"]
    assert "marks" not in fields
    assert "Ratings of my own" in (tmp_path / "report" / "index.html").read_text()


def test_a_wrong_file_is_one_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("name = 3")
    for path in (tmp_path / "wrong.toml", tmp_path / "absent.toml"):
        found = call("experiment", "run", path, "--out", tmp_path / "out")
        assert found.code == 2
        assert path.name in found.err
        assert not (tmp_path / "out").exists()


pytestmark = pytest.mark.slow


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The quick version made quicker still, on the synthetic world."""
    monkeypatch.setenv("HDPMF_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(paper, "_QUICK_EPOCHS", 2)
    world = paper.DataOptions(world={"n_users": 60, "n_items": 40, "n_ratings": 1_500})
    monkeypatch.setattr(paper, "_QUICK_WORLD", world)


@pytest.mark.usefixtures("tiny")
def test_quick_runs_every_experiment_and_resumes(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = call("paper", "run", "--quick", "--out", out, "--jobs", 1, "--json")
    assert found.code == 0, found.err
    report = found.json
    assert report["quick"] is True
    assert set(report["experiments"]) == set(paper.NAMES)
    assert all(
        cell["status"] == "done" for cells in report["experiments"].values() for cell in cells
    )
    methods = {cell["method"] for cell in report["experiments"]["table3"]}
    assert {"user-mean", "global-mean", "hdpmf-w", "mf", "hdpmf", "pdpmf", "dpmf"} <= methods
    again = call("paper", "run", "--quick", "--out", out, "--jobs", 1)
    assert again.code == 0
    assert "0 runs done now" in again.out
    assert "[Synthetic, K=5, quick]" in again.out


@pytest.mark.usefixtures("tiny")
def test_what_is_not_here(call: Call, tmp_path: Path) -> None:
    missing = call("paper", "run", "--out", tmp_path / "out")
    assert missing.code == 4
    assert "hdpmf data get ml-100k" in missing.err
    asked = call("paper", "run", "--data", "ml-1m", "--out", tmp_path / "out")
    assert asked.code == 4
    assert "MovieLens 1M is not on this machine" in asked.err
    assert not (tmp_path / "out").exists()
    assert call("paper", "run", "--experiment", "table9").code == 2


def test_an_example_is_a_file_that_runs(call: Call, tmp_path: Path) -> None:
    for name in paper.NAMES:
        found = call("experiment", "example", name)
        assert found.code == 0
        (tmp_path / "copy.toml").write_text(found.out)
        copied, original = read_experiment(tmp_path / "copy.toml"), paper.experiment(name)
        grids = {"tuning": None}
        assert replace(copied, **grids) == replace(original, **grids)
        assert copied.tuning.split == original.tuning.split
    assert "figure_sparsity" in call("experiment", "example").err
    assert call("experiment", "example", "table9").code == 2


def test_the_paper_with_some_methods_only(call: Call) -> None:
    everything = [paper.experiment(name) for name in ("table3", "lists", "table_no_features")]
    kept = {one.name: one.methods for one in paper.only(everything, ["hdp-sum", "most-popular"])}
    assert kept == {
        "table3": ("hdp-sum",),
        "lists": ("hdp-sum", "most-popular"),
        "table_no_features": ("hdp-sum",),
    }
    with pytest.raises(ConfigError, match="most-popular is in none of these"):
        list(paper.only(everything[:1], ["most-popular"]))
    with pytest.raises(ConfigError, match="unknown method 'hdp-sums'"):
        list(paper.only(everything, ["hdp-sums"]))
