"""Item features as numbers (genres, years, columns of a file), and item lists from files."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from hdpmf.common.data.ids import Id, IdIndex, factorise
from hdpmf.common.data.items import ItemTable
from hdpmf.common.data.readers import read_bytes
from hdpmf.common.data.table import Ratings
from hdpmf.errors import RatingsError, notify

if TYPE_CHECKING:
    import polars as pl


GENRE_RIDGE = 12.0

NUMBER_RIDGE = 15.0

NUMBER = "number:"
"""Names of features that are numbers begin with this."""

YEAR_RIDGES = {"year": 10.0, "year before 1980": 20.0, "year after 1990": 20.0}
"""The columns that a year becomes, and their ridges."""

_UNKNOWN_YEAR = 1995.0  # the column is 0 there

_SEQUEL = re.compile(r"\b(?:II|III|IV|V|VI|VII|VIII|[2-6])\b")

_FEWEST_SEQUELS = 10  # below that a column would be about single items

_MOST_VALUES = 50  # a column of words with more different ones is a title or a name, not a kind

_ID_NAMES = ("item", "itemid", "movieid", "bookid", "businessid", "id")


class NoFeaturesError(RatingsError):
    """No column of a table can be used as a feature of items.

    Attributes:
        has_titles: The table has titles, which lists can show.
    """

    has_titles: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ItemFeatures:
    """Public features, one row per item of a catalogue.

    Attributes:
        names: Of the columns; a prior finds its own by these.
        matrix: One row per item; all zero for an item that nothing is known of.
        ridges: How strongly each user's coefficient is held to zero, in ratings.
        source: Where they come from.
        left_out: Columns that could not be used, with the reason.
    """

    names: tuple[str, ...]
    matrix: np.ndarray = field(repr=False)
    ridges: np.ndarray = field(repr=False)
    source: str
    left_out: tuple[str, ...] = ()

    @classmethod
    def of_table(cls, table: ItemTable, items: IdIndex) -> ItemFeatures:
        """Genres, years and sequels of a data set's own item table."""
        rows = table.index.find(items.ids)
        known = np.flatnonzero(rows >= 0)
        names = sorted(
            {genre for genres in table.genres for genre in genres if genre.lower() != "unknown"}
        )
        position = {name: at for at, name in enumerate(names)}
        genres = np.zeros((len(items), len(names)))
        years = np.full(len(items), _UNKNOWN_YEAR)
        sequels = np.zeros(len(items))
        for item in known:
            sequels[item] = bool(_SEQUEL.search(table.titles[rows[item]]))
            for genre in table.genres[rows[item]]:
                if genre in position:
                    genres[item, position[genre]] = 1.0
            years[item] = table.years[rows[item]] or _UNKNOWN_YEAR
        columns = [
            _Columns([f"genre:{name}" for name in names], genres, np.full(len(names), GENRE_RIDGE))
        ]
        if any(year is not None for year in table.years):
            columns.append(_years(years))
        if sequels.sum() >= _FEWEST_SEQUELS:
            columns.append(_Columns(["title:sequel"], sequels[:, None], np.array([GENRE_RIDGE])))
        return _joined(columns, "item table")

    @classmethod
    def read(cls, path: str | os.PathLike[str], items: IdIndex) -> ItemFeatures:
        """Read columns of a file with a header; item ids are in ``item`` or the first column.

        Numbers are standardised. Words become one column per word, several words in one field are
        separated by ``|``. ``genres`` and ``year`` mean what they mean in an item table. A column
        of words with more than 50 different ones is left out.
        """
        return cls.of_frame(read_frame(path), items, os.path.basename(os.fspath(path)))

    @classmethod
    def of_frame(cls, frame: pl.DataFrame, items: IdIndex, label: str = "items") -> ItemFeatures:
        """Make features of a frame's columns, as `read` does of a file's.

        Raises:
            RatingsError: None of its items is known, one has two rows, or no column can be used.
        """
        id_name = id_column(frame.columns)
        listed = frame[id_name].to_list()
        if not items.is_integer:
            listed = [None if item is None else str(item) for item in listed]
        codes = items.find(listed)
        known = np.flatnonzero(codes >= 0)
        if len(known) == 0:
            raise RatingsError(
                f"{label}: none of its items is in the ratings; is {id_name!r} the column of "
                "item ids?"
            )
        if len(np.unique(codes[known])) < len(known):
            raise RatingsError(f"{label}: an item has more than one row; keep one row per item")
        columns, left_out = [], []
        for name in frame.columns:
            if name == id_name:
                continue
            made = _columns(name, frame[name], codes, known, len(items))
            if isinstance(made, str):
                left_out.append(f"{name}: {made}")
            else:
                columns.append(made)
        if not columns:
            error = NoFeaturesError(
                f"{label}: no column can be used as a feature ({'; '.join(left_out) or 'only ids'})"
            )
            error.has_titles = any(name.lower() in _TITLES for name in frame.columns)
            raise error
        return _joined(columns, label, tuple(left_out))

    def with_more_items(
        self,
        table: ItemTable,
        ids: np.ndarray,
        earlier: pl.DataFrame | None = None,
        earlier_ids: Iterable[Id] = (),
    ) -> ItemFeatures:
        """Return these features with rows for further items, all 0 where nothing is known.

        Args:
            table: Facts about the further items.
            ids: Their ids, in order.
            earlier: The frame that these features were made of. Numbers are standardised by it;
                without its columns those of further items count as average, with a warning.
            earlier_ids: The items whose rows there were used.
        """
        trained = {str(item) for item in earlier_ids}
        more = np.zeros((len(ids), len(self.names)))
        rows = table.index.find(ids)
        known = np.flatnonzero(rows >= 0)
        years = np.array([table.years[row] or _UNKNOWN_YEAR for row in rows[known]])
        dated = dict(zip(YEAR_RIDGES, _years(years).matrix.T, strict=True))
        unscaled = []
        for at, name in enumerate(self.names):
            kind, _, word = name.partition(":")
            if name in YEAR_RIDGES:
                more[known, at] = dated[name]
            elif name == "title:sequel":
                more[known, at] = [bool(_SEQUEL.search(table.titles[row])) for row in rows[known]]
            elif kind == "genre":
                more[known, at] = [word in table.genres[row] for row in rows[known]]
            elif table.frame is not None and not name.startswith(NUMBER):
                more[:, at] = _having(table.frame, kind, word, ids)
            elif table.frame is not None and word in table.frame.columns:
                scaled = _scaled(table.frame, word, ids, earlier, trained)
                more[:, at] = 0.0 if scaled is None else scaled
                unscaled += [] if scaled is not None else [word]
        if unscaled:
            notify(
                f"items: the numbers in {', '.join(unscaled)} count as average, because the model "
                "does not have those that it was trained with to compare; fit again to use them"
            )
        undated = np.ones(len(ids), bool)
        undated[known] = [table.years[row] is None for row in rows[known]]
        others = [at for at, name in enumerate(self.names) if name not in YEAR_RIDGES]
        more[undated & ~more[:, others].any(axis=1)] = 0.0  # nothing is known of it
        return replace(self, matrix=np.concatenate([self.matrix, more]))

    def __len__(self) -> int:
        return len(self.names)


