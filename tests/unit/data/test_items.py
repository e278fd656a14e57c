"""Lists of items: from files and frames, as facts, features and filters."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdpmf.common.data import IdIndex, ItemTable, Ratings
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.data.items import read_item_table
from hdpmf.errors import RatingsError

from .test_text_files import SPELLED


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(SPELLED, min_size=1, max_size=12, unique=True))
def test_ids_come_back_as_they_were_written(tmp_path: Path, written: list[str]) -> None:
    path = tmp_path / "items.csv"
    path.write_text(
        "item,title,price\n" + "".join(f"{item},t{row},{row}\n" for row, item in enumerate(written))
    )
    table = read_item_table(path)
    assert {str(item): title for item, title in zip(table.ids, table.titles, strict=True)} == {
        item: f"t{row}" for row, item in enumerate(written)
    }


def test_files_as_spreadsheets_write_them(tmp_path: Path) -> None:
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
def test_files_that_are_none(tmp_path: Path, text: str, words: str) -> None:
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


def test_ids_may_be_of_two_kinds(tmp_path: Path) -> None:
    ratings = Ratings.from_arrays([1, 2], ["007", "7"], [5, 4])
    items = tmp_path / "items.csv"
    items.write_text("item,year\n7,1970\n8,1980\n")
    assert ItemFeatures.read(items, ratings.items).matrix[:, 0].tolist() == [0.0, -2.5]


def test_features_of_columns() -> None:
    frame = pl.DataFrame(
        {
            "item": [1, 2, 3, 4],
            "length": [1.0, 2.0, None, 3.0],
            "kind": ["a|b", "b", "unknown", "a"],
            "note": ["w", "x", "y", "z"],
            "same": [1, 1, 1, 1],
        }
    )
    features = ItemFeatures.of_frame(frame, IdIndex([1, 2, 3, 4, 9]))
    assert features.names == ("number:length", "kind:a", "kind:b")
    assert features.matrix[:, 1].tolist() == [1, 0, 0, 1, 0]
    assert features.matrix[:, 0].tolist() == pytest.approx([-(1.5**0.5), 0, 0, 1.5**0.5, 0])
    assert features.left_out == ("note: 4 different words", "same: the same number everywhere")


def test_tables() -> None:
    table = ItemTable.build([2, 1], ["Two", "One"], [["Drama"], []], [None, 1999])
    assert table.ids.tolist() == [1, 2]
    assert (table.title(2), table.title(3), table.years) == ("Two", None, (1999, None))
    assert table.select([2, 9]).titles == ("Two",)
    assert len(table) == 2
    with pytest.raises(RatingsError, match="one title"):
        ItemTable.build([1], [], [], [])
    with pytest.raises(RatingsError, match="one title"):
        ItemTable(IdIndex([1]), (), (), ())
