"""Parquet: in batches, and damaged files are errors."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest

import hdpmf
from hdpmf import Ratings
from hdpmf.common.data import readers
from hdpmf.errors import RatingsError

pytestmark = pytest.mark.slow
WORLD = hdpmf.synthetic_world(n_users=50, n_items=40, n_ratings=700, rng=2)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_FIRST_ROWS", 100)
    monkeypatch.setattr(readers, "_MOST_ROWS", 100)


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.usefixtures("batches")
def test_batches_give_the_same_table(tmp_path: Path, text: bool) -> None:
    table = WORLD.to_frame().sample(fraction=1.0, shuffle=True, seed=1)
    if text:
        table = table.with_columns(pl.format("u{}", "user").alias("user"))
    file = tmp_path / "odd [1].parquet"
    table.write_parquet(file, row_group_size=150)
    assert [len(one) for one in readers.read_batches(file, "odd")] == [100] * 7
    found, whole = Ratings.read(file), Ratings.of(table)
    assert (found.users, found.items, found.name) == (whole.users, whole.items, "odd [1].parquet")
    for column in ("user_codes", "item_codes", "values", "timestamps"):
        assert getattr(found, column).tolist() == getattr(whole, column).tolist()


@pytest.mark.usefixtures("batches")
def test_faults_are_located(tmp_path: Path) -> None:
    file = tmp_path / "r.parquet"
    gap = pl.when(pl.int_range(pl.len()) == 555).then(None).otherwise("rating").alias("rating")
    WORLD.to_frame().with_columns(gap).write_parquet(file, row_group_size=150)
    with pytest.raises(RatingsError, match=r"rows counted from row 501 on.*row 56: missing"):
        Ratings.read(file)
    with pytest.warns(UserWarning, match="1 rows are left out"):
        assert len(Ratings.read(file, missing="drop")) == len(WORLD) - 1


def small() -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame({"user": [1, 2], "item": ["a", "b"], "rating": [1.0, 5.0]}).write_parquet(buffer)
    return buffer.getvalue()


def test_damaged_files_are_errors(tmp_path: Path) -> None:
    whole, file = small(), tmp_path / "any.parquet"
    damaged = [whole[:-8] + b"\xff\xff\xff\x7fPAR1", whole[:200], whole[:-100] + whole[-50:]]
    for data in damaged:
        file.write_bytes(data)
        with pytest.raises(RatingsError, match=r"any\.parquet: the Parquet file is truncated"):
            Ratings.read(file)
    file.write_bytes(whole)
    assert len(Ratings.read(file)) == 2