def _having(frame: pl.DataFrame, name: str, word: str, ids: np.ndarray) -> np.ndarray:
    """Return for each item 1 where a column of words has a word, else 0."""
    if name not in frame.columns:
        return np.zeros(len(ids))
    words = dict(zip(_listed(frame), frame[name].to_list(), strict=True))
    return np.array(
        [
            word in [part.strip() for part in str(words.get(item) or "").split("|")]
            for item in _texts_of(ids)
        ],
        np.float64,
    )


def _scaled(
    frame: pl.DataFrame, name: str, ids: np.ndarray, earlier: pl.DataFrame | None, trained: set[str]
) -> np.ndarray | None:
    """Return numbers of items, standardised by those of earlier ones; None without these."""
    if earlier is None or name not in earlier.columns:
        return None
    before = np.array(
        [
            number
            for item, number in zip(_listed(earlier), earlier[name].to_list(), strict=True)
            if number is not None and item in trained
        ],
        np.float64,
    )
    before = before[np.isfinite(before)]
    found = dict(zip(_listed(frame), frame[name].to_list(), strict=True))
    numbers = np.array([found.get(item) for item in _texts_of(ids)], np.float64)
    standard = np.clip((numbers - before.mean()) / before.std(), -3.0, 3.0)
    return np.where(np.isfinite(numbers), standard, 0.0)


def _listed(frame: pl.DataFrame) -> list[str]:
    return [str(item) for item in frame[id_column(frame.columns)].to_list()]


def _texts_of(ids: np.ndarray) -> list[str]:
    return [str(item) for item in ids.tolist()]


