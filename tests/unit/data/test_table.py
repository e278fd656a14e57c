from __future__ import annotations

import copy
import pickle
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import IdIndex, Ratings, RatingScale
from hdpmf.errors import ConfigError, HdpmfError, RatingsError


def small() -> Ratings:
    return Ratings.from_arrays([7, 7, 3], ["b", "a", "a"], [5, 1.5, 3], timestamps=[10, 20, 30])


def test_codes_point_at_sorted_ids() -> None:
    ratings = small()
    assert ratings.users.ids.tolist() == [3, 7]
    assert ratings.items.ids.tolist() == ["a", "b"]
    assert ratings.user_codes.tolist() == [1, 1, 0]
    assert ratings.item_codes.tolist() == [1, 0, 0]
    assert ratings.user_ids.tolist() == [7, 7, 3]
    assert ratings.item_ids.tolist() == ["b", "a", "a"]
    assert (ratings.user_codes.dtype, ratings.values.dtype) == (np.int32, np.float32)
    assert ratings.user_counts().tolist() == [1, 2]
    assert ratings.item_counts().tolist() == [2, 1]
    assert (len(ratings), ratings.n_users, ratings.n_items, ratings.density) == (3, 2, 2, 0.75)


@pytest.mark.parametrize("column", ["user_codes", "item_codes", "values", "timestamps"])
def test_nothing_can_be_changed(column: str) -> None:
    ratings = small()
    with pytest.raises(ValueError, match="read-only"):
        getattr(ratings, column)[0] = 1
    with pytest.raises(AttributeError):
        setattr(ratings, column, None)
    for again in (
        pickle.loads(pickle.dumps(ratings)),
        copy.deepcopy(ratings),
        ratings.take(np.array([0])),
    ):
        assert not getattr(again, column).flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        ratings.users.ids[0] = 9


def test_the_callers_arrays_stay_theirs() -> None:
    users, items, values = np.array([1, 2]), np.array([1, 2]), np.array([1, 2], dtype=np.float32)
    ratings = Ratings.from_arrays(users, items, values)
    values[0] = users[0] = 5
    assert ratings.values.tolist() == [1, 2]
    assert ratings.user_ids.tolist() == [1, 2]


def test_repr_shows_neither_values_nor_ids() -> None:
    ratings = Ratings.from_arrays(["secret-user"], ["secret-item"], [4.25])
    shown = repr(ratings) + repr(ratings.users) + str(ratings)
    assert "secret" not in shown
    assert "4.25" not in shown


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ([1, float("nan"), 3], "row 2: not a finite number"),
        ([1, 2, float("inf")], "row 3: not a finite number"),
        ([1, 2, 1e300], "row 3: not a finite number"),
        ([1, None, 3], "row 2: not a finite number"),
        ([1, 4.7531, 5.7531], "row 3: off the scale 1..5.*scale="),
        ([-4.7531, 2, 3], "row 1: off the scale"),
        ([1, 2, "many"], "not a number"),
        ([1, 2], "'user' has 3 rows but column 'rating' has 2"),
        ([[1, 2, 3]], "one dimension"),
    ],
)
def test_bad_ratings_are_refused_without_showing_them(values: list[object], where: str) -> None:
    with pytest.raises(RatingsError, match=where) as caught:
        Ratings.from_arrays([1, 2, 3], [1, 2, 3], values, name="mine")
    assert str(caught.value).startswith("mine: ")
    assert "7531" not in str(caught.value)


@pytest.mark.parametrize(
    ("users", "where"),
    [
        (["a", None], "column 'user', row 2: the id is missing"),
        (["", "b"], "column 'user', row 1: the id is missing"),
        ([1.0, float("nan")], "column 'user', row 2: the id is missing"),
        ([1, float("nan")], "column 'user', row 2: the id is missing"),
        ([1.0, 2.5], "row 2.*not float|row 2.*not a fraction"),
        ([1, "b"], "mixes integers and strings"),
        ([True, False], "row 1: an id must be"),
        ([(1,), (2,)], "row 1: an id must be"),
        (["a", "b" * 300], "row 2: the id is longer than 256"),
        (["a\0", "a"], "row 1: .*NUL"),
        ([2**70, 1], "beyond 64 bits"),
    ],
)
def test_bad_ids_are_refused(users: list[object], where: str) -> None:
    with pytest.raises(RatingsError, match=where):
        Ratings.from_arrays(users, [1, 2], [1, 2])


@pytest.mark.parametrize("dtype", [np.uint64, np.complex128, "datetime64[s]", "S3", bool])
def test_ids_of_strange_types_are_refused(dtype: object) -> None:
    with pytest.raises(RatingsError, match="column 'item'"):
        Ratings.from_arrays([1], np.array([2**63], dtype="u8").astype(dtype), [1])  # type: ignore[call-overload]


def test_duplicates_are_counted_and_located() -> None:
    with pytest.raises(RatingsError, match=r"row 3 rates an item .* \(2 such rows\)"):
        Ratings.from_arrays([1, 2, 1, 1], [1, 1, 1, 1], [1, 2, 3, 4])


def test_empty_is_refused() -> None:
    with pytest.raises(RatingsError, match="no ratings"):
        Ratings.from_arrays([], [], [])


