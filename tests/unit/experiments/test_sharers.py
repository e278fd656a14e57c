"""Experiments in which somebody shares."""

from __future__ import annotations

import pytest

from hdpmf.errors import ConfigError
from hdpmf.lab.experiments import parse_experiment
from hdpmf.lab.experiments.expansion import (
    choices,
    configurations,
    evaluation_runs,
    method_names,
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