def fingerprint(items: IdIndex, features: ItemFeatures | None) -> str:
    """Of a catalogue: its item ids and their public features, in order."""
    digest = hashlib.sha256()
    ids = items.ids
    digest.update(
        ids.astype("<i8").tobytes() if ids.dtype.kind == "i" else "\0".join(ids.tolist()).encode()
    )
    if features is not None:
        digest.update("\0".join(features.names).encode())
        digest.update(np.ascontiguousarray(features.matrix, "<f8").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Columns:
    names: Sequence[str]
    matrix: np.ndarray
    ridges: np.ndarray


def _joined(
    columns: Sequence[_Columns], source: str, left_out: tuple[str, ...] = ()
) -> ItemFeatures:
    return ItemFeatures(
        tuple(name for group in columns for name in group.names),
        np.column_stack([group.matrix for group in columns]),
        np.concatenate([group.ridges for group in columns]),
        source,
        left_out,
    )


def years_of(column: np.ndarray) -> np.ndarray:
    """The years that were made the column ``year``."""
    return np.asarray(column * 10.0 + _UNKNOWN_YEAR)


def _years(years: np.ndarray) -> _Columns:
    """Piecewise linear: taste for old films does not grow with every year in the same way."""
    parts = (
        years - _UNKNOWN_YEAR,
        np.maximum(1980.0 - years, 0.0),
        np.maximum(years - 1990.0, 0.0),
    )
    return _Columns(
        list(YEAR_RIDGES), np.column_stack(parts) / 10.0, np.array(list(YEAR_RIDGES.values()))
    )


def _columns(
    name: str, column: pl.Series, codes: np.ndarray, known: np.ndarray, n_items: int
) -> _Columns | str:
    """The features that a file's column gives, or why it gives none."""
    import polars as pl

    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        numbers = np.full(n_items, np.nan)
        numbers[codes[known]] = column.cast(pl.Float64).to_numpy()[known]
        finite = np.isfinite(numbers)
        if not finite.any():
            return "no finite number in it"
        if name.lower() == "year":
            return _years(np.where(finite, np.clip(numbers, 1800, 2200), _UNKNOWN_YEAR))
        spread = float(numbers[finite].std())
        if spread == 0:
            return "the same number everywhere"
        standard = np.clip((numbers - numbers[finite].mean()) / spread, -3.0, 3.0)
        return _Columns(
            [f"{NUMBER}{name}"], np.where(finite, standard, 0.0)[:, None], np.array([NUMBER_RIDGE])
        )
    if column.dtype != pl.String:
        return f"{column.dtype} is neither numbers nor words"
    words = [text.split("|") if text else [] for text in column.to_list()]
    counted: dict[str, int] = {}
    for row in known:
        for word in words[row]:
            counted[word.strip()] = counted.get(word.strip(), 0) + 1
    usable = sorted(
        word for word, count in counted.items() if word and word.lower() != "unknown" and count > 1
    )
    if not usable or len(counted) > _MOST_VALUES:
        return f"{len(counted)} different words"
    prefix = "genre" if name.lower() in ("genre", "genres") else name
    position = {word: at for at, word in enumerate(usable)}
    matrix = np.zeros((n_items, len(usable)))
    for row in known:
        for word in words[row]:
            if word.strip() in position:
                matrix[codes[row], position[word.strip()]] = 1.0
    return _Columns(
        [f"{prefix}:{word}" for word in usable], matrix, np.full(len(usable), GENRE_RIDGE)
    )


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

    from hdpmf.common.data import parquet_guard
    from hdpmf.common.data.columns import parse_ids

    label = os.path.basename(os.fspath(path))
    data = read_bytes(path)
    try:
        frame: pl.DataFrame
        if data.startswith(b"PAR1"):
            frame = parquet_guard.read_frame(data, label)
        else:
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


_TITLES = ("title", "name")

_GENRES = ("genres", "genre", "categories")

_YEARS = ("year",)


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
    data = read_bytes(path)
    if not data.startswith(b"PAR1"):
        return _table(*_columns_of(data, label), label)
    if find_spec("polars") is None:
        raise RatingsError(f"{label}: this is a Parquet file; save the table as CSV")
    return _table(*_texts(read_frame(path), label), label)


def item_table_of(data: Any) -> ItemTable:
    """Make `ItemTable.of` a frame or a file, with all its columns."""
    if isinstance(data, (str, os.PathLike)):
        frame, label = read_frame(data), os.path.basename(os.fspath(data))
    else:
        frame, label = _polars_frame(data), "items"
    return _table(*_texts(frame, label), label).with_frame(frame)


def _polars_frame(data: Any) -> pl.DataFrame:
    """Return a data frame of any kind as one of polars, with lists and categories as text."""
    import narwhals as nw
    import polars as pl

    try:
        wrapped = nw.from_native(data)
    except TypeError as error:
        raise RatingsError(
            f"items: {type(data).__name__} is no data frame that Narwhals understands (pandas, "
            "polars, PyArrow, ...); give one, or a file"
        ) from error
    table = wrapped.collect() if isinstance(wrapped, nw.LazyFrame) else wrapped
    if table.implementation.is_pandas_like():  # its columns of lists are objects
        frame = pl.DataFrame({name: table[name].to_list() for name in table.columns})
        frame = frame.with_columns(pl.col(pl.Float32, pl.Float64).fill_nan(None))
    else:
        frame = table.to_polars()
    if frame.height == 0 or frame.width < 2:
        raise _too_small("items")
    text = [
        pl.col(name).cast(pl.List(pl.String)).list.join("|")
        if isinstance(kind, pl.List)
        else pl.col(name).cast(pl.String)
        for name, kind in frame.schema.items()
        if isinstance(kind, (pl.List, pl.Categorical, pl.Enum))
    ]
    return frame.with_columns(text)


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
        years = [_year(text) for text in column(_YEARS)]
    except (ValueError, OverflowError):
        raise RatingsError(f"{label}: the column 'year' has something that is no year") from None
    return ItemTable.build(
        index.ids[codes],
        column(_TITLES),
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
    columns = map(list, zip(*_filled(rows, len(names)), strict=True))
    written = dict(zip(names, columns, strict=True))
    return written, _ids(written[id_column(names)])


def _filled(rows: Sequence[list[str]], width: int) -> Iterator[list[str]]:
    """Rows of one width; fields that are missing at the end are empty."""
    return (row if len(row) == width else row + [""] * (width - len(row)) for row in rows)


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
