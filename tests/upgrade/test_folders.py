"""Folders of older versions come forward whole: model, roster, items, what was released, the
servers' databases.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from old_versions import VERSIONS, content, unpack

from hdpmf.common.base import files
from hdpmf.common.base.files import LAYOUT_FILE, FolderLayout
from hdpmf.common.data import Ratings
from hdpmf.common.protocol import ItemFacts, Survey
from hdpmf.common.protocol.versions import number_of
from hdpmf.errors import ConfigError, StorageError
from hdpmf.lab.experiments import Store
from hdpmf.models.files import load_model
from hdpmf.untrusted.aggregator.folder import AggregatorFolder
from hdpmf.untrusted.recommender.release import Release
from hdpmf.untrusted.service import layout
from hdpmf.untrusted.service.backup import back_up, restore
from hdpmf.untrusted.service.collector_keys import pinned_servers
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.service import Service

Say = Callable[..., Any]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return unpack("0.1.0", tmp_path / "old")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("place", ["", "killed"])
def test_a_folder_comes_forward_and_keeps_what_it_has(
    tmp_path: Path, say: Say, version: str, place: str
) -> None:
    path = unpack(version, tmp_path / "old") / place / "recommender"
    before = content(path)
    folder = ServiceFolder(path)
    after = content(path)
    assert {name: after[name] for name in before} == before  # nothing that was there has changed
    added = set[str]()
    if version == "0.1.0":  # which had no numbers; what it left unfinished is given up
        unfinished = (
            {f"runs/{folder.runs()[1].hex()}/{name}" for name in ("number", "summary.json")}
            if place
            else ()
        )
        added = {LAYOUT_FILE, f"runs/{folder.runs()[0].hex()}/number", *unfinished}
    assert set(after) - set(before) == added
    ServiceFolder(path)
    assert content(path) == after

    status = say("recommender", "status", path)
    second = "given up" if version == "0.1.0" else "work"
    assert [run["stage"] for run in status["runs"]] == ["done", *([second] if place else [])]
    assert [device["name"] for device in status["devices"]] == ["ana", "ben", "school"]
    assert (folder.unfinished() is None) == (version == "0.1.0" or not place)
    model = folder.model()
    assert model is not None
    assert isinstance(model.numbers, ItemFacts)
    assert isinstance(model.plan, Survey)
    assert model.plan.epsilon == 0.4
    films, name = (
        (12, "shop") if version == "0.1.0" else (14, "recommender")
    )  # the second version has two more
    assert (len(folder.catalogue.ids), folder.config.name, len(folder.enrolled)) == (films, name, 3)
    assert number_of(folder.items) == (1 if version == "0.1.0" else 2)


@pytest.mark.parametrize("place", ["", "killed"])
def test_the_two_servers_of_0_2_0_know_what_they_counted(
    tmp_path: Path, say: Say, place: str
) -> None:
    old = unpack("0.2.0", tmp_path / "old") / place
    pairs = set()
    for role in ("leader", "helper"):
        found = say("aggregator", "status", old / role)
        assert found["role"] == role
        assert [task["batches"] for task in found["tasks"]] == [1, 1, *([0] if place else [])]
        folder = AggregatorFolder(old / role)
        assert folder.servers is not None
        pairs.add(folder.servers.digest)
        assert {card.organisation for card in folder.collectors.values()} == {
            "recommender",
            "other",
        }
    assert len(pairs) == 1
    assert {pinned_servers(old / name).digest for name in ("recommender", "other")} == pairs  # type: ignore[union-attr]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_released_is_put_together_with_new_runs(tmp_path: Path, version: str) -> None:
    folder = ServiceFolder(unpack(version, tmp_path / "old") / "recommender")
    (run,) = folder.runs()
    service, settings = Service(folder), folder.record(run).settings
    assert service.earlier(settings) == [run]
    answered = service.answered(run)
    assert answered.survey.epsilon == 0.4
    assert np.abs(answered.answer.scores).sum() > 0


def test_the_order_of_runs_survives_a_copy_without_times(old: Path, tmp_path: Path) -> None:
    folder = ServiceFolder(old / "killed" / "recommender")
    runs = folder.runs()
    assert len(runs) == 2
    copy = tmp_path / "copy"
    shutil.copytree(folder.path, copy, symlinks=True)
    for moment, run in enumerate(reversed(runs)):
        os.utime(copy / "runs" / run.hex() / "settings.json", (moment, moment))
    assert ServiceFolder(copy).runs() == runs


def test_killed_at_any_write_it_goes_on(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copies = old / "killed" / "recommender", list[Path]()
    write_file = files.atomic_write

    def write(*given: Any, **named: Any) -> None:
        for _ in range(2):
            copies.append(shutil.copytree(path, tmp_path / f"instant-{len(copies)}", symlinks=True))
            if len(copies) % 2:
                write_file(*given, **named)

    for module in ("hdpmf.untrusted.service.layout", "hdpmf.common.base.files"):
        monkeypatch.setattr(f"{module}.atomic_write", write)
    ServiceFolder(path)
    monkeypatch.undo()
    assert len(copies) == 8  # two numbers, one summary, the format
    expected = content(path)
    for copy in copies:
        ServiceFolder(copy)
        assert content(copy) == expected


def test_a_backup_of_0_1_0_is_restored_as_todays(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.1.0 had no backups; a folder that came forward is backed up, and an older layout in one
    comes forward.
    """
    path = old / "recommender"
    monkeypatch.setattr(layout.LAYOUT.__class__, "bring_forward", lambda self, folder: None)
    back_up(path, tmp_path / "a.backup")
    monkeypatch.undo()
    assert not (path / LAYOUT_FILE).exists()
    restore(tmp_path / "a.backup", tmp_path / "back")
    assert len(ServiceFolder(tmp_path / "back").runs()) == 1
    assert (tmp_path / "back" / LAYOUT_FILE).read_text() == f"{layout.LAYOUT.newest}\n"


