"""An item table with five stars."""

from __future__ import annotations

from hdpmf.common.protocol import CatalogueTable


def table(n_items: int = 40) -> CatalogueTable:
    ids = tuple(f"item {place:02d}" for place in range(n_items))
    return CatalogueTable(ids=ids, integer_ids=False, scale_low=1.0, scale_high=5.0, scale_step=1.0)
