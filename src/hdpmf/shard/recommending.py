"""Lists for people, with titles and reasons: made on the private side, from raw ratings. Nothing of it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from hdpmf.errors import ConfigError
from hdpmf.ratings import Id, IdIndex, ItemTable
from hdpmf.ratings.item_filter import ItemFilter
from hdpmf.ratings.scale import IMPLICIT_SCALE
from hdpmf.shard.devices import Devices
from hdpmf.shard.reasons import Parts, in_words, reasons

_BLOCK_SCORES = 1 << 22  # scores held at once, so that memory does not grow with the number of people


class ListOrder(Protocol):
    """By what a model orders items."""

    def scores(self, users: np.ndarray) -> np.ndarray:
        """Scores of all items, one row for each of these users."""

    def parts(self, users: np.ndarray, lists: Sequence[np.ndarray]) -> Iterator[Parts]:
        """What the scores in each user's list are made of."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """An item for a user.

    Attributes:
        item: Its id.
        score: The rating that the model expects; None where it orders items and predicts no ratings.
        title: Where known, like year and genres.
        rank_score: By what the list is ordered: the higher, the sooner the user would choose and like it.
        year: Of the item.
        genres: Of the item.
        reason: The largest part of ``rank_score``, in words; None where nothing sets the item apart. PRIVATE: it names
            what the user has rated.
    """

    item: Id
    score: float | None
    title: str | None = None
    rank_score: float = 0.0
    year: int | None = None
    genres: tuple[str, ...] = ()
    reason: str | None = field(default=None, repr=False)


@dataclass(frozen=True, repr=False, eq=False)
class ListMaker:
    """All that lists are made of.

    Attributes:
        devices: The users, with what they rated.
        order: By what items are ordered.
        expected: Gives the ratings that are expected of pairs of a user and an item; None where nothing predicts any.
        candidates: Which items may be in a list at all.
        items: The catalogue.
        table: Titles, genres and years, where there are any.
    """

    devices: Devices
    order: ListOrder
    expected: Callable[[np.ndarray, np.ndarray], np.ndarray] | None
    candidates: np.ndarray
    items: IdIndex
    table: ItemTable | None

    def lists(
        self, users: np.ndarray, n: int, *, keep_rated: bool = False, only: ItemFilter | None = None
    ) -> Iterator[list[Recommendation]]:
        """The ``n`` best items for each of these users, best first.

        Args:
            users: Their positions.
            n: How many items.
            keep_rated: Whether items that the user has rated may be in the list.
            only: What items have to be like.
        """
        if n < 1:
            raise ConfigError(f"n must be at least 1, not {n}")
        able = self.candidates if only is None else self.candidates & only.allowed(self.items, self.table)
        return self._blocks(users, n, keep_rated, able)

    def _blocks(self, users: np.ndarray, n: int, keep_rated: bool, able: np.ndarray) -> Iterator[list[Recommendation]]:
        step = max(1, _BLOCK_SCORES // max(1, len(able)))
        for first in range(0, len(users), step):
            block = users[first : first + step]
            scores = self.order.scores(block)
            best = [
                best_items(own, n, able if keep_rated else self._unrated(user, able))
                for user, own in zip(block.tolist(), scores, strict=True)
            ]
            explained = self.order.parts(block, best)
            for user, own, items, parts in zip(block.tolist(), scores, best, explained, strict=True):
                yield self._told(user, items, own[items], parts)

    def _unrated(self, user: int, able: np.ndarray) -> np.ndarray:
        left = able.copy()
        left[self.devices.rated[self._own(user)]] = False
        return left

    def _own(self, user: int) -> slice:
        return slice(self.devices.rated_start[user], self.devices.rated_start[user + 1])

    def _told(self, user: int, items: np.ndarray, scores: np.ndarray, parts: Parts) -> list[Recommendation]:
        own = self._own(user)
        stars = dict(zip(self.devices.rated[own].tolist(), self.devices.stars[own].tolist(), strict=True))
        # Choices (clicks, purchases) have no stars to speak of.
        chosen = self.expected is None and self.devices.scale == IMPLICIT_SCALE
        ratings: list[float | None] = [None] * len(items)
        if self.expected is not None:
            ratings = self.expected(np.full(len(items), user), items).tolist()
        told = []
        for item, rating, score, why in zip(
            items.tolist(), ratings, scores.tolist(), reasons(parts, items), strict=True
        ):
            title, year, genres = self._facts(item)
            star = None if chosen else stars.__getitem__
            reason = in_words(why, title=self._called, stars=star, expected=rating)
            told.append(Recommendation(self.items.ids[item].item(), rating, title, score, year, genres, reason))
        return told

    def _called(self, item: int) -> str:
        return self._facts(item)[0] or f"item {self.items.ids[item]}"

    @cached_property
    def _rows(self) -> np.ndarray:
        """Where each item is in the table."""
        return np.full(len(self.items), -1) if self.table is None else self.table.index.find(self.items.ids)

    def _facts(self, item: int) -> tuple[str | None, int | None, tuple[str, ...]]:
        row = int(self._rows[item])
        if self.table is None or row < 0:
            return None, None, ()
        return self.table.titles[row] or None, self.table.years[row], self.table.genres[row]


def best_items(scores: np.ndarray, n: int, able: np.ndarray) -> np.ndarray:
    """The ``n`` best of the able items, best first; equal ones in the order of the catalogue."""
    places = np.flatnonzero(able)
    values = scores[places]
    if n < len(places):
        # The n-th best value, and whatever is equal to it: what is sorted then is a handful.
        reached = values >= np.partition(values, len(values) - n)[len(values) - n]
        places, values = places[reached], values[reached]
    return np.asarray(places[np.argsort(-values, kind="stable")[:n]])
