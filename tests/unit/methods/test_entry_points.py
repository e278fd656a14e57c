"""What packages add by entry points: methods, data sets, metrics and models for lists."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import hdpmf
from hdpmf.common.base import names
from hdpmf.common.base.names import Registry
from hdpmf.common.data import datasets
from hdpmf.common.data.dataset_formats import DatasetInfo
from hdpmf.common.methods.options import LIST_KINDS, ListKind
from hdpmf.errors import ConfigError, DatasetError
from hdpmf.models.validation import METRICS, Metric
from hdpmf.untrusted.recommender.lists.presence import Presence
from hdpmf.untrusted.recommender.lists.training import popular_lists

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


def test_a_metric_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    _of_package(monkeypatch, METRICS, Metric("seven", lambda *parts: 7.0))
    table = hdpmf.compare([], WORLD, per_user=2, metrics=["seven"])
    assert table["User mean"]["seven"] == 7.0


def test_a_model_for_lists_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def rare(presence: Presence, seed: int = 0) -> object:
        return popular_lists(1.0 / np.maximum(presence.raters, 1))

    _of_package(monkeypatch, LIST_KINDS, (ListKind("rare", rare),))
    train, test = WORLD.hold_out(3, rng=0)
    found = hdpmf.HDPBit(list_model="rare", rng=0).fit(train)
    usual = hdpmf.HDPBit(list_model="popular", rng=0).fit(train)
    assert found.rank(test)["popularity"] < usual.rank(test)["popularity"]
    with pytest.raises(ConfigError, match="one of ease, ials, bpr, neural, popular, rare"):
        hdpmf.HDPBit(list_model="raer", rng=0).fit(train)


def test_a_model_for_lists_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    _of_package(monkeypatch, LIST_KINDS, ListKind("none", lambda presence, seed=0: None))
    train, test = WORLD.hold_out(3, rng=0)
    with pytest.raises(ConfigError, match="must be a ListModel of 30 items"):
        hdpmf.HDPBit(list_model="none", rng=0).fit(train).rank(test)


def test_what_is_no_such_thing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _of_package(monkeypatch, METRICS, "seven")
    with pytest.raises(ConfigError, match="only a Metric can be registered, not str"):
        METRICS.named("seven")
