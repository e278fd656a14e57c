"""Messages that an honest recommender would send; a test changes what it wants changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from hdpmf.common.protocol import (
    CatalogueTable,
    ItemFacts,
    Survey,
)
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.private.device.policy import Terms

RUN = b"the first run..."


def table(n_items: int = 40, **changes: Any) -> CatalogueTable:
    """An item table with five stars."""
    fields: dict[str, Any] = {
        "ids": tuple(f"item {place:02d}" for place in range(n_items)), "integer_ids": False,
        "scale_low": 1.0, "scale_high": 5.0, "scale_step": 1.0,
    }  # fmt: skip
    return CatalogueTable(**(fields | changes))


def stars(n_items: int = 40) -> dict[str, float]:
    """Ratings of every second item of a `table`, with all stars among them."""
    return {f"item {place:02d}": float(1 + place % 5) for place in range(0, n_items, 2)}


def terms(known: CatalogueTable, **changes: Any) -> Terms:
    """Terms of a run over this item table."""
    fields: dict[str, Any] = {
        "epsilon": 0.5,
        "catalogue": known_items(known).fingerprint,
        "minimum": 150,
    }
    return Terms(**(fields | changes))


def survey(design: str, known: CatalogueTable, **changes: Any) -> Survey:
    """A survey of this item table."""
    fields: dict[str, Any] = {
        "design": design,
        "coding": "threshold" if design == "L" else "soft",
        "epsilon": 0.5,
        "n_items": len(known.ids),
        "catalogue": known_items(known).fingerprint,
        "contributors": 100,
        "scale_low": known.scale_low,
        "scale_high": known.scale_high,
        "scale_step": known.scale_step,
    }
    return Survey(**(fields | changes))


def facts(known: CatalogueTable, **changes: Any) -> ItemFacts:
    """Facts about the items of this table."""
    n = len(known.ids)
    fields: dict[str, Any] = {
        "catalogue": known_items(known).fingerprint,
        "mean": 3.5,
        "bias": np.linspace(-1, 1, n).astype(np.float32),
        "variance": np.full(n, 0.1, np.float32),
        "popularity": np.ones(n, np.float32),
    }
    return ItemFacts(**(fields | changes))
