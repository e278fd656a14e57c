"""The item table between its message and the form that both sides compute with.

Both sides take everything from here, so that a fingerprint on one means the same items, in the same
order, with the same public features, as on the other. From the second version of a catalogue on it
is the digest of the version, which is over everything in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hdpmf.common.data import IdIndex, ItemTable, RatingScale
from hdpmf.common.data.item_features import ItemFeatures, fingerprint
from hdpmf.common.protocol.federation import AnyCatalogue, CatalogueTable
from hdpmf.common.protocol.versions import digests_of, number_of, retired_in, table_of
from hdpmf.errors import ProtocolError, RatingsError

MAX_GENRES = 256


@dataclass(frozen=True, slots=True, repr=False)
class KnownItems:
    """The items of a catalogue.

    Attributes:
        items: Their ids.
        scale: The public rating scale.
        item_table: Titles, genres and years, where there are any.
        features: Genres and years as numbers, where there are any.
        fingerprint: Of ids and features or, from the second version on, the version's digest.
        retired: Positions of items that are recommended and asked about no more.
    """

    items: IdIndex
    scale: RatingScale
    item_table: ItemTable | None
    features: ItemFeatures | None
    fingerprint: str
    retired: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def __repr__(self) -> str:
        return f"KnownItems({len(self.items)} items)"


def catalogue_table(
    items: IdIndex, scale: RatingScale, table: ItemTable | None = None
) -> CatalogueTable:
    """The message for these items; what ``table`` does not list stays without a title, genres
    and a year.
    """
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


def known_items(catalogue: AnyCatalogue) -> KnownItems:
    """The items of a message, or a ProtocolError where it cannot be a catalogue."""
    table = table_of(catalogue)
    try:
        ids = (
            np.array([int(item) for item in table.ids], np.int64)
            if table.integer_ids
            else np.array(table.ids)
        )
        items = IdIndex(ids, as_given=True)
        scale = RatingScale(table.scale_low, table.scale_high, table.scale_step)
    except (ValueError, OverflowError, RatingsError) as error:
        raise ProtocolError(f"the catalogue cannot be used: {type(error).__name__}") from None
    if tuple(map(str, ids.tolist())) != table.ids:
        raise ProtocolError(
            "the catalogue says that its ids are integers, but they are not written as integers are"
        )
    if len({genre for genres in table.genres for genre in genres}) > MAX_GENRES:
        raise ProtocolError(
            f"the catalogue has more than {MAX_GENRES} genres; as features they would fill "
            "the memory"
        )
    n = len(items)
    public: ItemTable | None = None
    if any(table.titles) or any(table.genres) or any(year is not None for year in table.years):
        public = ItemTable(
            items, table.titles or ("",) * n, table.genres or ((),) * n, table.years or (None,) * n
        )
    features = None if public is None else ItemFeatures.of_table(public, items)
    name = (
        fingerprint(items, features)
        if number_of(catalogue) == 1
        else digests_of(catalogue)[-1].hex()
    )
    return KnownItems(
        items, scale, public, features, name, np.array(retired_in(catalogue), np.int64)
    )
