"""What the recommender holds after training: item factors and public facts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.ratings import IdIndex, ItemTable, RatingScale


@dataclass(frozen=True, slots=True, repr=False)
class Catalogue:
    """Items with their factors.

    Attributes:
        factors: V, one row per item.
        raters: How many ratings took part in training, per item; an item with none has no useful factors.
    """

    items: IdIndex
    factors: np.ndarray
    raters: np.ndarray
    scale: RatingScale
    item_table: ItemTable | None = None

    def __repr__(self) -> str:
        return f"Catalogue({len(self.items)} items, {self.factors.shape[1]} factors)"

    @property
    def trained(self) -> np.ndarray:
        """Which items have learned anything."""
        return self.raters > 0
