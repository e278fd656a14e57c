"""Public facts about items (titles, genres, years), and filters of items by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdpmf.common.data.ids import Id, IdIndex
from hdpmf.errors import ConfigError, RatingsError


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Public facts about items, one entry per item in the order of `ids`.

    Make one with `of` from a data frame or a file, and give it to ``fit(..., items=table)``.

    Attributes:
        index: The items' ids.
        titles: A title per item.
        genres: The genres of each item.
        years: The year of each item, or None where it is not known.
        frame: All columns that `of` has read, a polars frame of which features are made; None: the
            genres and years are all.
    """

    index: IdIndex
    titles: tuple[str, ...] = field(repr=False)
    genres: tuple[tuple[str, ...], ...] = field(repr=False)
    years: tuple[int | None, ...] = field(repr=False)
    # No field: it is not saved with a model, which keeps the features that were made of it.
    frame: ClassVar[Any] = None

    def __post_init__(self) -> None:
        _check_lengths(self.index, self.titles, self.genres, self.years)

    @classmethod
    def of(cls, data: Any) -> ItemTable:
        """Make a table from a data frame or a file: CSV, TSV or Parquet with a header.

        Args:
            data: A path, or a frame that Narwhals understands (pandas, polars, PyArrow, ...). The
                ids are in ``item`` (or ``movieId``, ``id``, ..., else the first column); ``title``
                (or ``name``), ``genres`` (a list, or text separated by ``|``) and ``year`` are used
                where they are there. All columns of numbers, and of few different words, become
                features for methods that use them.

        Raises:
            RatingsError: It is no such table, or an item is listed twice.
        """
        from hdpmf.common.data.item_files import item_table_of

        return data if isinstance(data, cls) else item_table_of(data)

    @classmethod
    def build(
        cls,
        ids: Sequence[Id] | NDArray[Any],
        titles: Sequence[str],
        genres: Sequence[Sequence[str]],
        years: Sequence[int | None],
    ) -> ItemTable:
        """Make a table from columns in any order of ids."""
        _check_lengths(ids, titles, genres, years)
        index = IdIndex(ids)
        order = np.argsort(index.find(ids)).tolist()
        return cls(
            index,
            tuple(titles[i] for i in order),
            tuple(tuple(genres[i]) for i in order),
            tuple(years[i] for i in order),
        )

    @property
    def ids(self) -> NDArray[Any]:
        """The items' ids, in order."""
        return self.index.ids

    def __len__(self) -> int:
        return len(self.index)

    def with_text_ids(self) -> ItemTable:
        """The same facts with integer ids written as text."""
        if not self.index.is_integer:
            return self
        built = ItemTable.build(self.ids.astype(str), self.titles, self.genres, self.years)
        return built.with_frame(self.frame)

    def title(self, item_id: Id) -> str | None:
        """Return the title of an item, or None where the table does not list it."""
        code = int(self.index.find([item_id])[0])
        return self.titles[code] if code >= 0 else None

    def select(self, ids: Iterable[Id] | NDArray[Any]) -> ItemTable:
        """Keep only the items asked for; those the table does not list are left out."""
        found = np.unique(self.index.find(ids))
        positions = found[found >= 0].tolist()
        selected = ItemTable(
            IdIndex(self.index.ids[positions], as_given=True),
            tuple(self.titles[i] for i in positions),
            tuple(self.genres[i] for i in positions),
            tuple(self.years[i] for i in positions),
        )
        return selected.with_frame(self.frame)

    def joined(self, later: ItemTable) -> ItemTable:
        """Return this table with the items of a later one; where both know one, this one counts.

        The columns for features stay those of this table: they say what a feature's zero is.
        """
        new = np.flatnonzero(self.index.find(later.ids) < 0).tolist()
        built = ItemTable.build(
            np.concatenate([self.ids, later.ids[new]]),
            [*self.titles, *(later.titles[i] for i in new)],
            [*self.genres, *(later.genres[i] for i in new)],
            [*self.years, *(later.years[i] for i in new)],
        )
        return built.with_frame(self.frame)

    def with_frame(self, frame: Any) -> ItemTable:
        """Return the same table with columns that features are made of."""
        made = copy(self)
        object.__setattr__(made, "frame", frame)
        return made


def _check_lengths(*columns: Sized) -> None:
    if len(set(map(len, columns))) > 1:
        counts = ", ".join(f"{len(column):,}" for column in columns)
        raise RatingsError(
            f"an item table needs one title, genre list and year per id, not {counts} of these"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Conditions on items, all of which have to hold.

    Attributes:
        genres: At least one of these, in any letter case.
        not_genres: None of these.
        from_year: This year or later.
        to_year: This year or earlier. An item without a year is in no range.
        items: Only these; None for all.
    """

    genres: Sequence[str] = ()
    not_genres: Sequence[str] = ()
    from_year: int | None = None
    to_year: int | None = None
    items: Sequence[Id] | np.ndarray[Any, Any] | None = None

    def __post_init__(self) -> None:
        first, last = self.from_year, self.to_year
        if first is not None and last is not None and first > last:
            raise ConfigError(f"no year is from {self.from_year} and to {self.to_year}; swap them")

    def allowed(self, items: IdIndex, table: ItemTable | None) -> np.ndarray:
        """Return a mask of the catalogue's items that pass.

        Raises:
            ConfigError: It asks for genres or years where none are known, or for a genre that there
                is not.
            UnknownIdError: One of ``items`` is not in the catalogue.
        """
        passing = np.ones(len(items), bool)
        if self.items is not None:
            passing[:] = False
            passing[items.codes(self.items)] = True
        if self.genres or self.not_genres:
            there = sorted({genre for own in table.genres for genre in own}) if table else []
            if not there:
                raise ConfigError("no genres are known of these items, so none can be asked for")
            wanted, unwanted = _known(self.genres, there), _known(self.not_genres, there)
            genres = [set(map(str.casefold, own)) for own in _column(table, items, "genres", ())]
            passing &= [bool(own & wanted or not wanted) and not own & unwanted for own in genres]
        if self.from_year is not None or self.to_year is not None:
            years = _column(table, items, "years", None)
            if not any(year is not None for year in years):
                raise ConfigError("no years are known of these items, so none can be asked for")
            first = self.from_year or -np.inf
            last = np.inf if self.to_year is None else self.to_year
            passing &= [year is not None and first <= year <= last for year in years]
        return passing


def _known(names: Sequence[str], there: Sequence[str]) -> set[str]:
    wanted = set(map(str.casefold, names))
    unknown = [name for name in names if name.casefold() not in set(map(str.casefold, there))]
    if unknown:
        raise ConfigError(f"there is no genre {unknown[0]!r}; there are {', '.join(there)}")
    return wanted


def _column(table: ItemTable | None, items: IdIndex, name: str, missing: Any) -> list[Any]:
    if table is None:
        return [missing] * len(items)
    column = getattr(table, name)
    return [missing if row < 0 else column[row] for row in table.index.find(items.ids).tolist()]
