"""What people hand in on the first day: each is understood, or refused by an error of ours.

A row of a table is what is given, and what becomes of it: a part of the error, or of what it says.
"""

from __future__ import annotations

import datetime as dt
import uuid
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from hdpmf import (
    BiasedMF,
    HDPPairs,
    HDPSum,
    ItemFilter,
    ItemTable,
    PrivacySpec,
    PrivacyWeights,
    Ratings,
    UserMean,
    grid_search,
    load_dataset,
    make_model,
)
from hdpmf.common.data import synthetic_world
from hdpmf.errors import HdpmfError

pytestmark = pytest.mark.filterwarnings("ignore:.*columns used", "ignore:.*holds no times")

WORLD = synthetic_world(n_users=30, n_items=20, n_ratings=300, rng=0)
MODEL = HDPSum(rng=0).fit(WORLD)
FRAME = pd.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [1, 3.5]})
ITEMS = pd.DataFrame({"item": [1, 2], "title": ["One (1990)", "Two"]})
UUIDS = [uuid.UUID(int=1), uuid.UUID(int=2)]


def outcome(call: Callable[[], Any]) -> str:
    """What a call gives, in words: its error, or its result. Other errors are faults."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            return f"OK {call()}"
    except HdpmfError as error:
        return str(error)


def told(ratings: Ratings) -> str:
    times = None if ratings.timestamps is None else ratings.timestamps.tolist()
    return f"{ratings.user_ids.tolist()} {ratings.values.tolist()} {times} {ratings.scale}"


FILES: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "is empty"),
    "blank lines": ("\n\n", "is empty"),
    "header alone": ("user,item,rating\n", "there are no ratings"),
    "one column": ("user\n1\n", "no column 'item'"),
    "five columns": ("1,2,3,4,5\n", "has 3 to 4 columns"),
    "a short row": ("1,2,3\n4,5\n", "'rating', row 2: missing"),
    "a long row": ("1,2,3\n4,5,3,9,9\n", "do not all have 3 fields"),
    "a word first": ("1,2,three\n3,4,5\n", "no column 'user'"),
    "a word later": ("1,2,3\n3,4,five\n", "'rating', row 2: not a number"),
    "half stars": ("1,2,3.5\n3,4,.5\n", "row 2: off the scale 1..5"),
    "zero to ten": ("1,2,0\n3,4,10\n", "off the scale 1..5 (2 such rows)"),
    "decimal commas": ("user;item;rating\n1;2;3,5\n", "row 1: not a number"),
    "per cent": ("1,2,50%\n3,4,20%\n", "the third is to hold numbers"),
    "not a number": ("1,2,nan\n3,4,5\n", "row 1: missing"),
    "infinite": ("1,2,inf\n3,4,5\n", "row 1: not a finite number"),
    "twice": ("1,2,3\n1,2,3\n", "row 2 rates an item that the same user has rated"),
    "leading zeros": ("007,2,3\n7,2,3\n", "OK ['007', '7']"),
    "huge ids": ("99999999999999999999,2,3\n", "OK ['99999999999999999999']"),
    "a runaway id": ("a" * 300 + ",2,3\n", "longer than 256 characters"),
    "no user": (",2,3\n", "'user', row 1: missing"),
    "utf-16": ("1,2,3\n".encode("utf-16"), "not a text file"),
    "latin-1": ("\u00e9,2,3\n".encode("latin1"), "not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbfuser,item,rating\n1,2,3\n", "OK [1] [3.0]"),
    "an open quote": ('user,item,rating\n"a, b,2,3\n', "a quote is not closed"),
    "a comma in quotes": ('user,item,rating\n"a, b",2,3\n', "OK ['a, b']"),
    "semicolons": ("1;2;3\n2;2;4\n", "OK [1, 2] [3.0, 4.0]"),
    "bars": ("1|2|3\n2|2|4\n", "OK [1, 2] [3.0, 4.0]"),
    "an unknown separator": ("1~2~3\n4~5~6\n", "no column 'user'"),
    "windows": ("1,2,3\r\n2,2,4\r\n", "OK [1, 2] [3.0, 4.0]"),
    "blank lines at the end": ("1,2,3\n2,2,4\n\n  \n", "OK [1, 2] [3.0, 4.0]"),
    "json": ('[{"user":1,"item":2,"rating":3}]', "no column 'user'"),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0", "not UTF-8"),
    "a cut archive": (b"\x1f\x8b\x08aaaa", "gzip file is truncated"),
    "not Parquet": (b"PAR1aaaaPAR1", "Parquet file is truncated"),
    "milliseconds": ("1,2,3,1609459200000\n", "[1609459200]"),
    "a German date": ("1,2,3,31.12.2020\n2,2,3,01.01.2021 10:00\n", "no time"),
    "dates without a century": ("1,2,3,31.12.20\n", "row 1: no time"),
    "German dates": ("1,2,3,31.12.2020\n2,2,3,01.01.2021\n", "[1609372800, 1609459200]"),
    "times with a zone": ("1,2,3,2021-01-01T02:00:00+02:00\n", "[1609459200]"),
    "American dates": ("1,2,3,12/31/2020\n", "row 1: no time"),
    "true and false": ("1,2,true\n2,2,False\n", "OK [1, 2] [1.0, 0.0] None 0..1"),
    "up and down": ("1,2,up\n2,2,down\n", "OK [1, 2] [1.0, 0.0] None 0..1"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_files(case: str, tmp_path: Path) -> None:
    content, expected = FILES[case]
    path = tmp_path / "ratings.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert expected in outcome(lambda: told(Ratings.read(path)))


FRAMES: dict[str, tuple[Any, str]] = {
    "no rows": (FRAME.head(0), "there are no ratings"),
    "no columns": (pd.DataFrame(), "no column 'user'"),
    "mixed ids": (FRAME.assign(user=[1, "2"]), "mixes integers and strings"),
    "booleans as ids": (FRAME.assign(user=[True, False]), "not bool"),
    "fractions as ids": (FRAME.assign(user=[1.5, 2]), "not a fraction"),
    "no id": (FRAME.assign(user=["a", None]), "'user', row 2: missing"),
    "lists as ids": (FRAME.assign(user=[[1], [2]]), "not list"),
    "dates as ids": (FRAME.assign(user=[dt.date(2020, 1, 1)] * 2), "not date"),
    "ids of 70 bits": (FRAME.assign(user=[2**70, 1]), "beyond 64 bits"),
    "ids of 64 bits": (FRAME.assign(user=np.array([2**63, 1], np.uint64)), "beyond 64 bits"),
    "UUIDs": (FRAME.assign(user=UUIDS), "OK ['00000000-0000-0000-0000-000000000001', "),
    "text as ratings": (FRAME.assign(rating=["1", "good"]), "row 2: not a number"),
    "numbers as text": (FRAME.assign(rating=["1", "2"]), "OK [1, 2] [1.0, 2.0]"),
    "decimals": (FRAME.assign(rating=[Decimal("1.5")] * 2), "OK [1, 2] [1.5, 1.5]"),
    "infinite": (FRAME.assign(rating=[1, np.inf]), "row 2: not a finite number"),
    "complex": (FRAME.assign(rating=[1j, 2]), "row 1: not a number"),
    "dates as ratings": (FRAME.assign(rating=[dt.date(2020, 1, 1)] * 2), "must hold numbers"),
    "thumbs": (FRAME.assign(rating=[True, False]), "OK [1, 2] [1.0, 0.0] None 0..1"),
    "a missing thumb": (FRAME.assign(rating=[True, None]), "'rating', row 2: missing"),
    "columns twice": (pd.concat([FRAME, FRAME], axis=1), "a name of its own"),
    "columns without names": (pd.DataFrame([[1, 2, 3]]), "a name of its own"),
    "columns of two levels": (pd.DataFrame({("a", "b"): [1]}), "a name of its own"),
    "dates": (FRAME.assign(when=[dt.date(2021, 1, 1)] * 2), "[1609459200, 1609459200]"),
    "dates by any name": (FRAME.assign(z=[dt.datetime(2021, 1, 1)] * 2), "[1609459200, 1"),
    "two columns of dates": (
        FRAME.assign(y=[dt.datetime(2021, 1, 1)] * 2, z=[dt.datetime(2021, 1, 1)] * 2), "] None"),
    "mixed seconds": (FRAME.assign(timestamp=[1609459200000, 1609459200]), "milliseconds mixed"),
    "no time": (FRAME.assign(timestamp=[dt.datetime(2021, 1, 1), pd.NaT]), "'timestamp', row 2"),
    "ragged rows": ([(1, 2, 3), (1, 3)], "3 to 4 fields"),
    "a flat list": ([1, 2, 3], "3 to 4 fields"),
    "records": ([{"user": 1, "item": 2, "rating": 3}], "3 to 4 fields"),
    "a dictionary": ({"user": [1]}, "no data frame"),
    "nothing": (None, "no data frame"),
    "a cube": (np.zeros((2, 3, 3)), "3 to 4 fields"),
    "an empty matrix": (sparse.csr_matrix((3, 3)), "there are no ratings"),
    "a matrix below the scale": (sparse.csr_matrix(-np.eye(3)), "off the scale"),
}  # fmt: skip


@pytest.mark.parametrize("case", FRAMES)
def test_frames(case: str) -> None:
    data, expected = FRAMES[case]
    assert expected in outcome(lambda: told(Ratings.of(data)))


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "scale in words": (lambda: Ratings.of(FRAME, scale="1-5"), "scale=(low, high)"),
    "scale upside down": (lambda: Ratings.of(FRAME, scale=(5, 1)), "from low to high"),
    "step too wide": (lambda: Ratings.of(FRAME, scale=(1, 5, 9)), "must be above 0 and fit"),
    "columns in a list": (lambda: Ratings.of(FRAME, columns=["user"]), "columns are named by ours"),
    "implicit in words": (lambda: Ratings.of(FRAME, implicit="no"), "implicit is True, False"),
    "hold out text": (lambda: WORLD.hold_out("10"), "an integer of at least 1"),
    "fewest in text": (lambda: WORLD.min_ratings("5"), "an integer of at least 1"),
    "half a fold": (lambda: WORLD.k_fold(2.5), "an integer of at least 2"),
    "all for the test": (lambda: WORLD.split(1.0), "above 0 and below 1"),
    "items of no file": (lambda: WORLD.describe("items.csv"), "there is no file items.csv"),
    "n in text": (lambda: MODEL.recommend(1, n="5"), "n must be a whole number"),
    "half an n": (lambda: MODEL.rank(WORLD, n=2.5), "n must be a whole number"),
    "an unknown item": (lambda: MODEL.recommend(1, only=ItemFilter(items=[1, 77])),
                        "unknown id 77: none of the 20"),
    "a genre for a filter": (lambda: MODEL.recommend(1, only="Drama"), "only is an ItemFilter"),
    "one genre": (lambda: ItemFilter(genres="Drama"), "genres is a list"),
    "genres in numbers": (lambda: ItemFilter(not_genres=[1]), "not_genres is a list of words"),
    "an age for a filter": (lambda: ItemFilter(audience=12), "audience is a list of words"),
    "an item for a filter": (lambda: ItemFilter(items=3), "items is a list of ids"),
    "a year in text": (lambda: ItemFilter(from_year="1990"), "a year is a whole number"),
    "now in words": (lambda: MODEL.recommend(1, now="today"), "seconds since 1970"),
    "no time for now": (lambda: MODEL.recommend(1, now=float("nan")), "seconds since 1970"),
    "no callbacks": (lambda: BiasedMF().fit(WORLD, callbacks=3), "functions, in a list"),
    "delta 1": (lambda: HDPPairs(delta=1).fit(WORLD), "a positive number of at most 0.1, not 1"),
    "weights of a frame": (lambda: PrivacyWeights.uniform(FRAME), "make some with Ratings.of"),
    "groups of a frame": (lambda: PrivacySpec().draw(FRAME), "make some with Ratings.of"),
    "a weight in text": (lambda: PrivacyWeights.uniform(WORLD, "1"), "weights are numbers above"),
    "weights in text": (lambda: PrivacyWeights.from_parts(WORLD, users=["a"]), "are numbers above"),
    "one value for a grid": (lambda: grid_search(BiasedMF(), WORLD, {"reg": 0.1}), "are a list"),
    "features off": (lambda: HDPSum(features="off").fit(WORLD), "True, False or 'auto', and there"),
    "features none": (lambda: HDPSum(features=None).fit(WORLD), "True, False or 'auto', not None"),
    "weights in words": (lambda: MODEL.update([(1, 1, 3)], weights="a"), "privacy weights, which"),
    "weight nought": (lambda: MODEL.fold_in([(99, 1, 3)], weights=0), "not in (0, 1]"),
    "no test": (lambda: MODEL.score(WORLD.take(np.zeros(0, int))), "there are no test ratings"),
    "a user in text": (lambda: MODEL.predict("1", 1), "user ids are integers"),
    "a table as user": (lambda: MODEL.predict({1: 2}, 1), "is no user"),
    "UUIDs": (lambda: UserMean().fit(Ratings.from_arrays(UUIDS, UUIDS, [1, 2])).predict(
        UUIDS[1], UUIDS[0]), "OK [2.]"),
    "UUIDs with wishes": (lambda: PrivacyWeights.from_parts(Ratings.from_arrays(
        UUIDS, UUIDS, [1, 2]), users=dict.fromkeys(UUIDS, 0.5)), "OK PrivacyWeights"),
    "dates beside columns": (lambda: told(Ratings.from_arrays([1], [1], [2], timestamps=[
        dt.date(2021, 1, 1)])), "[1609459200]"),
    "a file for a data set": (lambda: load_dataset(__file__), "read it with Ratings.read"),
    "no data set": (lambda: load_dataset(None), "unknown data set None"),
    "a data set that is near": (lambda: load_dataset("ml-20m"), "did you mean"),
    "no title, no genre": (lambda: ItemTable.of(ITEMS.assign(
        title=["One", np.nan], genres=[np.nan, "a|b"])).genres, "OK ((), ('a', 'b'))"),
    "no text, pandas' own": (lambda: ItemTable.of(ITEMS.assign(
        title=pd.array(["One", pd.NA], dtype="string"))).titles, "OK ('One', '')"),
    "sets of genres": (lambda: ItemTable.of(ITEMS.assign(genres=[{"b", "a"}, set()])).genres,
                       "OK (('a', 'b'), ())"),
    "arrays of genres": (lambda: ItemTable.of(ITEMS.assign(genres=[np.array(["a", "b"]), None]))
                         .genres, "OK (('a', 'b'), ())"),
    "no genres, MovieLens' way": (lambda: ItemTable.of(ITEMS.assign(
        genres=["a", "(no genres listed)"])).genres, "OK (('a',), ())"),
    "items by UUID": (lambda: ItemTable.of(ITEMS.assign(item=UUIDS)).ids.tolist(), "OK ['0000"),
    "years in titles": (lambda: ItemTable.of(ITEMS).years, "OK (1990, None)"),
    "items twice": (lambda: ItemTable.of(pd.concat([ITEMS, ITEMS])), "listed twice"),
    "years in words": (lambda: ItemTable.of(ITEMS.assign(year=["1990", "y"])), "row 2: no year"),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_calls(case: str) -> None:
    call, expected = CALLS[case]
    assert expected in outcome(call)


def test_years_and_upright_titles_reach_features_lists_and_reasons(tmp_path: Path) -> None:
    """MovieLens' own movies.csv: titles with years, articles at the end."""
    world = synthetic_world(n_users=80, n_items=40, n_ratings=1500, rng=0, pull=2.0)
    known = world.item_table
    assert known is not None
    titles = [
        f"{title[:-7]}, The ({year})" for title, year in zip(known.titles, known.years, strict=True)
    ]
    path = tmp_path / "movies.csv"
    genres = ["|".join(own) for own in known.genres]
    pd.DataFrame({"movieId": known.ids, "title": titles, "genres": genres}).to_csv(
        path, index=False
    )
    bare = Ratings.from_arrays(world.user_ids, world.item_ids, world.values)
    model = HDPSum(rng=0).fit(bare, items=path)
    assert "year" in model.feature_names_
    by_file = HDPSum(rng=0, features=str(path)).fit(bare)
    assert "year" in by_file.feature_names_
    by_neighbours = make_model("ease", rng=0).fit(bare, items=path)
    listed = [item for user in (1, 2, 3) for item in by_neighbours.recommend(user, 10)]
    assert all(item.title.startswith("The ") and item.year for item in listed)
    assert any(" The " in (item.reason or "") for item in listed)
    assert not any(", The" in (item.reason or "") for item in listed)
    assert model.recommend(1, 3, only=ItemFilter(from_year=1990))
