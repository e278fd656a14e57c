from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hdpmf.common.data import Ratings
from hdpmf.errors import RatingsError

KINDS: list[Callable[[dict[str, list[Any]]], Any]] = [
    pd.DataFrame,
    pl.DataFrame,
    pl.LazyFrame,
    pa.table,
]
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
@pytest.mark.parametrize("users", [[3, 1], ["ann", "7"], ["3", "1"]])
def test_all_frames_alike(kind: Callable[..., Any], users: list[Any]) -> None:
    columns = {
        "rating": [1.5, 4.0],
        "user": users,
        "item": [9, 8],
        "timestamp": [5, 6],
        "more": ["x", "y"],
    }
    with pytest.warns(UserWarning, match="used: user, item, rating, timestamp; not used: more"):
        ratings = Ratings.of(kind(columns))
    assert ratings.user_ids.tolist() == users
    assert ratings.item_ids.tolist() == [9, 8]
    assert ratings.values.tolist() == [1.5, 4.0]
    assert ratings.timestamps is not None
    assert ratings.timestamps.tolist() == [5, 6]


@kinds
@pytest.mark.parametrize(
    "when", [datetime(1970, 1, 2), datetime(1970, 1, 2, tzinfo=UTC), date(1970, 1, 2)]
)
def test_dates_become_seconds(kind: Callable[..., Any], when: date) -> None:
    frame = kind({"user": [1], "item": [1], "rating": [1], "timestamp": [when]})
    if kind is pd.DataFrame and not isinstance(when, datetime):  # pandas keeps dates as objects
        with pytest.raises(RatingsError, match="'timestamp', row 1: not a number"):
            Ratings.of(frame)
        return
    ratings = Ratings.of(frame)
    assert ratings.timestamps is not None
    assert ratings.timestamps.tolist() == [86_400]


@kinds
@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("user", [1, None], "'user', row 2"),
        ("user", ["a", None], "'user', row 2"),
        ("item", [1.5, 2.0], "'item', row 1"),
        ("rating", [1.0, None], "'rating', row 2"),
        ("rating", ["a", "b"], "'rating'"),
        ("rating", [1.0, 9.0], "row 2: off the scale"),
        ("timestamp", [datetime(1970, 1, 2), None], "'timestamp', row 2"),
        ("timestamp", ["a", "b"], "'timestamp'"),
    ],
)
def test_bad_columns(
    kind: Callable[..., Any], column: str, values: list[Any], message: str
) -> None:
    columns = {"user": [1, 2], "item": [1, 2], "rating": [1, 2], "timestamp": [1, 2]} | {
        column: values
    }
    with pytest.raises(RatingsError, match=message):
        Ratings.of(kind(columns))


@kinds
def test_missing_column(kind: Callable[..., Any]) -> None:
    frame = kind({"buyer": [1], "item": [1], "rating": [1]})
    with pytest.raises(RatingsError, match="no column 'user' among columns buyer, item, rating"):
        Ratings.of(frame)
    assert len(Ratings.of(frame, columns={"user": "buyer"})) == 1


def test_what_is_no_frame() -> None:
    for thing in ({"user": [1]}, None, 3):
        with pytest.raises(RatingsError, match="no data frame"):
            Ratings.of(thing)


def test_awkward_pandas_columns() -> None:
    frame = pd.DataFrame(
        {
            "user": pd.Series([1, 2], dtype=object),
            "item": pd.Categorical(["a", "b"]),
            "rating": pd.Series([1, 4.5], dtype=object),
        }
    )
    ratings = Ratings.of(frame)
    assert (ratings.user_ids.tolist(), ratings.item_ids.tolist()) == ([1, 2], ["a", "b"])
    floats = pd.DataFrame({"user": [1.0, 2.0], "item": [1, 2], "rating": [1, 2]})
    assert Ratings.of(floats).user_ids.tolist() == [1, 2]
    with pytest.raises(RatingsError, match="'rating', row 2: not a number"):
        Ratings.of(frame.assign(rating=pd.Series([1, "x"], dtype=object)))
