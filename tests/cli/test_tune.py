from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hdpmf.cli.experiment import SOME_RUNS_FAILED
from hdpmf.errors import ConfigError
from hdpmf.lab.experiments.execution import score

from .conftest import Call

FEW = (
    "--lr-grid",
    "0.05,0.01",
    "--reg-grid",
    "0.01",
    "--folds",
    2,
    "--epochs",
    3,
    "--factors",
    3,
    "--jobs",
    1,
)


def test_json_has_the_grid_and_the_best(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    arguments = ("tune", "hdpmf", "--train", files[0], *FEW, "--out", tmp_path, "--json")
    found = call(*arguments)
    assert found.code == 0, found.err
    report = found.json
    assert report["method"] == "hdpmf"
    assert (report["folds"], report["factors"], report["solver"]) == (2, 3, "batch")
    assert [row["lr"] for row in report["grid"]] == [0.05, 0.01]
    assert report["best"]["mse"] == min(row["mse"] for row in report["grid"])
    assert set(report["best"]) == {"lr", "reg", "mse", "mae", "ndcg_at_10"}
    assert (report["epsilon"], report["epsilon_status"]) == (1.0, "nominal")
    assert report["n_ran"] == 4
    assert call(*arguments).json["n_ran"] == 0
    assert call(*arguments).json["best"] == report["best"]


def test_a_table_for_people(call: Call, files: tuple[Path, Path], tmp_path: Path) -> None:
    found = call("tune", "mf", "--train", files[0], *FEW, "--out", tmp_path)
    assert found.code == 0
    assert "best" in found.out
    assert "use it with: hdpmf evaluate mf --train" in found.out
    assert "cross-validation: 4 runs to do" in found.err


def test_a_failed_fold_has_a_code_of_its_own(
    call: Call, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def first_fails(*given: Any) -> dict[str, float | int]:
        asked.append(given)
        if len(asked) == 1:
            raise ConfigError("the disk ate it")
        return score(*given)

    monkeypatch.setattr("hdpmf.lab.experiments.execution.score", first_fails)
    found = call("tune", "mf", "--train", files[0], *FEW, "--out", tmp_path, "--json")
    assert found.code == SOME_RUNS_FAILED
    assert found.json["failures"] == {"mf": "the disk ate it"}
    assert sorted(row["status"] for row in found.json["grid"]) == ["done", "failed"]
    assert call("tune", "mf", "--train", files[0], *FEW, "--out", tmp_path).code == 0


def test_a_choice_for_lists(call: Call, files: tuple[Path, Path], tmp_path: Path) -> None:
    arguments = ("tune", "mf", "--train", files[0], *FEW, "--for", "lists", "--out", tmp_path)
    report = call(*arguments, "--json").json
    assert report["for"] == "lists"
    assert report["best"]["ndcg_at_10"] == max(row["ndcg_at_10"] for row in report["grid"])
    found = call(*arguments)
    assert "NDCG@10" in found.out
    assert "--ranking" in found.out


def test_a_registered_data_set(call: Call, tmp_path: Path) -> None:
    found = call("tune", "mf", "--data", "synthetic", *FEW, "--out", tmp_path, "--json")
    assert found.code == 0
    assert found.json["data"] == "synthetic"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("mf",), 2, "either --train FILE or --data NAME"),
        (("svd", "--data", "synthetic"), 2, "unknown method"),
        (("user-mean", "--data", "synthetic"), 2, "nothing to tune"),
        (("mf", "--data", "synthetic", "--lr-grid", "fast"), 2, "--lr-grid takes numbers"),
        (("mf", "--data", "synthetic", "--reg-grid", "0.1,0.1"), 2, "each once"),
        (("mf", "--data", "synthetic", "--backend", "slurm"), 2, "unknown backend"),
        (("mf", "--data", "synthetic", "--jobs", "0"), 2, "at least 1"),
        (("mf", "--data", "synthetic", "--for", "songs"), 2, "--for takes ratings or lists"),
        (("mf", "--train", "absent.csv"), 3, "cannot read"),
        (("mf", "--data", "nowhere"), 3, "cannot read"),
    ],
)
def test_what_makes_no_sense(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    found = call("tune", *arguments, "--out", tmp_path / "out")
    assert found.code == code
    assert message in found.err
