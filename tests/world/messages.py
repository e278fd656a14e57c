"""What an honest recommender would publish; a test changes what it wants changed."""

from __future__ import annotations

from typing import Any

from hdpmf.common.data import Ratings
from hdpmf.common.protocol import CatalogueTable


def table(n_items: int = 40, **changes: Any) -> CatalogueTable:
    """An item table with five stars."""
    fields: dict[str, Any] = {
        "ids": tuple(f"item {place:02d}" for place in range(n_items)), "integer_ids": False,
        "scale_low": 1.0, "scale_high": 5.0, "scale_step": 1.0,
    }  # fmt: skip
    return CatalogueTable(**(fields | changes))


def part_of(ratings: Ratings, begin: int, end: int) -> Ratings:
    """The ratings of the users from ``begin`` to ``end``, over the whole catalogue."""
    own = ratings.take((ratings.user_codes >= begin) & (ratings.user_codes < end))
    return Ratings.from_arrays(
        ratings.users.ids[own.user_codes],
        ratings.items.ids[own.item_codes],
        own.values,
        scale=ratings.scale,
        item_table=ratings.item_table,
        items_index=ratings.items,
    )
