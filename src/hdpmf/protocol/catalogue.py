"""The item table between its message and the form that both sides compute with.

Both sides take everything from here, so that a fingerprint on one means the same items, in the same order, with the
same public features, as on the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.errors import ProtocolError, RatingsError
from hdpmf.protocol.federation import CatalogueTable
from hdpmf.ratings import IdIndex, ItemTable, RatingScale
from hdpmf.ratings.item_features import ItemFeatures, fingerprint

MAX_GENRES = 256


@dataclass(frozen=True, slots=True, repr=False)
class KnownItems:
    """The items of a catalogue.

    Attributes:
        items: Their ids.
        scale: The public rating scale.
        item_table: Titles, genres and years, where there are any.
        features: Genres and years as numbers, where there are any.
        fingerprint: Of ids and features.
    """

    items: IdIndex
    scale: RatingScale
    item_table: ItemTable | None
    features: ItemFeatures | None
    fingerprint: str

    def __repr__(self) -> str:
        return f"KnownItems({len(self.items)} items)"


def catalogue_table(items: IdIndex, scale: RatingScale, table: ItemTable | None = None) -> CatalogueTable:
    """The message for these items; what ``table`` does not list stays without a title, genres and a year."""
    titles: tuple[str, ...] = ()
    genres: tuple[tuple[str, ...], ...] = ()
    years: tuple[int | None, ...] = ()
    if table is not None:
        rows = table.index.find(items.ids).tolist()
        titles = tuple(table.titles[row] if row >= 0 else "" for row in rows)
        genres = tuple(table.genres[row] if row >= 0 else () for row in rows)
        years = tuple(table.years[row] if row >= 0 else None for row in rows)
    return CatalogueTable(
        ids=tuple(map(str, items.ids.tolist())),
        integer_ids=items.is_integer,
        scale_low=scale.low,
        scale_high=scale.high,
        scale_step=scale.step,
        titles=titles,
        genres=genres,
        years=years,
    )


def known_items(table: CatalogueTable) -> KnownItems:
    """The items of a message, or a ProtocolError where it cannot be a catalogue."""
    try:
        ids = np.array([int(item) for item in table.ids], np.int64) if table.integer_ids else np.array(table.ids)
        items = IdIndex(ids)
        scale = RatingScale(table.scale_low, table.scale_high, table.scale_step)
    except (ValueError, OverflowError, RatingsError) as error:
        raise ProtocolError(f"the catalogue cannot be used: {type(error).__name__}") from None
    if tuple(map(str, ids.tolist())) != table.ids:
        raise ProtocolError("the catalogue says that its ids are integers, but they are not written as integers are")
    if not np.array_equal(items.ids, ids):
        raise ProtocolError("the catalogue's items are not in order, so that positions would mean other items")
    if len({genre for genres in table.genres for genre in genres}) > MAX_GENRES:
        raise ProtocolError(f"the catalogue has more than {MAX_GENRES} genres; as features they would fill the memory")
    n = len(items)
    public: ItemTable | None = None
    if table.titles or table.genres or table.years:
        public = ItemTable(items, table.titles or ("",) * n, table.genres or ((),) * n, table.years or (None,) * n)
    features = None if public is None else ItemFeatures.of_table(public, items)
    return KnownItems(items, scale, public, features, fingerprint(items, features))
