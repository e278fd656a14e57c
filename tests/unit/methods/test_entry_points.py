"""What packages add by entry points: methods and data sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import hdpmf
from hdpmf.common.base import names
from hdpmf.common.base.names import Registry
from hdpmf.common.data import datasets
from hdpmf.common.data.dataset_formats import DatasetInfo
from hdpmf.errors import ConfigError, DatasetError

WORLD = hdpmf.synthetic_world(n_users=40, n_items=30, n_ratings=500, rng=0)


@dataclass
class Point:
    """An entry point, as importlib has it."""

    value: object

    def load(self) -> object:
        return self.value


def _of_package(monkeypatch: pytest.MonkeyPatch, known: Registry, *values: object) -> None:
    """Let a package be installed that names these values."""
    points = {known._group: [Point(each) for each in values]}
    monkeypatch.setattr(names, "entry_points", lambda group: points.get(group, []))
    monkeypatch.setattr(known, "_looked", False)
    monkeypatch.setattr(known, "_known", dict(known._known))


def test_a_data_set_of_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    WORLD.write(tmp_path / "club.csv")
    mine = DatasetInfo(
        name="club",
        title="Our club",
        description="what we rated",
        page="https://example.org/club",
        files=("club.csv",),
        read=lambda info, path: hdpmf.Ratings.read(path, name=info.title),
    )
    _of_package(monkeypatch, datasets.REGISTRY, [mine])
    monkeypatch.setenv("HDPMF_DATA", str(tmp_path))
    assert "club" in datasets.dataset_names()
    assert len(hdpmf.load_dataset("club")) == len(WORLD)
    with pytest.raises(DatasetError, match="unknown data set 'clubb'; did you mean 'club'"):
        hdpmf.load_dataset("clubb")


def test_what_is_no_such_thing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _of_package(monkeypatch, datasets.REGISTRY, "seven")
    with pytest.raises(ConfigError, match="only a DatasetInfo can be registered, not str"):
        datasets.REGISTRY.named("seven")
