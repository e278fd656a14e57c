from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.lab import paper

from .conftest import Call

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
    assert set(report["experiments"]) == {
        name for name in paper.NAMES if name not in ("table1", "table2")
    }
    assert all(
        cell["status"] == "done" for cells in report["experiments"].values() for cell in cells
    )
    methods = {cell["method"] for cell in report["experiments"]["table3"]}
    assert {"user-mean", "global-mean", "hdpmf-w", "mf", "hdpmf", "pdpmf", "dpmf"} <= methods
    again = call("paper", "run", "--quick", "--out", out, "--jobs", 1)
    assert again.code == 0
    assert "0 runs done now" in again.out
    assert "[Synthetic, K=5, quick]" in again.out

    status = call("paper", "status", out)
    assert status.code == 0
    assert status.out.count("complete") == len(paper.NAMES) - 2
    assert "table3 (quick)" in status.out
    rows = call("paper", "status", out, "--json").json["experiments"]
    assert all(row["complete"] for row in rows)


@pytest.mark.usefixtures("tiny")
def test_one_experiment_then_another_share_their_runs(call: Call, tmp_path: Path) -> None:
    one = (
        "paper",
        "run",
        "--quick",
        "--out",
        tmp_path / "out",
        "--jobs",
        1,
        "--json",
        "--experiment",
    )
    first = call(*one, "table3").json
    second = call(*one, "figure_ablation").json
    assert second["n_reused"] == first["n_ran"]
    assert second["n_ran"] == 4  # HDPMF-R: two K, two seeds


@pytest.mark.usefixtures("tiny")
def test_plan_and_what_is_not_here(call: Call, tmp_path: Path) -> None:
    plan = call("paper", "plan", "--quick", "--json").json
    assert plan["runs"] > 200
    assert [row["dataset"] for row in plan["datasets"]] == ["synthetic"]
    assert "runs, about" in call("paper", "plan", "--quick").out
    missing = call("paper", "run", "--out", tmp_path / "out")
    assert missing.code == 4
    assert "hdpmf data get ml-100k" in missing.err
    asked = call("paper", "run", "--data", "ml-1m", "--out", tmp_path / "out")
    assert asked.code == 4
    assert "MovieLens 1M is not on this machine" in asked.err
    assert not (tmp_path / "out").exists()
    assert call("paper", "run", "--experiment", "table9").code == 2
    nothing = call("paper", "status", tmp_path / "out")
    assert nothing.code == 2
    assert "there are no results" in nothing.err


def test_the_whole_plan(call: Call, data_folder: Path) -> None:
    plan = call("paper", "plan", "--jobs", 2)
    assert plan.code == 0
    assert "Yelp sample" in plan.out
    assert "labelled so" in plan.err
