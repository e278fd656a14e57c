"""Lists of items from files and frames: ids, titles, genres, years, and columns for features."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hdpmf.common.data.columns import parse_ids
from hdpmf.common.data.frames import polars_frame
from hdpmf.common.data.ids import factorise
from hdpmf.common.data.items import ItemTable
from hdpmf.common.data.parquet import is_parquet, read_batches
from hdpmf.common.data.readers import read_bytes
from hdpmf.common.data.table import Ratings
from hdpmf.errors import RatingsError

if TYPE_CHECKING:
    import polars as pl

TITLES = ("title", "name")
_GENRES = ("genres", "genre", "categories")
_ID_NAMES = ("item", "itemid", "movieid", "bookid", "businessid", "id")


def id_column(names: Sequence[str]) -> str:
    """The column that holds item ids: by its name, or the first."""
    plain = [name.lower().replace("_", "") for name in names]
    return next((names[plain.index(name)] for name in _ID_NAMES if name in plain), names[0])


def read_frame(
    path: str | os.PathLike[str],
    ids: Callable[[Sequence[str]], Sequence[str]] = lambda names: [id_column(names)],
    what: str = "items",
) -> pl.DataFrame:
    """Read a CSV, TSV or Parquet file, or raise RatingsError; ``ids`` picks the id columns."""
    import polars as pl

    label = os.path.basename(os.fspath(path))
    try:
        if is_parquet(path):
            frame = pl.concat(read_batches(path, label))
        else:
            data = read_bytes(path)
            first = data.split(b"\n", 1)[0]
            mark = max("\t,;", key=lambda sign: first.count(sign.encode()))
            # Ids as they are written: 0000000011 is not 11.
            written = dict.fromkeys(
                ids(pl.read_csv(data, separator=mark, n_rows=0).columns), pl.String
            )
            frame = pl.read_csv(
                data, separator=mark, infer_schema_length=10_000, schema_overrides=written
            )
            frame = frame.with_columns(parse_ids(frame[name]) for name in written)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise _no_table(label, what) from error
    if frame.height == 0 or frame.width < 2:
        raise _too_small(label, what)
    return frame


def restrict_to_file(ratings: Ratings, path: str | os.PathLike[str]) -> Ratings:
    """Return the ratings of the items that a file lists (`Ratings.over`)."""
    table = read_item_table(path)
    if table.index.is_integer != ratings.items.is_integer:
        ratings, table = ratings.with_text_ids(items=True), table.with_text_ids()
    return ratings.over(table)


def read_item_table(path: str | os.PathLike[str]) -> ItemTable:
    """Items from a CSV, TSV or Parquet file with a header.

    The ids are in ``item`` (or ``movieId``, ``id``, ..., else the first column); ``title``,
    ``genres`` (separated by ``|``) and ``year`` are used where they are there, other columns are
    not.

    Raises:
        RatingsError: It is no such file, or an item is listed twice.
    """
    label = os.path.basename(os.fspath(path))
    if not is_parquet(path):
        return _table(*_columns_of(read_bytes(path), label), label)
    if find_spec("polars") is None:
        raise RatingsError(f"{label}: this is a Parquet file; save the table as CSV")
    return _table(*_texts(read_frame(path), label), label)


def item_table_of(data: Any) -> ItemTable:
    """Make `ItemTable.of` a frame or a file, with all its columns."""
    if isinstance(data, (str, os.PathLike)):
        frame, label = read_frame(data), os.path.basename(os.fspath(data))
    else:
        frame, label = _items_frame(data), "items"
    return _table(*_texts(frame, label), label).with_frame(frame)


def _items_frame(data: Any) -> pl.DataFrame:
    """Return a data frame of any kind as one of polars, with lists and categories as text."""
    import polars as pl

    frame = polars_frame(data, "items", "give one, or a file")
    if frame.height == 0 or frame.width < 2:
        raise _too_small("items")
    frame = frame.with_columns(pl.col(pl.Float32, pl.Float64).fill_nan(None))
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    return frame.with_columns(
        pl.col(lists).cast(pl.List(pl.String)).list.join("|"),
        pl.col(pl.Categorical, pl.Enum).cast(pl.String),
    )


def _table(
    written: Mapping[str, Sequence[str]], listed: pl.Series | Sequence[int | str], label: str
) -> ItemTable:
    """Titles, genres and years from columns of text, and the ids beside them."""
    id_name = id_column(list(written))
    index, codes = factorise(listed, id_name)
    if len(index) < len(codes):
        raise RatingsError(f"{label}: an item is listed twice; keep one row per item")
    plain = {name.lower(): name for name in written if name != id_name}

    def column(names: tuple[str, ...]) -> Sequence[str]:
        return next((written[plain[name]] for name in names if name in plain), [""] * len(codes))

    try:
        years = [_year(text) for text in column(("year",))]
    except (ValueError, OverflowError):
        raise RatingsError(f"{label}: the column 'year' has something that is no year") from None
    return ItemTable.build(
        index.ids[codes],
        column(TITLES),
        [[word.strip() for word in text.split("|") if word.strip()] for text in column(_GENRES)],
        years,
    )


def _columns_of(data: bytes, label: str) -> tuple[dict[str, list[str]], list[int] | list[str]]:
    """The columns of a text file, as they are written, and the ids: 0000000011 is not 11.

    Python's own reader is quick enough for the largest catalogue, and a device has no other.
    """
    try:
        text = data.decode("utf-8-sig")
        mark = max("\t,;", key=text.partition("\n")[0].count)
        lines = io.StringIO(text, newline="")
        names, *rows = (row for row in csv.reader(lines, delimiter=mark) if row)
        if len(set(names)) < len(names) or any(len(row) > len(names) for row in rows):
            raise ValueError("more fields than names")
    except (UnicodeDecodeError, ValueError, csv.Error) as error:
        raise _no_table(label) from error
    if not rows or len(names) < 2:
        raise _too_small(label)
    filled = (row + [""] * (len(names) - len(row)) for row in rows)  # what is missing at the end
    columns = map(list, zip(*filled, strict=True))
    written = dict(zip(names, columns, strict=True))
    return written, _ids(written[id_column(names)])


def _texts(frame: pl.DataFrame, label: str) -> tuple[dict[str, list[str]], pl.Series]:
    """The columns of a frame as text, and the ids, which have a type there."""
    import polars as pl

    try:
        texts = frame.with_columns(pl.all().cast(pl.String).fill_null(""))
    except pl.exceptions.PolarsError as error:
        raise _no_table(label) from error
    return {name: texts[name].to_list() for name in texts.columns}, frame[id_column(frame.columns)]


_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_INTEGERS = range(-(2**63), 2**63)


def _ids(written: Sequence[str]) -> list[int] | list[str]:
    """Integers if all ids are written as integers are, else texts (as ``columns.parse_ids``)."""
    texts = [text.strip() for text in written]
    if all(_INTEGER.fullmatch(text) and int(text) in _INTEGERS for text in texts):
        return [int(text) for text in texts]
    return texts


def _year(text: str) -> int | None:
    """The year in a field; spreadsheets write 1999 as 1999.0."""
    text = text.strip()
    if not text:
        return None
    return int(text) if _INTEGER.fullmatch(text) else int(float(text))


def _no_table(label: str, what: str = "items") -> RatingsError:
    return RatingsError(
        f"{label}: not a table of {what}; give CSV, TSV or Parquet with a header line"
    )


def _too_small(label: str, what: str = "items") -> RatingsError:
    return RatingsError(
        f"{label}: a table of {what} needs a header, a column of ids and at least one more column"
    )
