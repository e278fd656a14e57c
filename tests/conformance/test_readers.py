"""What every way in does with ratings: files, frames, matrices, rows and columns, all alike."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import coo_matrix

from hdpmf import Ratings
from hdpmf.common.data import synthetic_world
from hdpmf.errors import ConfigError, HdpmfError, RatingsError, message_language

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Reader:
    """A way in: makes what `Ratings.of` takes out of columns, perhaps by files in a folder.

    Attributes:
        named: Columns have names.
        written: A file of text, in which a number and its digits are the same.
    """

    give: Callable[[Columns, Path], Any]
    named: bool = True
    written: bool = False


def delimited(mark: str, *, header: bool = True, packed: bool = False) -> Reader:
    def give(columns: Columns, folder: Path) -> Path:
        rows = [list(columns)] * header + [list(row) for row in zip(*columns.values(), strict=True)]
        text = "".join(
            mark.join("" if field is None else str(field) for field in row) + "\n" for row in rows
        )
        path = folder / "ratings.txt"
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        return path

    return Reader(give, named=header, written=True)


def parquet(columns: Columns, folder: Path) -> Path:
    pl.DataFrame(columns, strict=False).write_parquet(folder / "ratings.parquet")
    return folder / "ratings.parquet"


def polars(columns: Columns, folder: Path) -> pl.DataFrame:
    return pl.DataFrame(columns, strict=False)


READERS: dict[str, Reader] = {
    "csv": delimited(","),
    "semicolons": delimited(";"),
    "tabs": delimited("\t"),
    "bars": delimited("|"),
    "colons": delimited("::"),
    "blanks": delimited(" "),
    "gzip": delimited(",", packed=True),
    "no header": delimited("\t", header=False),
    "parquet": Reader(parquet),
    "pandas": Reader(lambda columns, folder: pd.DataFrame(columns)),
    "polars": Reader(polars),
    "lazy": Reader(lambda columns, folder: polars(columns, folder).lazy()),
    "pyarrow": Reader(lambda columns, folder: pa.table(columns)),
    "rows": Reader(lambda columns, folder: list(zip(*columns.values(), strict=True)), named=False),
    "array": Reader(
        lambda columns, folder: np.array(list(columns.values()), dtype=object).T, named=False
    ),
}
some = pytest.mark.parametrize(
    "reader", [pytest.param(reader, id=name) for name, reader in READERS.items()]
)
SMALL: Columns = {
    "user": [3, 0, 3],
    "item": [1, 1, 2],
    "rating": [1.5, 4.0, 5.0],
    "timestamp": [50, 60, 70],
}


def rows(ratings: Ratings) -> list[tuple[Any, ...]]:
    times = [None] * len(ratings) if ratings.timestamps is None else ratings.timestamps.tolist()
    listed = ratings.user_ids.tolist(), ratings.item_ids.tolist(), ratings.values.tolist(), times
    return sorted(zip(*listed, strict=True))


@some
@pytest.mark.parametrize("users", [[3, 0, 3], ["ann", "7", "ann"], ["007", "7", "007"]])
def test_the_same_table_comes_out(reader: Reader, users: list[Any], tmp_path: Path) -> None:
    given = SMALL | {"user": users}
    ratings = Ratings.of(reader.give(given, tmp_path))
    assert rows(ratings) == sorted(zip(*given.values(), strict=True))
    assert (ratings.users.is_integer, ratings.items.is_integer) == (isinstance(users[0], int), True)
    assert (ratings.user_codes.dtype, ratings.values.dtype) == (np.int32, np.float32)
    assert (len(ratings), ratings.n_users, ratings.n_items) == (3, 2, 2)


@some
def test_digits_are_numbers_in_text_and_text_in_frames(reader: Reader, tmp_path: Path) -> None:
    ratings = Ratings.of(reader.give(dict(SMALL, user=["3", "0", "3"]), tmp_path))
    assert ratings.users.ids.tolist() == ([0, 3] if reader.written else ["0", "3"])


@some
def test_nothing_of_it_shows(reader: Reader, tmp_path: Path) -> None:
    with message_language("python", lambda text: None):
        ratings = Ratings.of(reader.give(dict(SMALL, rating=[4.25, 4.25, 4.25]), tmp_path))
    for shown in (repr(ratings), repr(ratings.users), ratings._repr_html_()):
        assert "4.25" not in shown
    assert "3 ratings" in repr(ratings)


BAD: dict[str, tuple[dict[str, list[Any]], str]] = {
    "no user": ({"user": [3, None, 3]}, "'user', row 2"),
    "no item": ({"item": [1, None, 2]}, "'item', row 2"),
    "no rating": ({"rating": [1.5, None, 5.0]}, "'rating', row 2"),
    "NaN": ({"rating": [1.5, float("nan"), 5.0]}, "'rating', row 2"),
    "infinite": ({"rating": [1.5, float("inf"), 5.0]}, "row 2: not a finite number"),
    "off the scale": ({"rating": [1.5, 7.75, 5.0]}, "row 2: off the scale 1..5"),
    "no number": ({"rating": [1.5, "much", 5.0]}, "'rating'|one type"),
    "fraction": ({"item": [1.5, 2.5, 3.5]}, "'item', row 1"),
    "long id": ({"user": ["a", "b" * 300, "c"]}, "'user', row 2: .*longer than 256"),
    "no time": ({"timestamp": [50, None, 70]}, "'timestamp', row 2"),
    "odd time": ({"timestamp": ["once", "upon", "then"]}, "'timestamp'"),
    "twice": ({"user": [3, 3, 3], "item": [1, 1, 2]}, r"row 2 rates .*duplicates=\"last\""),
}


@pytest.mark.parametrize("fault", BAD)
@some
def test_bad_values_are_located_and_not_shown(reader: Reader, fault: str, tmp_path: Path) -> None:
    changes, message = BAD[fault]
    if reader.written and fault == "fraction":
        return  # in text that is an id
    try:
        data = reader.give(dict(SMALL, **changes), tmp_path)
    except (TypeError, pa.ArrowException):
        return  # that kind of table cannot hold this
    with pytest.raises(RatingsError, match=message) as caught:
        Ratings.of(data)
    for secret in ("7.75", "much", "once"):
        assert secret not in str(caught.value)


@some
def test_what_misses_something_is_left_out_if_told(reader: Reader, tmp_path: Path) -> None:
    data = reader.give(dict(SMALL, rating=[1.5, None, 5.0], user=[3, 0, 3]), tmp_path)
    with pytest.warns(UserWarning, match="1 rows are left out.*: rating in 1"):
        ratings = Ratings.of(data, missing="drop")
    assert ratings.values.tolist() == [1.5, 5.0]
    with pytest.raises(ConfigError, match="error or drop, not 'fill'"):
        Ratings.of(data, missing="fill")  # type: ignore[arg-type]


@some
def test_of_several_ratings_the_one_that_is_asked_for_counts(
    reader: Reader, tmp_path: Path
) -> None:
    again = {"user": [3, 3, 3], "item": [1, 1, 2], "timestamp": [90, 60, 70]}
    data = reader.give(dict(SMALL, **again), tmp_path)
    for how, value in {
        "last": 1.5, "last-row": 4.0, "mean": 2.75,
    }.items():  # fmt: skip
        found = Ratings.of(data, duplicates=how)  # type: ignore[arg-type]
        assert sorted(zip(found.item_ids.tolist(), found.values.tolist(), strict=True)) == [
            (1, value),
            (2, 5.0),
        ]
    with pytest.raises(ConfigError, match="last, last-row, mean, not 'any'"):
        Ratings.of(data, duplicates="any")  # type: ignore[arg-type]


@some
def test_a_scale_is_public_and_given(reader: Reader, tmp_path: Path) -> None:
    data = reader.give(dict(SMALL, rating=[10.0, 1.0, 5.0]), tmp_path)
    assert Ratings.of(data, scale=(0, 10)).scale.high == 10
    with pytest.raises(RatingsError, match=r"row \d: off the scale 1..5 .*scale=\(low, high\)"):
        Ratings.of(data)


@some
def test_choices_have_no_ratings(reader: Reader, tmp_path: Path) -> None:
    """Whatever counts there are; and without a column of ratings one has to say so."""
    given = dict(SMALL, rating=[9.0, 70.0, 3.0])
    with message_language("python", lambda text: None):  # the column of counts is not used
        counted = Ratings.of(reader.give(given, tmp_path), implicit=True)
    assert (counted.implicit, counted.values.tolist()) == (True, [1, 1, 1])
    assert counted.to_frame().columns[:2] == ["user", "item"]
    if reader is READERS["blanks"]:
        return  # one blank in a line may be part of a name
    bare = {name: given[name] for name in ("user", "item")}
    (tmp_path / "bare").mkdir()
    data = reader.give(bare, tmp_path / "bare")
    assert Ratings.of(data, implicit=True).implicit
    with pytest.raises(RatingsError, match=r"implicit=True|3 to 4 fields|no column 'user'"):
        Ratings.of(data)
    with pytest.raises(RatingsError, match="no rating scale"):
        Ratings.of(data, implicit=True, scale=(1, 5))


@some
def test_columns_may_be_called_otherwise(reader: Reader, tmp_path: Path) -> None:
    given = SMALL
    data = reader.give({{"user": "buyer"}.get(name, name): given[name] for name in given}, tmp_path)
    if not reader.named:
        if not reader.written:
            with pytest.raises(ConfigError, match="no names of columns"):
                Ratings.of(data, columns={"user": "buyer"})
        return
    with pytest.raises(RatingsError, match=r"no column 'user' among columns .*buyer.*columns="):
        Ratings.of(data)
    assert rows(Ratings.of(data, columns={"user": "buyer"})) == sorted(
        zip(*SMALL.values(), strict=True)
    )
    with pytest.raises(ConfigError, match="unknown: customer"):
        Ratings.of(data, columns={"customer": "buyer"})


@some
def test_common_names_are_known_and_told(reader: Reader, tmp_path: Path) -> None:
    if not reader.named:
        return
    names = {"user": "User-ID", "item": "ISBN", "rating": "stars", "timestamp": "date"}
    given = {names[name]: values for name, values in SMALL.items()} | {"more": ["x"] * 3}
    told = "item = ISBN, rating = stars, timestamp = date; not used: more"
    with pytest.warns(UserWarning, match=told):
        ratings = Ratings.of(reader.give(given, tmp_path))
    assert rows(ratings) == sorted(zip(*SMALL.values(), strict=True))
    (tmp_path / "odd").mkdir()
    data = reader.give(given | {"date": ["one", "fine", "day"]}, tmp_path / "odd")
    heard: list[str] = []
    with message_language("python", heard.append):
        assert Ratings.of(data).timestamps is None
    assert "'date' holds no times" in heard[-1]
    with message_language("python", heard.append), pytest.raises(RatingsError, match="no time"):
        Ratings.of(data, columns={"timestamp": "date"})
    (tmp_path / "two").mkdir()
    data = reader.give(given | {"book": [1, 2, 3]}, tmp_path / "two")
    with pytest.raises(RatingsError, match=r"could be 'item' \(columns ISBN, book\)"):
        Ratings.of(data)


@some
@pytest.mark.parametrize(
    "when",
    [datetime(1970, 1, 2, 1), datetime(1970, 1, 2, 1, tzinfo=UTC), date(1970, 1, 2)],
    ids=["naive", "UTC", "date"],
)
def test_dates_are_seconds(reader: Reader, when: date, tmp_path: Path) -> None:
    if reader.written and isinstance(when, datetime):
        when = when.replace(tzinfo=None)  # a zone is not read
    text = str(when).replace(" ", "T") if READERS["blanks"] is reader else when
    ratings = Ratings.of(reader.give(SMALL | {"timestamp": [text] * 3}, tmp_path))
    assert ratings.timestamps is not None
    hour = 3600 if isinstance(when, datetime) else 0
    assert set(ratings.timestamps.tolist()) == {86_400 + hour}


@some
def test_no_rows_are_an_error(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(HdpmfError):
        Ratings.of(reader.give({name: [] for name in SMALL}, tmp_path))


def test_a_large_world_is_the_same_whatever_the_way(tmp_path: Path) -> None:
    world = synthetic_world(n_users=60, n_items=40, n_ratings=900, rng=2)
    frame = world.to_frame()
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    for name, reader in READERS.items():
        (tmp_path / name).mkdir()
        found = Ratings.of(reader.give(shuffled.to_dict(as_series=False), tmp_path / name))
        assert rows(found) == rows(world), name
        assert (found.users, found.items) == (world.users, world.items)
    again = Ratings.of(world.to_frame("pandas"))
    assert rows(again) == rows(world)
    entries = coo_matrix((world.values, (world.user_codes, world.item_codes)))
    assert sorted(Ratings.of(entries).values) == sorted(world.values)


def test_what_is_no_table() -> None:
    for thing in ({"user": [1]}, None, 3):
        with pytest.raises(RatingsError, match="no data frame"):
            Ratings.of(thing)
    three = [(1, 2, 3)]
    for wrong in (
        [(1, 2)], [*three, (1, 2)], [(1, 2, 3, 4, 5)], [1, 2, 3], [], np.zeros(3), np.zeros((2, 6)),
        [*three, ("a", 2, 3)],
    ):  # fmt: skip
        with pytest.raises(RatingsError, match=r"(rows of ratings all have|a field of all)"):
            Ratings.of(wrong)
    twice = coo_matrix(([3.0, 4.0], ([0, 0], [1, 1])))
    with pytest.raises(RatingsError, match="duplicates="):
        Ratings.of(twice)
    assert Ratings.of(twice, duplicates="mean").values.tolist() == [3.5]
    with pytest.raises(ConfigError, match="rows are users"):
        Ratings.of(twice, columns={"user": "x"})
    with pytest.raises(RatingsError, match="must hold numbers"):
        Ratings.of(coo_matrix(([1j], ([0], [1]))))


def test_awkward_columns_of_pandas() -> None:
    frame = pd.DataFrame(
        {
            "user": pd.Series([1, 2], dtype=object),
            "item": pd.Categorical(["a", "b"]),
            "rating": pd.Series([1, 4.5], dtype=object),
        }
    )
    ratings = Ratings.of(frame)
    assert (ratings.user_ids.tolist(), ratings.item_ids.tolist()) == ([1, 2], ["a", "b"])
    assert ratings.values.tolist() == [1, 4.5]
    floats = pd.DataFrame({"user": [1.0, 2.0], "item": [1, 2], "rating": [1, 2]})
    assert Ratings.of(floats).user_ids.tolist() == [1, 2]
    with pytest.raises(RatingsError, match="'rating', row 2: not a number"):
        Ratings.of(frame.assign(rating=pd.Series([1, "x"], dtype=object)))
    with pytest.raises(RatingsError, match="'user' mixes"):
        Ratings.of(frame.assign(user=pd.Series([1, "x"], dtype=object)))


def test_last_needs_times_unless_rows_are_said_to_count() -> None:
    """The column of times is called otherwise: the older rating must not win by its row."""
    seen = pd.DataFrame({"user": [1, 1], "item": [7, 7], "rating": [5, 2], "moment": [200, 100]})
    with (
        pytest.warns(UserWarning, match=r"columns used: user, item, rating; not used: moment; say"),
        pytest.raises(RatingsError, match=r"no times .*\"timestamp\".*duplicates=\"last-row\""),
    ):
        Ratings.of(seen, duplicates="last")
    assert Ratings.of(seen, duplicates="last", columns={"timestamp": "moment"}).values.tolist() == [
        5
    ]
    # Where nothing is twice there is nothing to decide.
    assert len(Ratings.from_arrays([1, 2], [1, 1], [3, 4], duplicates="last")) == 2
    clicks = pd.DataFrame({"user": [1, 1], "item": [7, 7]})
    assert len(Ratings.of(clicks, implicit=True, duplicates="last")) == 1


def test_a_word_goes_where_people_look() -> None:
    heard: list[str] = []
    with message_language("shell", heard.append):
        Ratings.of(pd.DataFrame({"customer": [1], "item": [1], "rating": [5]}))
        with pytest.raises(RatingsError, match=r"--column rating=NAME, .*--implicit"):
            Ratings.of(pd.DataFrame({"user": [1], "item": [1], "plays": [5]}))
        with pytest.raises(RatingsError, match="--scale LOW HIGH"):
            Ratings.from_arrays([1], [1], [7])
        with pytest.raises(RatingsError, match="--duplicates last"):
            Ratings.from_arrays([1, 1], [1, 1], [4, 4])
    assert "--column user=NAME" in heard[0]
    assert len(heard) == 1, "an error says the rest"
