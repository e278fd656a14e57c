"""What the public knows about items: titles, genres, years."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpmf.errors import RatingsError
from hdpmf.ratings.ids import Id, IdIndex


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Public facts about items, one entry per item in the order of `ids`.

    Attributes:
        index: The items' ids.
        titles: A title per item.
        genres: The genres of each item.
        years: The year of each item, or None where it is not known.
    """

    index: IdIndex
    titles: tuple[str, ...] = field(repr=False)
    genres: tuple[tuple[str, ...], ...] = field(repr=False)
    years: tuple[int | None, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not len(self.index) == len(self.titles) == len(self.genres) == len(self.years):
            raise RatingsError(
                f"an item table needs one title, genre list and year per id: got {len(self.index):,} ids, "
                f"{len(self.titles):,} titles, {len(self.genres):,} genre lists, {len(self.years):,} years"
            )

    @classmethod
    def build(
        cls,
        ids: Sequence[Id] | NDArray[Any],
        titles: Sequence[str],
        genres: Sequence[Sequence[str]],
        years: Sequence[int | None],
    ) -> ItemTable:
        """Make a table from columns in any order of ids."""
        if not len(ids) == len(titles) == len(genres) == len(years):
            raise RatingsError("an item table needs one title, genre list and year per id")
        index = IdIndex(ids)
        order = np.empty(len(index), dtype=np.int64)
        order[index.find(ids)] = np.arange(len(index))
        positions = order.tolist()
        return cls(
            index,
            tuple(titles[i] for i in positions),
            tuple(tuple(genres[i]) for i in positions),
            tuple(years[i] for i in positions),
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
        return ItemTable.build(self.ids.astype(str), self.titles, self.genres, self.years)

    def title(self, item_id: Id) -> str | None:
        """Return the title of an item, or None where the table does not list it."""
        code = int(self.index.find([item_id])[0])
        return self.titles[code] if code >= 0 else None

    def select(self, ids: Iterable[Id] | NDArray[Any]) -> ItemTable:
        """Keep only the items asked for; those the table does not list are left out."""
        found = np.unique(self.index.find(ids))
        positions = found[found >= 0].tolist()
        return ItemTable(
            IdIndex(self.index.ids[positions], as_given=True),
            tuple(self.titles[i] for i in positions),
            tuple(self.genres[i] for i in positions),
            tuple(self.years[i] for i in positions),
        )
