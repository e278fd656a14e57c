"""Ids stay as they are, several ratings become one, and time splits see no future."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from hdpmf.common.data import IdIndex, Ratings, read_split
from hdpmf.common.data.item_features import ItemFeatures, read_item_table, restrict_to_file
from hdpmf.errors import ConfigError, RatingsError, UnknownIdError, message_language

files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
spelled = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.from_regex(r"[+-]?0*[0-9]{1,6}", fullmatch=True),
    st.text("0123456789abcXYZ-+._", min_size=1, max_size=12),
)
ids = st.lists(spelled, min_size=1, max_size=12, unique=True)


@pytest.mark.slow
@files
@given(ids)
def test_ids_come_back_as_they_were_written(tmp_path: Path, written: list[str]) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n" + "".join(f"{user},{user},3\n" for user in written))
    ratings = Ratings.read(path)
    for index, found in ((ratings.users, ratings.user_ids), (ratings.items, ratings.item_ids)):
        assert [str(value) for value in found] == written
        assert [str(index.parse(text)) for text in written] == written
    # What is written and read again is the same.
    ratings.write(tmp_path / "again.csv")
    assert Ratings.read(tmp_path / "again.csv").user_ids.tolist() == ratings.user_ids.tolist()


@pytest.mark.slow
@files
@given(ids)
def test_ids_of_item_files_come_back_as_they_were_written(
    tmp_path: Path, written: list[str]
) -> None:
    path = tmp_path / "items.csv"
    path.write_text(
        "item,title,price\n" + "".join(f"{item},t{row},{row}\n" for row, item in enumerate(written))
    )
    table = read_item_table(path)
    assert {str(item): title for item, title in zip(table.ids, table.titles, strict=True)} == {
        item: f"t{row}" for row, item in enumerate(written)
    }


def test_item_files_as_spreadsheets_write_them(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_bytes(
        '\ufeffmovieId;title;genres;year\r\n 2;"One; two\u2028\r\n""three""";Drama| War ;1999.0\r\n'
        "\r\n10;007;;\r\n11;a\u2028b;;".encode()
    )
    table = read_item_table(path)
    assert table.ids.tolist() == [2, 10, 11]
    assert table.titles == ('One; two\u2028\r\n"three"', "007", "a\u2028b")
    assert [tuple(each) for each in table.genres] == [("Drama", "War"), (), ()]
    assert list(table.years) == [1999, None, None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("item,title\n", "needs a header"),
        ("item\n1\n", "needs a header"),
        ("item,title\n1,a,b\n", "not a table"),
        ("item,item\n1,a\n", "not a table"),
        ("item,title\n1,\udcff\n", "not a table"),
        ("item,title\n1,a\n 1 ,b\n", "listed twice"),
        ("item,title\n1,a\n,b\n", "row 2: the id is missing"),
        ("item,year\n1,soon\n", "no year"),
        ("item,year\n1,inf\n", "no year"),
    ],
)
def test_item_files_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "items.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(RatingsError, match=words):
        read_item_table(path)


def test_ids_of_a_parquet_file_have_its_type(tmp_path: Path) -> None:
    path = tmp_path / "items.parquet"
    pl.DataFrame({"item": ["7", "8"], "title": ["a", None], "year": [1990, None]}).write_parquet(
        path
    )
    table = read_item_table(path)
    assert table.ids.tolist() == ["7", "8"]
    assert (table.titles, list(table.years)) == (("a", ""), [1990, None])


