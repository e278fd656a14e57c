"""Item features as numbers: genres, years, columns of a file."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdpmf.common.data.ids import IdIndex
from hdpmf.common.data.items import TITLES, ItemTable, id_column, read_frame, tidied
from hdpmf.errors import RatingsError

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
        names: Of the columns.
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
        known = rows >= 0
        genres = [table.genres[row] if row >= 0 else () for row in rows]
        names = sorted({genre for own in table.genres for genre in own if _is_kind(genre)})
        columns = [_words([f"genre:{name}" for name in names], genres, names)]
        if any(year is not None for year in table.years):
            columns.append(_years(_years_in(table, rows)))
        sequels = np.zeros(len(items))
        sequels[known] = _sequels(table, rows[known])
        if sequels.sum() >= _FEWEST_SEQUELS:
            columns.append(_Columns(["title:sequel"], sequels[:, None], [GENRE_RIDGE]))
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
        frame = tidied(frame)
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
            if name != id_name:
                made = _columns(name, frame[name], codes, known, len(items))
                if isinstance(made, str):
                    left_out.append(f"{name}: {made}")
                else:
                    columns.append(made)
        if not columns:
            error = NoFeaturesError(
                f"{label}: no column can be used as a feature ({'; '.join(left_out) or 'only ids'})"
            )
            error.has_titles = any(name.lower() in TITLES for name in frame.columns)
            raise error
        return _joined(columns, label, tuple(left_out))

    def __len__(self) -> int:
        return len(self.names)


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


class _Columns(NamedTuple):
    names: Sequence[str]
    matrix: np.ndarray
    ridges: Sequence[float]


def _joined(
    columns: Sequence[_Columns], source: str, left_out: tuple[str, ...] = ()
) -> ItemFeatures:
    return ItemFeatures(
        tuple(name for group in columns for name in group.names),
        np.column_stack([group.matrix for group in columns]),
        np.concatenate([np.asarray(group.ridges, np.float64) for group in columns]),
        source,
        left_out,
    )


def _columns(
    name: str, column: pl.Series, codes: np.ndarray, known: np.ndarray, n_items: int
) -> _Columns | str:
    """The features that a file's column gives, or why it gives none."""
    import polars as pl

    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        numbers = np.full(n_items, np.nan)
        numbers[codes[known]] = column.cast(pl.Float64).to_numpy()[known]
        finite = numbers[np.isfinite(numbers)]
        if not len(finite):
            return "no finite number in it"
        if name.lower() == "year":
            years = np.clip(numbers, 1800, 2200)
            return _years(np.where(np.isfinite(numbers), years, _UNKNOWN_YEAR))
        if finite.std() == 0:
            return "the same number everywhere"
        return _Columns([f"{NUMBER}{name}"], _standard(numbers, finite)[:, None], [NUMBER_RIDGE])
    if column.dtype != pl.String:
        return f"{column.dtype} is neither numbers nor words"
    words: list[list[str]] = [[]] * n_items
    for row, text in zip(known, column.gather(known).to_list(), strict=True):
        words[codes[row]] = _split(text)
    counted = Counter(word for own in words for word in own)
    usable = sorted(word for word, count in counted.items() if _is_kind(word) and count > 1)
    if not usable or len(counted) > _MOST_VALUES:
        return f"{len(counted)} different words"
    prefix = "genre" if name.lower() in ("genre", "genres") else name
    return _words([f"{prefix}:{word}" for word in usable], words, usable)


def _is_kind(word: str) -> bool:
    return word != "" and word.lower() != "unknown"


def _split(text: str | None) -> list[str]:
    return [word.strip() for word in text.split("|")] if text else []


def _words(names: Sequence[str], words: Sequence[Iterable[str]], wanted: Sequence[str]) -> _Columns:
    """A column for each wanted word, 1 where an item has it."""
    position = {word: at for at, word in enumerate(wanted)}
    matrix = np.zeros((len(words), len(wanted)))
    for item, own in enumerate(words):
        for word in own:
            if word in position:
                matrix[item, position[word]] = 1.0
    return _Columns(names, matrix, [GENRE_RIDGE] * len(names))


def _years(years: np.ndarray) -> _Columns:
    """Piecewise linear: taste for old films does not grow with every year in the same way."""
    parts = (
        years - _UNKNOWN_YEAR,
        np.maximum(1980.0 - years, 0.0),
        np.maximum(years - 1990.0, 0.0),
    )
    return _Columns(list(YEAR_RIDGES), np.column_stack(parts) / 10.0, list(YEAR_RIDGES.values()))


def _years_in(table: ItemTable, rows: np.ndarray) -> np.ndarray:
    """The year in each row of a table; a row of -1 is none."""
    return np.array([(row >= 0 and table.years[row]) or _UNKNOWN_YEAR for row in rows], np.float64)


def years_of(column: np.ndarray) -> np.ndarray:
    """The years that were made the column ``year``."""
    return np.asarray(column * 10.0 + _UNKNOWN_YEAR)


def _sequels(table: ItemTable, rows: np.ndarray) -> list[bool]:
    return [bool(_SEQUEL.search(table.titles[row])) for row in rows]


def _standard(numbers: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """Numbers by the mean and the spread of the usual ones; 0 where there is none."""
    standard = np.clip((numbers - usual.mean()) / float(usual.std()), -3.0, 3.0)
    return np.where(np.isfinite(numbers), standard, 0.0)
