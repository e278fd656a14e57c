"""Items that are like another one, by what the model learned about items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.errors import ConfigError, UnknownIdError
from hdpmf.models.asked import kind_of
from hdpmf.ratings import Id
from hdpmf.recommender import Catalogue


@dataclass(frozen=True, slots=True)
class SimilarItem:
    """An item that is like another.

    Attributes:
        item: Its id.
        similarity: The cosine of the angle between both items' vectors: 1 for the same direction.
        title: Where known.
    """

    item: Id
    similarity: float
    title: str | None = None


def similar(catalogue: Catalogue, vectors: np.ndarray, able: np.ndarray, item: Id, n: int) -> list[SimilarItem]:
    """The ``n`` able items whose vectors point most nearly where this one's does."""
    if n < 1:
        raise ConfigError(f"n must be at least 1, not {n}")
    items = catalogue.items
    place = int(items.find([item])[0])
    if place < 0:
        raise UnknownIdError(f"item {item!r} is none of the model's {len(items):,}, whose ids are {kind_of(items)}")
    lengths = np.linalg.norm(vectors, axis=1)
    if not able[place] or lengths[place] == 0:
        raise ConfigError(f"the model learned nothing about item {item!r}, so nothing is known to be like it")
    cosines = vectors @ vectors[place] / np.maximum(lengths * lengths[place], 1e-12)
    cosines[~able | (lengths == 0)] = -np.inf
    cosines[place] = -np.inf
    best = np.argsort(-cosines, kind="stable")[:n]
    table = catalogue.item_table
    rows = np.full(len(vectors), -1) if table is None else table.index.find(catalogue.items.ids)
    return [
        SimilarItem(
            catalogue.items.ids[code].item(),
            float(cosines[code]),
            (table.titles[rows[code]] or None) if table is not None and rows[code] >= 0 else None,
        )
        for code in best.tolist()
        if np.isfinite(cosines[code])
    ]