def test_zeros_after_the_rows_that_are_looked_at_first(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    rows = [f"{user},{user},4" for user in range(1, 3000)] + ["0001,1,3", "0000000011,2,5"]
    path.write_text("user,item,rating\n" + "\n".join(rows))
    ratings = Ratings.read(path)
    assert ratings.user_ids[-2:].tolist() == ["0001", "0000000011"]
    assert ratings.n_users == 3001
    assert ratings.items.is_integer


@pytest.mark.parametrize("text", ["007", "+7", " 7", "7 ", "7_0", "-0", "٧"])
def test_other_spellings_are_other_ids(text: str) -> None:
    with pytest.raises(UnknownIdError, match="unknown id"):
        IdIndex([0, 7, 70]).parse(text)


def test_files_whose_ids_are_of_two_kinds(tmp_path: Path) -> None:
    train, test, items = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "items.csv"
    train.write_text("user,item,rating\n1,007,5\n2,7,4\n")
    test.write_text("user,item,rating\n01,7,5\n")
    first, second = read_split(train, test)
    assert (first.user_ids.tolist(), second.user_ids.tolist()) == (["1", "2"], ["01"])
    assert (first.item_ids.tolist(), second.item_ids.tolist()) == (["007", "7"], ["7"])
    items.write_text("item,title\n7,seven\n8,eight\n")
    listed = restrict_to_file(first, items)
    assert (listed.item_ids.tolist(), listed.items.ids.tolist()) == (["7"], ["7", "8"])
    assert listed.item_table is not None
    assert listed.item_table.title("8") == "eight"
    items.write_text("item,year\n7,1970\n8,1980\n")
    assert ItemFeatures.read(items, first.items).matrix[:, 0].tolist() == [0.0, -2.5]


triples = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 5), st.integers(0, 6)),
    min_size=1,
    max_size=40,
)


def table(rows: list[tuple[int, int, int, int]], **options: object) -> Ratings:
    users, items, values, times = (list(column) for column in zip(*rows, strict=True))
    return Ratings.from_arrays(users, items, values, timestamps=times, **options)  # type: ignore[arg-type]


@given(triples)
def test_duplicates(rows: list[tuple[int, int, int, int]]) -> None:
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for user, item, value, time in rows:
        groups.setdefault((user, item), []).append((time, value))
    by_time = {
        pair: sorted(given, key=lambda rating: rating[0]) for pair, given in groups.items()
    }  # stable
    expected = {
        "first": {pair: given[0][1] for pair, given in by_time.items()},
        "last": {pair: given[-1][1] for pair, given in by_time.items()},
        "max": {pair: max(value for _, value in given) for pair, given in groups.items()},
        "mean": {
            pair: float(np.mean([value for _, value in given])) for pair, given in groups.items()
        },
    }
    for how, wanted in expected.items():
        ratings = table(rows, duplicates=how)
        pairs = zip(ratings.user_ids.tolist(), ratings.item_ids.tolist(), strict=True)
        assert dict(zip(pairs, ratings.values.tolist(), strict=True)) == pytest.approx(wanted)
    if len(groups) < len(rows):
        with pytest.raises(RatingsError, match='duplicates="last"'):
            table(rows)


def test_rows_of_bad_ratings_are_counted_before_duplicates_go() -> None:
    with pytest.raises(RatingsError, match="row 3: off the scale"):
        Ratings.from_arrays([1, 1, 1], [1, 1, 2], [3, 4, 9], duplicates="last")
    with pytest.raises(ConfigError, match="error, last, first, last-row, first-row, mean, max"):
        Ratings.from_arrays([1], [1], [3], duplicates="any")  # type: ignore[arg-type]


def test_the_order_of_rows_counts_if_told() -> None:
    rows = [1, 2, 1, 1], [1, 1, 1, 1], [1, 5, 4, 3]
    for how, value in (("first-row", 1), ("last-row", 3)):
        ratings = Ratings.from_arrays(*rows, duplicates=how, timestamps=[9, 9, 20, 5])  # type: ignore[arg-type]
        assert dict(zip(ratings.user_ids.tolist(), ratings.values.tolist(), strict=True)) == {
            1: value,
            2: 5,
        }


