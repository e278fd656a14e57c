"""Ratings in parts: the same table as from one file, whatever the blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import hdpmf
from hdpmf import Ratings
from hdpmf.common.data import parquet_guard, readers
from hdpmf.errors import RatingsError

WORLD = hdpmf.synthetic_world(n_users=50, n_items=40, n_ratings=700, rng=2)


def frame(text: bool = False, times: bool = False) -> pl.DataFrame:
    made = pl.DataFrame(
        {"user": WORLD.user_ids, "item": WORLD.item_ids, "rating": WORLD.values.astype(float)}
    )
    if text:
        made = made.with_columns(pl.format("u{}", "user").alias("user"))
    if times:
        made = made.with_columns(pl.int_range(pl.len()).alias("timestamp") + 1_000_000)
    return made.sample(fraction=1.0, shuffle=True, seed=1)


def in_parts(table: pl.DataFrame, folder: Path, n: int = 3) -> Path:
    for part in range(n):
        path = folder / f"part={part}"
        path.mkdir(parents=True)
        table[part::n].write_parquet(path / "ratings.parquet")
    return folder


def rows(ratings: Ratings) -> list[Any]:
    times = [None] * len(ratings) if ratings.timestamps is None else ratings.timestamps.tolist()
    columns = (ratings.user_ids.tolist(), ratings.item_ids.tolist(), ratings.values.tolist(), times)
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("text", [False, True])
def test_a_folder_is_what_its_files_are_together(tmp_path: Path, text: bool) -> None:
    table = frame(text, times=True)
    found = Ratings.read(in_parts(table, tmp_path / "ratings"))
    whole = Ratings.of(table)
    assert rows(found) == rows(whole)
    assert found.users == whole.users
    assert found.items == whole.items
    assert found.user_codes.dtype == np.int32
    assert found.name == "ratings"
    matched = Ratings.read(tmp_path / "ratings" / "part=[01]" / "*.parquet")
    assert 0 < len(matched) < len(whole)
    assert rows(hdpmf.compare([], tmp_path / "ratings") and found) == rows(whole)


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every Parquet file be large; return the rows of the batches that were read."""
    batches: list[int] = []
    taken = readers.take_columns

    def counted(frame: pl.DataFrame, *more: Any) -> Any:
        batches.append(frame.height)
        return taken(frame, *more)

    monkeypatch.setattr(readers, "take_columns", counted)
    monkeypatch.setattr(readers, "_STREAMED_BYTES", 0)
    monkeypatch.setattr(readers, "_BATCH_ROWS", 100)
    monkeypatch.setattr(readers, "read_bytes", lambda path: pytest.fail("read as a whole"))
    return batches


@pytest.mark.parametrize("text", [False, True])
def test_a_large_file_is_read_in_batches(tmp_path: Path, text: bool, streamed: list[int]) -> None:
    table, file = frame(text, times=True), tmp_path / "odd [1].parquet"
    table.write_parquet(file, row_group_size=150)
    found, whole = Ratings.read(file), Ratings.of(table)
    assert streamed == [100] * 7
    assert rows(found) == rows(whole)
    assert found.users == whole.users
    assert (found.user_ids == whole.user_ids).all(), "in the order of the file"
    assert found.name == "odd [1].parquet"


def test_a_large_file_with_faults_is_an_error(tmp_path: Path, streamed: list[int]) -> None:
    file = tmp_path / "r.parquet"
    gap = pl.when(pl.int_range(pl.len()) == 555).then(None).otherwise("rating").alias("rating")
    frame().with_columns(gap).write_parquet(file, row_group_size=150)
    with pytest.raises(RatingsError, match=r"rows counted from row \d+ on.*missing"):
        Ratings.read(file)
    with pytest.warns(UserWarning, match="1 rows are left out"):
        assert len(Ratings.read(file, missing="drop")) == len(WORLD) - 1
    data = file.read_bytes()
    for wrong in (data[:-100] + data[-50:], data[:4] + bytes(200) + data[204:], data[:200]):
        file.write_bytes(wrong)
        with pytest.raises(RatingsError, match=r"r\.parquet"):
            Ratings.read(file)


def test_a_large_file_is_looked_over_before_it_is_decoded(
    tmp_path: Path, streamed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame().write_parquet(tmp_path / "r.parquet")
    for needed, says in ((None, "truncated, corrupted"), (1 << 60, "would take")):
        monkeypatch.setattr(parquet_guard, "decoded_bytes", lambda data, needed=needed: needed)
        with pytest.raises(RatingsError, match=says):
            Ratings.read(tmp_path / "r.parquet")
    assert streamed == []


def test_a_dask_frame_is_taken_by_partitions() -> None:
    dd = pytest.importorskip("dask.dataframe")
    table = frame()
    lazy = dd.from_pandas(table.to_pandas(), npartitions=4)
    assert rows(Ratings.of(lazy)) == rows(Ratings.of(table))
    renamed = lazy.rename(columns={"rating": "liking"})
    assert len(Ratings.of(renamed, columns={"rating": "liking"})) == len(WORLD)


def test_missing_values_are_counted_over_all_partitions() -> None:
    dd = pytest.importorskip("dask.dataframe")
    table = frame().with_columns(
        pl.when(pl.int_range(pl.len()) % 200 == 150).then(None).otherwise("rating").alias("rating")
    )
    lazy = dd.from_pandas(table.to_pandas(), npartitions=5)
    with pytest.warns(UserWarning, match=r"3 rows are left out.*rating in 3"):
        assert len(Ratings.of(lazy, missing="drop")) == len(WORLD) - 3


def test_text_and_numbers_together_are_text(tmp_path: Path) -> None:
    folder = in_parts(frame()[::2], tmp_path / "odd")
    frame(text=True)[1::2].write_parquet(folder / "other.parquet")
    found = Ratings.read(folder)
    assert not found.users.is_integer
    assert {"u1", "1"} <= set(found.users.ids.tolist())


def test_duplicates_across_files_are_found(tmp_path: Path) -> None:
    table = pl.concat([frame(), frame()[:5].with_columns(pl.lit(1.0).alias("rating"))])
    folder = in_parts(table, tmp_path / "r")
    with pytest.raises(RatingsError, match="5 such rows"):
        Ratings.read(folder)
    assert len(Ratings.read(folder, duplicates="mean")) == len(WORLD)
