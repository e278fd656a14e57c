"""Arrays and lists of rows, folders and patterns go in; frames and matrices come out."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from hdpmf import HDPSum, Ratings
from hdpmf.common.data import synthetic_world
from hdpmf.errors import ConfigError, RatingsError

WORLD = synthetic_world(n_users=30, n_items=20, n_ratings=300, rng=0)


def same(found: Ratings, wanted: Ratings) -> bool:
    order = np.lexsort((found.item_ids, found.user_ids))
    other = np.lexsort((wanted.item_ids, wanted.user_ids))
    return all(
        np.array_equal(mine[order], theirs[other])
        for mine, theirs in (
            (found.user_ids, wanted.user_ids),
            (found.item_ids, wanted.item_ids),
            (found.values, wanted.values),
        )
    )


def test_an_array_and_a_list_of_rows_go_in() -> None:
    rows = np.column_stack([WORLD.user_ids, WORLD.item_ids, WORLD.values])
    tuples = list(zip(*(column.tolist() for column in rows.T), strict=True))
    whole = [(int(user), int(item), rating) for user, item, rating in tuples]
    for data in (rows, rows.astype(int), whole, [list(row) for row in whole]):
        ratings = Ratings.of(data)
        assert same(ratings, WORLD)
        assert ratings.users.is_integer
    assert HDPSum(rng=0).fit(rows).score(whole)["n"] == len(WORLD)
    timed = [("ann", "x", 5, 10), ("bea", "x", 1.5, 20)]
    ratings = Ratings.of(timed)
    assert ratings.user_ids.tolist() == ["ann", "bea"]
    assert ratings.values.tolist() == [5, 1.5]
    assert ratings.timestamps is not None
    assert ratings.timestamps.tolist() == [10, 20]
    text = np.array([("ann", "x", 4), ("bea", "y", 2)], dtype=object)
    assert Ratings.of(text).item_ids.tolist() == ["x", "y"]
    clicks = Ratings.of([(1, 2), (1, 3)], implicit=True)
    assert (clicks.implicit, len(clicks)) == (True, 2)
    with pytest.warns(UserWarning, match="1 rows are left out"):
        assert len(Ratings.of([(1, 2, None), (1, 3, 4)], missing="drop")) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        [(1, 2)],
        [(1, 2, 3), (1, 2)],
        [(1, 2, 3, 4, 5)],
        [1, 2, 3],
        [],
        np.zeros(3),
        np.zeros((2, 6)),
        [(1, 2, 3), ("a", 2, 3)],
    ],
)
def test_other_rows_are_refused(wrong: Any) -> None:
    with pytest.raises(RatingsError, match=r"ratings: (rows of ratings all have|a field of all)"):
        Ratings.of(wrong)


def test_rows_have_no_names() -> None:
    with pytest.raises(ConfigError, match="rows have no names of columns"):
        Ratings.of([(1, 2, 3)], columns={"user": "who"})


def test_a_folder_and_a_pattern_are_read_as_one(tmp_path: Path) -> None:
    frame = WORLD.to_frame().select("user", "item", "rating").with_columns(note=pl.lit("x"))
    folder = tmp_path / "parts"
    (folder / "deeper").mkdir(parents=True)
    frame.head(100).write_parquet(folder / "a.parquet")
    frame.slice(100, 100).write_parquet(folder / "b.parquet")
    frame.slice(200).write_parquet(folder / "deeper" / "c.parquet")
    (folder / "README.txt").write_text("not ratings")
    for place in (folder, str(folder), str(folder / "**" / "*.parquet")):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            assert same(Ratings.read(place), WORLD)
        assert len(heard) == 1, "which columns are used is said once"
    # Ids of one file look like integers, those of the other do not.
    (tmp_path / "1.csv").write_text("user,item,rating\n1,7,5\n")
    (tmp_path / "2.csv").write_text("user,item,rating\nann,8,4\n")
    both = Ratings.read(tmp_path / "*.csv")
    assert both.user_ids.tolist() == ["1", "ann"]
    assert both.item_ids.tolist() == [7, 8]
    (tmp_path / "3.csv").write_text("user,item,rating,timestamp\nbea,8,4,99\n")
    with pytest.raises(RatingsError, match="some of 3 files have no column of timestamps"):
        Ratings.read(tmp_path / "*.csv")
    (tmp_path / "empty").mkdir()
    for nothing in (tmp_path / "empty", tmp_path / "*.nothing"):
        with pytest.raises(RatingsError, match="there is no"):
            Ratings.read(nothing)


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ratings[1].csv"
    path.write_text("user,item,rating\n1,7,5\n")
    assert len(Ratings.read(path)) == 1


def test_frames_and_matrices_come_out_and_go_in_again() -> None:
    for kind, frame in (("polars", pl.DataFrame), ("pandas", pd.DataFrame)):
        made = WORLD.to_frame(kind)  # type: ignore[arg-type]
        assert isinstance(made, frame)
        again = Ratings.of(made)
        assert same(again, WORLD)
        assert np.array_equal(again.timestamps, WORLD.timestamps)  # type: ignore[arg-type]
    matrix = WORLD.to_sparse()
    assert matrix.shape == (WORLD.n_users, WORLD.n_items)
    row, column = WORLD.user_codes[5], WORLD.item_codes[5]
    assert matrix[row, column] == WORLD.values[5]
    assert matrix.nnz == len(WORLD)
    assert Ratings.of([(1, 2)], implicit=True).to_frame().columns == ["user", "item"]
    with pytest.raises(ConfigError, match="polars or pandas"):
        WORLD.to_frame("spark")  # type: ignore[arg-type]
