"""The paper's experiments as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError
from hdpmf.lab import paper
from hdpmf.lab.experiments.spec import default_grids


@pytest.mark.parametrize("name", paper.NAMES)
def test_the_papers_experiments_are_valid_and_have_a_quick_version(name: str) -> None:
    full = paper.experiment(name)
    reduced = paper.quick(full)
    assert full.name == name
    assert not full.quick
    assert full.datasets == ("ml-100k", "ml-1m", "douban", "yelp")
    assert reduced.quick
    assert len(reduced.datasets) == 1
    assert reduced.epochs < full.epochs
    assert set(full.paper_methods) <= set(METHODS)


def test_unknown_paper_experiment() -> None:
    with pytest.raises(ConfigError, match="table9"):
        paper.experiment("table9")


def test_quick_without_real_data_uses_the_synthetic_world(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HDPMF_DATA", str(tmp_path))
    assert paper.quick(paper.experiment("table3")).datasets == ("synthetic",)


def test_a_file_of_ones_own_is_tuned_as_the_papers_are() -> None:
    grids = paper.experiment("table3").tuning.grids
    yardstick = grids["biased-mf"]  # as good as it gets, and not held to K
    assert {**grids, "biased-mf": None} == {**default_grids(), "biased-mf": None}
    assert set(yardstick) == {"learning_rate", "reg", "n_factors", "epochs"}