def test_a_backup_and_a_release_that_0_2_0_made_are_read(tmp_path: Path) -> None:
    old = unpack("0.2.0", tmp_path / "old")
    restore(old / "shop.backup", tmp_path / "back")
    back, here = ServiceFolder(tmp_path / "back"), ServiceFolder(old / "recommender")
    assert (back.runs(), back.items, back.enrolled.digest) == (
        here.runs(),
        here.items,
        here.enrolled.digest,
    )
    assert Release.load(old / "bits.release").provenance()["origin"] == "more.csv"


@pytest.mark.parametrize("version", VERSIONS)
def test_models_and_results_are_read(tmp_path: Path, version: str) -> None:
    old = unpack(version, tmp_path / "old")
    ratings = Ratings.read(old / "loans.csv")
    for method in ("hdp-sum", "hdpmf"):
        assert 0 < load_model(old / "models" / method).score(ratings)["mse"] < 17
    with Store(old / "results") as store:
        results = store.results()
        assert results
        assert {result.status for result in results.values()} == {"done"}
        assert {result.version for result in results.values()} == {version}


def test_the_steps_of_a_folder_are_taken_once_each_in_order(tmp_path: Path) -> None:
    taken: list[str] = []
    (tmp_path / "config.toml").write_text("")

    def second(folder: Path) -> None:
        taken.append("second")
        if taken.count("second") == 1:
            raise StorageError("the disk is full")

    kind = FolderLayout("a folder", steps=(lambda folder: taken.append("first"), second))
    with pytest.raises(StorageError, match="full"):
        kind.bring_forward(tmp_path)
    assert (tmp_path / LAYOUT_FILE).read_text() == "2\n"
    for _ in range(2):
        kind.bring_forward(tmp_path)
    assert taken == ["first", "second", "second"]
    assert (tmp_path / LAYOUT_FILE).read_text() == "3\n"
    (tmp_path / LAYOUT_FILE).write_text("4\n")
    with pytest.raises(ConfigError, match="newer hdpmf; upgrade"):
        kind.bring_forward(tmp_path)
    for damaged in ("", "0", "two", "-1", "9" * 40):
        (tmp_path / LAYOUT_FILE).write_text(damaged)
        with pytest.raises(StorageError, match="damaged"):
            kind.bring_forward(tmp_path)
    kind.bring_forward(tmp_path / "nothing here")
