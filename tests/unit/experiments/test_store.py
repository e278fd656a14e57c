from __future__ import annotations

import sqlite3
from math import inf
from pathlib import Path

import msgspec
import pytest

from hdpmf.errors import ConfigError, StorageError
from hdpmf.lab.experiments import Experiment, Result, Store
from hdpmf.lab.experiments.runs import Data, Part, Run
from hdpmf.lab.experiments.store import FILE_NAME, StoredClaim

CLAIM = StoredClaim(1.0, "nominal", "everything", "because")


def result(seed: int = 0, status: str = "done", mse: float = 1.0, **more: float) -> Result:
    run = Run(Data("synthetic"), Part("hold-out", seed=seed), "user-mean", {})
    metrics = {"mse": mse, "mae": 0.5, **more} if status == "done" else {}
    return Result(run, status, metrics, CLAIM, message="")  # type: ignore[arg-type]


def add_many(store: Store) -> None:
    for seed in range(1, 500):
        store.add(result(seed))


def test_the_first_result_of_a_run_stays(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        store.add(result(mse=1.0))
        store.add(result(mse=2.0))
        assert [one.metric("mse") for one in store.results().values()] == [1.0]


_LISTED = {"n_listed": 3, "ndcg_margin_at_10": 0.1}


def test_a_result_with_lists_counts_instead_of_one_without(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        for mse, more in (
            (1.0, {}),
            (2.0, {"n_listed": 3}),
            (3.0, _LISTED),
            (4.0, {}),
            (5.0, _LISTED),
        ):
            store.add(result(mse=mse, **more))
        assert [one.metric("mse") for one in store.results().values()] == [3.0]


@pytest.mark.parametrize(
    ("status", "more", "suffices", "with_lists"),
    [
        ("done", {}, True, False),
        ("done", {"n_listed": 0}, True, True),
        ("done", {"n_listed": 3}, True, False),  # of an early version, without intervals
        ("done", _LISTED, True, True),
        ("diverged", {}, True, True),
        ("failed", {}, False, False),
    ],
)
def test_what_has_to_be_done_again(
    status: str, more: dict[str, int], suffices: bool, with_lists: bool
) -> None:
    one = result(status=status, **more)
    assert one.suffices(lists=False) == suffices
    assert one.suffices(lists=True) == with_lists


def test_failed_runs_are_tried_again_and_diverged_ones_are_not(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        store.add(result(0, "failed"))
        store.add(result(1, "diverged"))
        store.add(result(0, "failed"))
        store.add(result(0, "done"))
        found = store.results()
        assert found[result(0).run.id].status == "done"
        assert found[result(1).run.id].metric("mse") == inf


@pytest.mark.parametrize("table", ["runs", "events"])
@pytest.mark.parametrize("change", ["DELETE FROM {}", "UPDATE {} SET number = 9"])
def test_nothing_can_be_changed_or_deleted(tmp_path: Path, table: str, change: str) -> None:
    with Store(tmp_path, create=True) as store:
        store.add(result())
        store.note("end", {})
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(change.format(table))
    connection.close()


def test_experiments_are_remembered_as_last_started(tmp_path: Path, small: Experiment) -> None:
    later = msgspec.structs.replace(small, epochs=9)
    with Store(tmp_path, create=True) as store:
        for one in (small, later):
            store.note("start", {"experiments": [msgspec.to_builtins(one)]})
        assert store.experiments() == {"small": later}


def test_no_results_here(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are no results"):
        Store(tmp_path)
    assert not (tmp_path / FILE_NAME).exists()


def test_a_file_of_something_else(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    with pytest.raises(ConfigError, match="something else"):
        Store(tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot make the folder"):
        Store(tmp_path / "file" / "below", create=True)


def test_a_full_disk_loses_nothing_that_was_finished(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        store.add(result(0))
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StorageError, match="What was finished is safe"):
            add_many(store)
    with Store(tmp_path) as store:
        assert result(0).run.id in store.results()