def test_last_needs_times_unless_rows_are_said_to_count() -> None:
    """The column of times is called otherwise: the older rating must not win by its row."""
    seen = pd.DataFrame({"user": [1, 1], "item": [7, 7], "rating": [5, 2], "when": [200, 100]})
    with (
        pytest.warns(UserWarning, match=r"columns used: user, item, rating; not used: when; say"),
        pytest.raises(RatingsError, match=r"no times .*\"timestamp\".*duplicates=\"last-row\""),
    ):
        Ratings.of(seen, duplicates="last")
    named = Ratings.of(seen, duplicates="last", columns={"timestamp": "when"})
    assert named.values.tolist() == [5]
    with pytest.warns(UserWarning, match="not used: when"):
        assert Ratings.of(seen, duplicates="last-row").values.tolist() == [2]
    for how, value in (("mean", 3.5), ("max", 5)):
        with pytest.warns(UserWarning, match="not used: when"):
            assert Ratings.of(seen, duplicates=how).values.tolist() == [value]  # type: ignore[arg-type]
    # Where nothing is twice there is nothing to decide.
    assert len(Ratings.from_arrays([1, 2], [1, 1], [3, 4], duplicates="last")) == 2
    clicks = pd.DataFrame({"user": [1, 1], "item": [7, 7]})
    assert len(Ratings.of(clicks, implicit=True, duplicates="last")) == 1


MISSING = {
    "user": [1, None, 3, 4, 5],
    "item": ["a", "a", None, "b", "c"],
    "rating": [5.0, 4.0, 3.0, None, 2.0],
    "timestamp": [10, 11, 12, 13, 14],
}


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table, "csv", "parquet"])
def test_rows_with_something_missing_are_counted_and_dropped_if_told(
    kind: Any, tmp_path: Path
) -> None:
    if isinstance(kind, str):
        data: Any = tmp_path / f"gaps.{kind}"
        frame = pl.DataFrame(MISSING)
        frame.write_csv(data) if kind == "csv" else frame.write_parquet(data)
    else:
        data = kind(MISSING)
    with pytest.raises(
        RatingsError,
        match=r"column 'user', row 2: missing \(1 such rows; column 'item': 1; column 'rating': 1\)"
        r".*missing=\"drop\"",
    ):
        Ratings.of(data)
    with pytest.warns(
        UserWarning, match="3 rows are left out.*: user in 1, item in 1, rating in 1"
    ):
        ratings = Ratings.of(data, missing="drop")
    assert ratings.user_ids.tolist() == [1, 5]
    assert ratings.item_ids.tolist() == ["a", "c"]
    assert ratings.values.tolist() == [5, 2]
    assert ratings.timestamps is not None
    assert ratings.timestamps.tolist() == [10, 14]


def test_what_programs_write_for_nothing_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("user,item,rating\n1,a,5\n2,NA,NA\n3,b, \n  ,b,4\n4,c,nan\n5,NA,3\n")
    with pytest.warns(UserWarning, match="4 rows are left out.*: user in 1, rating in 3"):
        ratings = Ratings.read(path, missing="drop")
    assert ratings.item_ids.tolist() == ["a", "NA"]  # an item may be called so
    path.write_text("user,item,rating\n1,a,good\n")
    with pytest.raises(RatingsError, match="row 1: text, not a number"):
        Ratings.read(path, missing="drop")
    path.write_text("user,item,rating\n1,a,\n")
    with pytest.raises(RatingsError, match="in every row something is missing"):
        Ratings.read(path, missing="drop")
    with pytest.raises(ConfigError, match="error or drop, not 'fill'"):
        Ratings.read(path, missing="fill")  # type: ignore[arg-type]


def check_partition(whole: Ratings, train: Ratings, test: Ratings) -> None:
    def rows(ratings: Ratings) -> list[tuple[int, int]]:
        return list(zip(ratings.user_codes.tolist(), ratings.item_codes.tolist(), strict=True))

    assert sorted(rows(train) + rows(test)) == sorted(rows(whole))
    assert train.users is whole.users
    assert test.items is whole.items


