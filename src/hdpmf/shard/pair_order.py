"""Orders items by what somebody would choose and like, and by what goes with what they rated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hdpmf.public.lists import ListModel
from hdpmf.shard.choosing import ChooseAndLike, heights
from hdpmf.shard.list_order import list_parts
from hdpmf.shard.reasons import Parts


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class WithPairs:
    """Choose and like, plus a linear model of much-rated items, which the others are left out of.

    What the model says is brought to a deviation of 1 over its items before it counts: how large it is depends on how
    much noise its regularisation had to stand.

    Attributes:
        taste: The order without it.
        pairs: The model; ``about["blend"]`` is how much it counts.
        item_weights: Of every item, the same for all people: what it says of an item is in proportion to that.
    """

    taste: ChooseAndLike
    pairs: ListModel
    item_weights: np.ndarray

    def scores(self, users: np.ndarray) -> np.ndarray:
        """Scores of all items, one row per user."""
        scores = self.taste.scores(users)
        told = self._told(users)
        scores[:, self.pairs.heads] += self._factors(told)[:, None] * told
        return scores

    def parts(self, users: np.ndarray, lists: Sequence[np.ndarray]) -> Iterator[Parts]:
        """What the scores of each user's list are made of."""
        own, factors = heights(self.taste.devices, users), self._factors(self._told(users))
        for row, (parts, items) in enumerate(zip(self.taste.parts(users, lists), lists, strict=True)):
            here = slice(own.indptr[row], own.indptr[row + 1])
            told = list_parts(self.pairs, own.indices[here].astype(np.int64), own.data[here], items)
            yield replace(parts, rated=told.rated, own=factors[row] * told.own / self.item_weights[items])

    def _told(self, users: np.ndarray) -> np.ndarray:
        heads = self.pairs.heads
        return np.asarray(self.pairs.many(heights(self.taste.devices, users))[:, heads] / self.item_weights[heads])

    def _factors(self, told: np.ndarray) -> np.ndarray:
        spread = told.std(axis=1)
        known = spread > 0
        return np.asarray(np.where(known, self.pairs.about["blend"] / np.where(known, spread, 1.0), 0.0))
