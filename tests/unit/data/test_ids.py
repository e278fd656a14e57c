from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import IdIndex
from hdpmf.common.data.ids import factorise, merge
from hdpmf.errors import RatingsError, UnknownIdError

INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 50), min_size=1)
TEXTS = st.lists(
    st.text(
        st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=20
    ),
    min_size=1,
)


@given(INTEGERS | TEXTS)
def test_codes_lead_back_to_ids(values: list[int] | list[str]) -> None:
    index, codes = factorise(values)
    assert index.ids[codes].tolist() == values
    assert sorted(set(values)) == index.ids.tolist()
    assert index.find(values).tolist() == codes.tolist()
    assert index.find(np.array(values, dtype=index.ids.dtype)).tolist() == codes.tolist()
    again, same = factorise(pl.Series(values))
    assert again == index
    assert same.tolist() == codes.tolist()


@given(INTEGERS, st.lists(st.integers(-(2**64), 2**64)))
def test_find_tells_known_from_unknown(ids: list[int], asked: list[int]) -> None:
    index = IdIndex(sorted(set(ids)))
    expected = [index.ids.tolist().index(value) if value in ids else -1 for value in asked]
    assert index.find(asked).tolist() == expected


def test_types_count() -> None:
    numbers, texts = IdIndex([1, 2]), IdIndex(["1", "x"])
    assert numbers.find(["1", 1, "x"]).tolist() == [-1, 0, -1]
    assert texts.find(["1", 1, "x"]).tolist() == [0, -1, 1]
    assert texts.find([1, 2]).tolist() == [-1, -1]
    assert texts.find(np.array([1])).tolist() == [-1]
    assert numbers.find(np.array(["1"])).tolist() == [-1]
    assert numbers.find(np.array([2.0, 2.5])).tolist() == [1, -1]
    assert numbers.find(range(3)).tolist() == [-1, 0, 1]
    assert numbers.find([]).tolist() == []
    assert 2 in numbers
    assert "2" not in numbers
    assert numbers != texts
    assert numbers != "numbers"
    assert hash(numbers) == hash(IdIndex([2, 1]))


def test_sparse_and_dense_integers() -> None:
    sparse = IdIndex([-(2**62), 5, 2**62])
    assert sparse.find([5, 6, 2**62, 2**63 - 1, -(2**63)]).tolist() == [1, -1, 2, -1, -1]


def test_parse() -> None:
    assert IdIndex([10, 20]).parse("20") == 20
    assert IdIndex(["10", "x"]).parse("10") == "10"
    for index, text in (
        (IdIndex([10]), "11"),
        (IdIndex([10]), "ten"),
        (IdIndex(["a"]), "b"),
        (IdIndex([1]), "9" * 40),
    ):
        with pytest.raises(UnknownIdError, match="unknown id"):
            index.parse(text)


def test_strict_lookups() -> None:
    index = IdIndex(["a", "b"])
    assert (index.code("b"), index.codes(["b", "a"]).tolist()) == (1, [1, 0])
    with pytest.raises(UnknownIdError, match="unknown id 'c': none of the 2 string ids here"):
        index.codes(["a", "c"])


def test_repeated_ids_are_refused() -> None:
    with pytest.raises(RatingsError, match="twice"):
        IdIndex([1, 1])


def test_merge() -> None:
    first, second = IdIndex([1, 3]), IdIndex([2, 3])
    assert merge(first, second).ids.tolist() == [1, 2, 3]
    assert merge(first, IdIndex([1, 3])) is first
    with pytest.raises(RatingsError, match="integers in one table and strings in the other"):
        merge(first, IdIndex(["1"]))


@pytest.mark.parametrize(
    "values", [["a", None], ["a", ""], ["a", "b" * 300], ["a", "\0"], [1, None], [1.5, 2.0]]
)
def test_bad_series_are_located(values: list[object]) -> None:
    with pytest.raises(RatingsError, match=r"column 'user', row [12]:"):
        factorise(pl.Series(values), "user")


@pytest.mark.parametrize(
    "ids", [[5, 1, 3], [10**12, 1, 10**6], ["b", "a", "ß"]], ids=["dense", "sparse", "text"]
)
def test_ids_may_stay_in_the_order_in_which_they_are_given(ids: list[Any]) -> None:
    index = IdIndex(ids, as_given=True)
    assert index.ids.tolist() == ids
    assert index.find(ids).tolist() == [0, 1, 2]
    assert index.find([4 if isinstance(ids[0], int) else "c", ids[1]]).tolist() == [-1, 1]
    assert pickle.loads(pickle.dumps(index)) == index  # our own
    assert index != IdIndex(ids)
    with pytest.raises(RatingsError, match="twice"):
        IdIndex([*ids, ids[0]], as_given=True)