@given(triples, st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.integers(1, 3))
def test_splits_part_and_no_user_learns_from_the_future(
    rows: list[tuple[int, int, int, int]], fraction: float, per_user: int
) -> None:
    whole = table(rows, duplicates="last")
    for train, test in (
        whole.hold_out_last(per_user),
        whole.split_by_time(fraction, per_user=True),
    ):
        check_partition(whole, train, test)
        assert set(train.user_codes) == set(
            whole.user_codes
        )  # somebody without a past cannot be recommended to
        for user in set(test.user_codes.tolist()):
            assert max(train.timestamps[train.user_codes == user]) <= min(
                test.timestamps[test.user_codes == user]
            )
    last = whole.hold_out_last(per_user)[1].user_counts()
    assert last.tolist() == np.clip(whole.user_counts() - 1, 0, per_user).tolist()
    for cut in (whole.split, whole.split_by_time):
        try:
            train, test = cut(fraction)
        except RatingsError as error:
            assert "empty" in str(error) or "one second" in str(error)  # noqa: PT017
            continue
        check_partition(whole, train, test)
        assert len(test) >= round(fraction * len(whole) - 0.01)
        if cut == whole.split_by_time:
            assert train.timestamps.max() < test.timestamps.min()


@given(triples, st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.integers(1, 3))
def test_of_one_second_the_later_rows_are_held_out(
    rows: list[tuple[int, int, int, int]], fraction: float, per_user: int
) -> None:
    whole = table([(user, item, value, 7) for user, item, value, _ in rows], duplicates="last")
    for train, test in (
        whole.hold_out_last(per_user),
        whole.split_by_time(fraction, per_user=True),
    ):
        check_partition(whole, train, test)
        for user in range(whole.n_users):
            own, first = (
                part.item_codes[part.user_codes == user].tolist() for part in (whole, train)
            )
            assert own[: len(first)] == first
    with pytest.raises(RatingsError, match=r"one second|empty"):
        whole.split_by_time(fraction)


@given(triples, st.integers(1, 4))
def test_the_core_is_the_largest_one(rows: list[tuple[int, int, int, int]], k: int) -> None:
    whole = table(rows, duplicates="last")
    pairs = set(zip(whole.user_ids.tolist(), whole.item_ids.tolist(), strict=True))
    while True:  # take away a user or an item with too few, as long as there are any
        users, items = [user for user, _ in pairs], [item for _, item in pairs]
        fewer = {
            (user, item)
            for user, item in pairs
            if users.count(user) >= k and items.count(item) >= k
        }
        if fewer == pairs:
            break
        pairs = fewer
    if not pairs:
        with pytest.raises(RatingsError, match="no core"):
            whole.k_core(k)
        return
    core = whole.k_core(k)
    assert set(zip(core.user_ids.tolist(), core.item_ids.tolist(), strict=True)) == pairs
    assert min(core.user_counts().min(), core.item_counts().min()) >= k


def test_time_is_needed_to_split_by_it() -> None:
    ratings = Ratings.from_arrays([1] * 9, range(9), [3] * 9)
    for cut in (
        ratings.hold_out_last,
        ratings.split_by_time,
        lambda: ratings.split_by_time(per_user=True),
    ):
        with pytest.raises(RatingsError, match=r"no times.*columns=\{\"timestamp\": \.\.\.\}"):
            cut()
    for fraction in (0, 1, -0.5, True, "half"):
        with pytest.raises(ConfigError, match="above 0 and below 1"):
            ratings.split(fraction)  # type: ignore[arg-type]