def test_the_constructor_checks_too() -> None:
    index = IdIndex([1, 2])
    good = np.array([0, 1], np.int32)
    ones = np.ones(2, np.float32)
    Ratings(index, index, good, good, ones)
    for codes, values, message in (
        (good + np.int32(1), ones, "positions in its index"),
        (good - np.int32(1), ones, "positions in its index"),
        (good.astype(np.int64), ones, "int32"),
        (good, ones.astype(float), "float32"),
        (good[:1], ones, "rows"),
        (good, ones * np.float32(9), "off the scale"),
    ):
        with pytest.raises(RatingsError, match=message):
            Ratings(index, index, codes, good, values)  # type: ignore[arg-type]


def test_scale() -> None:
    scale = RatingScale(1, 5)
    assert (scale.width, scale.middle, scale.clip(7.0), str(scale)) == (4, 3, 5, "1..5")
    assert scale.clip(np.array([0.0, 2.0])).tolist() == [1, 2]
    assert RatingScale.of((0, 10)) == RatingScale(0, 10)
    assert RatingScale.of(None) == scale
    assert RatingScale.of(scale) is scale
    ratings = Ratings.from_arrays([1, 2], [1, 1], [0.7, 0.1], scale=(0.1, 0.7))
    assert ratings.scale == RatingScale(0.1, 0.7)
    with pytest.raises(RatingsError, match="between the steps"):
        Ratings.from_arrays([1], [1], [3.5], scale=RatingScale(1, 5, 1))


@pytest.mark.parametrize(
    "scale",
    [
        (5, 1),
        (1, 1),
        (1, float("nan")),
        (0, float("inf")),
        (1, 5, 0),
        (1, 5, 9),
        "15",
        (1,),
        ("a", "b"),
        5,
    ],
)
def test_bad_scales_are_refused(scale: object) -> None:
    with pytest.raises(RatingsError, match="scale"):
        RatingScale.of(scale)  # type: ignore[arg-type]


def test_take_keeps_indexes_and_compact_shrinks_them() -> None:
    ratings = small()
    part = ratings.take(np.array([False, True, False]))
    assert part.users is ratings.users
    assert part.user_codes.tolist() == [1]
    assert part.timestamps is not None
    assert part.timestamps.tolist() == [20]
    shrunk = part.compact()
    assert (shrunk.n_users, shrunk.n_items) == (1, 1)
    assert (shrunk.user_ids.tolist(), shrunk.item_ids.tolist()) == ([7], ["a"])
    assert len(ratings.take(np.zeros(3, dtype=bool))) == 0
    for rows in (np.array([True]), np.array([9]), np.array([0.5]), np.array([0, 0])):
        with pytest.raises(RatingsError):
            ratings.take(rows)


def test_shared_indexes_keep_codes_comparable() -> None:
    ratings = small()
    more = Ratings.from_arrays(
        [3], ["b"], [2], users_index=ratings.users, items_index=ratings.items
    )
    assert (more.user_codes.tolist(), more.item_codes.tolist()) == ([0], [1])
    with pytest.raises(RatingsError, match="column 'user', row 1: this id is not in the index"):
        Ratings.from_arrays([4], ["b"], [2], users_index=ratings.users)


def test_min_ratings() -> None:
    kept = small().min_ratings(2)
    assert (kept.user_ids.tolist(), kept.n_items) == ([7, 7], 2)
    with pytest.raises(RatingsError, match="no user has 9"):
        small().min_ratings(9)


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize("values", [[5, 1.5, 3.7], [5, 1, 3]])
def test_what_is_written_reads_back(tmp_path: Path, ending: str, values: list[float]) -> None:
    path = tmp_path / f"out.{ending}"
    ratings = Ratings.from_arrays([7, 7, 3], ['b,"', "a\tx", 'a "q"'], values, timestamps=[1, 2, 3])
    if ending == "tsv":
        ratings = Ratings.from_arrays([7, 7, 3], ["b", "ä", "a"], values, timestamps=[1, 2, 3])
    ratings.write(path)
    again = Ratings.read(path)
    assert again.users == ratings.users
    assert again.items == ratings.items
    assert again.timestamps is not None
    for column in ("user_codes", "item_codes", "values", "timestamps"):
        assert getattr(again, column).tolist() == getattr(ratings, column).tolist()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_writing_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.csv"):
        small().write(tmp_path / "out.xlsx")
    with pytest.raises(HdpmfError, match="could not write"):
        small().write(tmp_path / "no such folder" / "out.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("times", [["x"], [float("nan")], np.array(["NaT"], dtype="datetime64[s]")])
def test_bad_times_are_refused(times: object) -> None:
    with pytest.raises(RatingsError, match="timestamp"):
        Ratings.from_arrays([1], [1], [1], timestamps=times)


def test_rows_of_bad_ratings_are_counted_before_duplicates_go() -> None:
    with pytest.raises(RatingsError, match="row 3: off the scale"):
        Ratings.from_arrays([1, 1, 1], [1, 1, 2], [3, 4, 9], duplicates="last")


def test_duplicates_are_found_in_sparse_tables() -> None:
    users = list(range(200))
    assert len(Ratings.from_arrays(users, users, [3] * 200)) == 200
    with pytest.raises(RatingsError, match=r"row 201 rates .*\(1 such rows\)"):
        Ratings.from_arrays([*users, 150], [*users, 150], [3] * 201)


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
        "last": {pair: given[-1][1] for pair, given in by_time.items()},
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
