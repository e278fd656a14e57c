"""Experiments in which somebody shares."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from hdpmf.errors import ConfigError
from hdpmf.lab.experiments import parse_experiment
from hdpmf.lab.experiments.expansion import (
    choices,
    configurations,
    evaluation_runs,
    method_names,
    wishes_in_words,
)

SHARERS = """
name = "sharers"
title = "Sharers"
datasets = ["synthetic"]
methods = ["hdp-sum", "hdp-share"]
seeds = [0]
"""


def _runs(text: str) -> dict[tuple[str, float | None], list[str]]:
    """Who shares in each run, by method and place on the axis."""
    experiment = parse_experiment(SHARERS + text, "sharers.toml")
    chosen = choices(experiment, {})
    return {
        (place.method, x): [run.privacy.sharers for run in runs if run.privacy is not None]
        for place in configurations(experiment)
        for x in experiment.xs
        if (runs := evaluation_runs(experiment, chosen, place, x))
    }


def test_who_shares_in_an_experiment() -> None:
    assert _runs('share_levels = "liberal:open"') == {
        ("hdp-sum", None): [""],
        ("hdp-share", None): ["liberal:open"],
    }
    varied = 'kind = "figure"\n{}\n[vary]\nparameter = "share"\nvalues = [0, 0.25]\n'
    assert _runs(varied.format('share_levels = ":open"')) == {
        ("hdp-sum", 0): [""],
        ("hdp-sum", 0.25): [""],
        ("hdp-share", 0): [""],
        ("hdp-share", 0.25): ["0.25:open"],
    }
    assert _runs(varied.format(""))["hdp-share", 0.25] == ["0.25:seen"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('share_levels = "2"', "share_levels takes a part"),
        ('share_levels = "shy"', "no user group 'shy'"),
        ('share_levels = "0.1"\nwithout = ["hdp-share"]', "no method here knows levels"),
        (
            'kind = "figure"\nshare_levels = "0.1"\n[vary]\nparameter = "share"\nvalues = [0.1]',
            "only :seen or :open",
        ),
        ('kind = "figure"\n[vary]\nparameter = "share"\nvalues = [3]', "share takes a part"),
    ],
)
def test_sharers_that_cannot_be_meant(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_experiment(SHARERS + text, "sharers.toml")


def test_methods_with_levels_are_among_all_only_where_somebody_shares() -> None:
    every = SHARERS.replace('["hdp-sum", "hdp-share"]', '"all"')
    assert "hdp-share" not in method_names(parse_experiment(every, "x"))
    assert "hdp-share" in method_names(parse_experiment(every + 'share_levels = "0.1"', "x"))


def test_reports_say_who_shares() -> None:
    words = wishes_in_words(
        parse_experiment(SHARERS + 'share_levels = "0.1:open"', "x"), "synthetic"
    )
    assert words.endswith("; 0.1 of people, drawn at random, publish their ratings")
    assert "people" not in wishes_in_words(parse_experiment(SHARERS, "x"), "synthetic")


@pytest.mark.slow
def test_the_figure_of_sharers_is_one_command(tmp_path: Path) -> None:
    """As in its first lines, on a small world: in a process of its own, for its own method."""
    folder = copytree(
        Path(__file__).parents[3] / "benchmarks" / "sharers", tmp_path / "s", copy_function=_small
    )
    command = [sys.executable, "-m", "hdpmf", "experiment", "run", str(folder / "sharers.toml")]
    command += ["--out", str(tmp_path / "out"), "--jobs", "1", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    cells = json.loads(ran.stdout)["cells"]
    found = {(cell["method"], cell["x"]): cell for cell in cells}
    methods = ("hdp-sum", "hdp-share", "hdp-share-open", "hdp-bit")
    assert found.keys() == {(method, x) for method in methods for x in (0.1, 0.5)}
    assert found["hdp-sum", 0.1]["mse"] == found["hdp-sum", 0.5]["mse"]
    for method in ("hdp-share", "hdp-share-open"):
        assert found[method, 0.1]["mse"] != found[method, 0.5]["mse"]
    assert found["hdp-share", 0.5]["mse"] != found["hdp-share-open", 0.5]["mse"]


def _small(source: str, target: str) -> str:
    text = Path(source).read_text(encoding="utf-8")
    text = text.replace('["ml-100k", "ml-1m"]', '["synthetic"]\nseeds = [0]')
    lines = [
        "values = [0.1, 0.5]" if line.startswith("values") else line for line in text.splitlines()
    ]
    if source.endswith(".toml"):
        lines += ["[data.synthetic]", "world = {n_users = 80, n_items = 40, n_ratings = 2000}"]
    Path(target).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target