def test_common_names_are_guessed_with_a_word() -> None:
    books = pd.DataFrame(
        {"User-ID": ["a"], "ISBN": ["0000000011"], "Book-Rating": [5], "Date": ["2020-01-02"]}
    )
    with pytest.warns(UserWarning, match="item = ISBN, rating = Book-Rating, timestamp = Date"):
        ratings = Ratings.of(books)
    assert ratings.item_ids.tolist() == ["0000000011"]
    assert ratings.timestamps is not None
    assert ratings.timestamps.tolist() == [1577923200]
    heard: list[str] = []
    with message_language("python", heard.append):
        assert Ratings.of(books.assign(Date="some day")).timestamps is None
    assert "'Date' holds no times" in heard[1]
    with pytest.raises(RatingsError, match=r"could be 'item' \(columns ISBN, book\)"):
        Ratings.of(books.assign(book=1))


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
    assert "not used: plays" not in "".join(heard), "an error says it"
    assert len(heard) == 1


def test_implicit_files(tmp_path: Path) -> None:
    path = tmp_path / "clicks.tsv"
    for content in (
        "1\t2\n1\t2\n3\t2\n",
        "user\titem\n1\t2\n1\t2\n3\t2\n",
        "user\titem\tcount\n1\t2\t9\n3\t2\t1\n",
    ):
        path.write_text(content)
        with message_language("python", lambda text: None):  # the column of counts is not used
            ratings = Ratings.read(path, implicit=True)
        assert (ratings.implicit, ratings.user_ids.tolist(), ratings.values.tolist()) == (
            True,
            [1, 3],
            [1, 1],
        )
    with pytest.raises(RatingsError, match=r"implicit=True"):
        Ratings.read(path)
    with (
        pytest.warns(UserWarning, match="not used: count"),
        pytest.raises(RatingsError, match="no rating scale"),
    ):
        Ratings.read(path, implicit=True, scale=(1, 5))
    ratings.write(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == "user,item\n1,2\n3,2\n"
    with pytest.warns(UserWarning, match="columns used: user, item; not used: count"):
        train, test = read_split(path, path, implicit=True)
    assert train.implicit
    assert test.implicit
    assert train.take(np.array([True, False])).implicit


def test_a_matrix_with_an_entry_twice() -> None:
    twice = sparse.coo_matrix(([3.0, 4.0], ([0, 0], [1, 1])))
    with pytest.raises(RatingsError, match="duplicates="):
        Ratings.of(twice)
    assert Ratings.of(twice, duplicates="mean").values.tolist() == [3.5]
    with pytest.raises(ConfigError, match="rows are users"):
        Ratings.of(twice, columns={"user": "x"})


@pytest.fixture(scope="module")
def ml_100k() -> Ratings:
    from hdpmf.common.data import find_dataset, load_dataset

    if find_dataset("ml-100k") is None:
        pytest.skip("ml-100k is not here")
    return load_dataset("ml-100k")


def test_time_splits_of_real_ratings(ml_100k: Ratings) -> None:
    train, test = ml_100k.split_by_time(0.2)
    check_partition(ml_100k, train, test)
    assert train.timestamps is not None
    assert test.timestamps is not None
    assert train.timestamps.max() < test.timestamps.min()
    assert 0 <= len(test) - 20_000 < 50  # as many as share the second of the cut
    train, test = ml_100k.hold_out_last()
    assert (len(train), len(test)) == (100_000 - 943, 943)
    train, test = ml_100k.split_by_time(0.2, per_user=True)
    assert len(test) == np.floor(ml_100k.user_counts() * 0.2 + 0.5).sum()
    core = ml_100k.k_core(20)
    assert (core.n_users, core.n_items, len(core)) == (917, 937, 94_443)
    assert all(
        earlier <= later
        for earlier, later in pairwise([len(ml_100k.k_core(k)) for k in (30, 10, 1)])
    )


def test_duplicates_are_found_in_sparse_tables() -> None:
    users = list(range(200))
    assert len(Ratings.from_arrays(users, users, [3] * 200)) == 200
    with pytest.raises(RatingsError, match=r"row 201 rates .*\(1 such rows\)"):
        Ratings.from_arrays([*users, 150], [*users, 150], [3] * 201)
