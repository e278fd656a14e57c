"""Recommendation lists, made on the device from raw ratings. Nothing of it is sent.

A predicted rating says how much somebody would like an item if they took it. A list needs what they
would *choose and like*: how many people choose the item, how much that is this person's taste, and
a little of the predicted rating.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hdpmf.common.base.threads import one_blas_thread
from hdpmf.common.data import Id, IdIndex, ItemTable
from hdpmf.common.data.checks import IMPLICIT_SCALE, check_length
from hdpmf.common.data.items import ItemFilter
from hdpmf.common.model.device_fit import log_popularity, to_stars
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.model.taste import LIKE, Choices, taste, taste_by_rating
from hdpmf.common.protocol.titles import upright
from hdpmf.private.client.devices import Devices
from hdpmf.private.client.parts import (
    Parts,
    TasteParts,
    in_words,
    list_parts,
    reasons,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


# Scores held at once, so that memory does not grow with the number of people.
_BLOCK_SCORES = 1 << 22


_AT_A_TIME = 64  # lists made at once


class ListOrder(Protocol):
    """By what a model orders items."""

    def scores(self, users: np.ndarray) -> np.ndarray:
        """Scores of all items, one row for each of these users."""

    def parts(self, users: np.ndarray, lists: Sequence[np.ndarray]) -> Iterator[Parts]:
        """Yield the parts of the scores in each user's list."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """An item for a user.

    Attributes:
        score: The rating that the model expects; None where it orders items and predicts no
            ratings.
        title: Where known, like year and genres.
        rank_score: By what the list is ordered: the higher, the sooner the user would choose and
            like it.
        reason: The largest part of ``rank_score``, in words; None where nothing sets the item
            apart. PRIVATE: it names what the user has rated.
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
        expected: Gives the ratings that are expected of pairs of a user and an item; None where
            nothing predicts any.
        candidates: Which items may be in a list at all.
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
            keep_rated: Whether items that the user has rated may be in the list.
        """
        check_length(n)
        able = (
            self.candidates
            if only is None
            else self.candidates & only.allowed(self.items, self.table)
        )
        return self._blocks(users, n, keep_rated, able)

    def _blocks(
        self, users: np.ndarray, n: int, keep_rated: bool, able: np.ndarray
    ) -> Iterator[list[Recommendation]]:
        step = max(1, _BLOCK_SCORES // max(1, len(able)))
        for first in range(0, len(users), step):
            block = users[first : first + step]
            scores = self.order.scores(block)
            for begin in range(0, len(block), _AT_A_TIME):
                some = slice(begin, begin + _AT_A_TIME)
                with one_blas_thread():  # a small system for each person
                    made = self._of_some(block[some], scores[some], n, keep_rated, able)
                yield from made

    def _of_some(
        self, users: np.ndarray, scores: np.ndarray, n: int, keep_rated: bool, able: np.ndarray
    ) -> list[list[Recommendation]]:
        best = [
            best_items(own, n, able if keep_rated else self._unrated(user, able))
            for user, own in zip(users.tolist(), scores, strict=True)
        ]
        explained = self.order.parts(users, best)
        return [
            self._told(user, items, own[items], parts)
            for user, own, items, parts in zip(users.tolist(), scores, best, explained, strict=True)
        ]

    def _unrated(self, user: int, able: np.ndarray) -> np.ndarray:
        left = able.copy()
        left[self.devices.rated[self._own(user)]] = False
        return left

    def _own(self, user: int) -> slice:
        return slice(self.devices.rated_start[user], self.devices.rated_start[user + 1])

    def _told(
        self, user: int, items: np.ndarray, scores: np.ndarray, parts: Parts
    ) -> list[Recommendation]:
        own = self._own(user)
        stars = dict(
            zip(self.devices.rated[own].tolist(), self.devices.stars[own].tolist(), strict=True)
        )
        # Choices (clicks, purchases) have no stars to speak of.
        chosen = self.expected is None and self.devices.scale == IMPLICIT_SCALE
        ratings: list[float | None] = [None] * len(items)
        if self.expected is not None:
            ratings = self.expected(np.full(len(items), user), items).tolist()
        told = []
        why = reasons(parts, items, self._undated)
        for item, rating, score, reason in zip(
            items.tolist(), ratings, scores.tolist(), why, strict=True
        ):
            title, year, genres = self._facts(item)
            star = None if chosen else stars.__getitem__
            words = in_words(reason, title=self._called, stars=star, expected=rating)
            told.append(
                Recommendation(
                    self.items.ids[item].item(), rating, title, score, year, genres, words
                )
            )
        return told

    def _called(self, item: int) -> str:
        return self._facts(item)[0] or f"item {self.items.ids[item]}"

    @cached_property
    def _rows(self) -> np.ndarray:
        if self.table is None:
            return np.full(len(self.items), -1)
        return self.table.index.find(self.items.ids)

    @cached_property
    def _undated(self) -> frozenset[int]:
        """Positions of items without a year in a table that has years of others."""
        years = () if self.table is None else self.table.years
        if all(year is None for year in years):
            return frozenset()
        rows = enumerate(self._rows.tolist())
        return frozenset(item for item, row in rows if row < 0 or years[row] is None)

    def _facts(self, item: int) -> tuple[str | None, int | None, tuple[str, ...]]:
        row = int(self._rows[item])
        if self.table is None or row < 0:
            return None, None, ()
        title = upright(self.table.titles[row]) or None
        return title, self.table.years[row], self.table.genres[row]


def best_items(scores: np.ndarray, n: int, able: np.ndarray) -> np.ndarray:
    """The ``n`` best of the able items, best first; equal ones in the order of the catalogue."""
    positions = np.flatnonzero(able)
    values = scores[positions]
    if n < len(positions):
        # Only the n-th best value, what is above it and what equals it is sorted: a few items.
        reached = values >= np.partition(values, len(values) - n)[len(values) - n]
        positions, values = positions[reached], values[reached]
    return np.asarray(positions[np.argsort(-values, kind="stable")[:n]])


def heights(devices: Devices, users: np.ndarray) -> csr_matrix:
    """Return how far above the lowest rating each user rated each item, in stars, by user."""
    from scipy.sparse import csr_matrix

    start, positions = _own_positions(devices, users)
    return csr_matrix(
        (devices.stars[positions] - 1.0, devices.rated[positions], start),
        shape=(len(users), len(devices.gamma)),
    )


def inputs(devices: Devices, users: np.ndarray, *, roots: bool = False) -> csr_matrix:
    """Return what each user's ratings count in lists: `heights`, and more for recent ones.

    With ``roots`` a rating counts by the root of its height.
    """
    own = heights(devices, users)
    if roots:
        own.data = np.sqrt(own.data)
    if devices.fresh is not None:
        own.data = own.data * devices.fresh[_own_positions(devices, users)[1]]
    return own


def _own_positions(devices: Devices, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where each of these users' ratings begin, and where each of them is on devices."""
    counts = np.diff(devices.rated_start)[users]
    start = np.concatenate(([0], np.cumsum(counts)))
    return start, np.arange(start[-1]) + np.repeat(devices.rated_start[users] - start[:-1], counts)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ChooseAndLike:
    """An order of items by what a user would choose and like.

    Attributes:
        devices: The users, with what they rated.
        predicted: Gives predicted ratings of all items, one row for each of some users.
        popularity: How often items are chosen by people in general.
        features: What tastes are about (``public.taste``), one row per item, or None.
        like_weight: Of a star of the predicted rating.
        taste_weight: Of the user's taste.
        margin: How far noise may have raised popularity, for each item; None: there is none in it.
    """

    devices: Devices
    predicted: Callable[[np.ndarray], np.ndarray]
    popularity: np.ndarray
    features: np.ndarray | None = None
    names: tuple[str, ...] = ()
    like_weight: float = LIKE
    taste_weight: float = 1.0
    margin: np.ndarray | None = None

    def scores(self, users: np.ndarray) -> np.ndarray:
        """Scores of all items, one row per user."""
        scores = log_popularity(self.popularity) + self._like(users)
        if self.features is not None:
            scores = scores + self._taste(users, self.features) @ self.features.T
        return np.asarray(scores)

    def parts(self, users: np.ndarray, lists: Sequence[np.ndarray]) -> Iterator[Parts]:
        """Yield the parts of each user's scores, against what people choose in general."""
        features = np.zeros((len(self.popularity), 0)) if self.features is None else self.features
        choices = Choices.of(features, self.popularity)
        popularity = log_popularity(self.popularity)
        usual = float(choices.shares @ popularity)
        certain = certainly_above(self.popularity, usual, self.margin)
        own = inputs(self.devices, users)
        lasting = self._lasting(users)
        for row, (like, items) in enumerate(zip(self._like(users), lists, strict=True)):
            here = slice(own.indptr[row], own.indptr[row + 1])
            rated = own.indices[here].astype(np.int64)
            apart = choices.apart(own.data[here].astype(np.float64), features[rated])
            pulls = self.taste_weight * lasting[row] * taste_by_rating(apart, choices)
            usual_like = float(choices.shares @ like)
            yield Parts(
                base=usual + usual_like + float(choices.mean @ pulls.sum(axis=0)),
                popularity=popularity[items] - usual,
                chosen=certain[items],
                stars=like[items] - usual_like,
                taste=TasteParts(
                    names=self.names,
                    apart=(features[items] - choices.mean).T,
                    present=(features[items] != 0).T,
                    pulls=pulls,
                    leaning=apart.sum(axis=0),
                ),
            )

    def _like(self, users: np.ndarray) -> np.ndarray:
        return np.asarray(self.like_weight * to_stars(self.predicted(users), self.devices.scale))

    def _taste(self, users: np.ndarray, features: np.ndarray) -> np.ndarray:
        found = taste(inputs(self.devices, users), features, self.popularity)
        return np.asarray(self.taste_weight * found * self._lasting(users)[:, None])

    def _lasting(self, users: np.ndarray) -> np.ndarray:
        lasting = self.devices.lasting
        return np.ones(len(users)) if lasting is None else lasting[users]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ByListModel:
    """Orders items by a model for lists.

    Attributes:
        margin: Where scores are logarithms of noisy popularity: how far noise may have raised it.
    """

    devices: Devices
    lists: ListModel
    margin: np.ndarray | None = None

    def scores(self, users: np.ndarray) -> np.ndarray:
        """Scores of all items, one row per user."""
        return self.lists.many(inputs(self.devices, users))

    def parts(self, users: np.ndarray, lists: Sequence[np.ndarray]) -> Iterator[Parts]:
        """Yield the parts of each user's scores: one per rated item, and one for everybody."""
        own = inputs(self.devices, users)
        for row, items in enumerate(lists):
            here = slice(own.indptr[row], own.indptr[row + 1])
            rated = own.indices[here].astype(np.int64)
            parts = list_parts(self.lists, rated, own.data[here], items)
            if self.margin is not None:
                popularity = np.exp(self.lists.output.astype(np.float64))
                certain = certainly_above(popularity, parts.base, self.margin)
                parts = replace(parts, chosen=certain[items])
            yield parts


def certainly_above(popularity: np.ndarray, usual: float, margin: np.ndarray | None) -> np.ndarray:
    """Return which items are chosen more than a usual one, beyond what noise may have added."""
    return np.asarray(popularity - (0.0 if margin is None else margin) > np.exp(usual))


PAIRS, FEW = 1.0, 10.0
"""Weight of a deviation of what goes together with a person's ratings, where a factor e in
popularity counts 1, and at how many ratings of heads it is less by root two. Best of .4 to 1.3 and
0, 10 and 30 on ratings held out within the training parts of ML-100K and ML-1M."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ByPairs:
    """Orders items by what a user would choose and like, and what goes with what they rated.

    The latter is of the items that ``lists`` knows, counted in deviations from its mean over them.

    Attributes:
        devices: The users, with what they rated.
        apart: Orders items without that.
        weight: Of a deviation, where somebody rated many heads; None: what the recommender makes
            it, by the largest number that items have in ``lists``, up to `PAIRS`.
        few: At how many it is less by root two.
    """

    devices: Devices
    lists: ListModel
    apart: ListOrder
    weight: float | None = None
    few: float = FEW

    def scores(self, users: np.ndarray) -> np.ndarray:
        """Scores of all items, one row per user."""
        scores, heads = self.apart.scores(users), self._heads
        together, weights = self._together(inputs(self.devices, users))
        scores[:, heads] += weights * (together - together.mean(axis=1, keepdims=True))
        return scores

    def parts(self, users: np.ndarray, lists: Sequence[np.ndarray]) -> Iterator[Parts]:
        """Yield the parts of the scores in each user's list."""
        own = inputs(self.devices, users)
        _, weights = self._together(own)
        even = np.zeros(self.lists.n_items)
        even[self._heads] = 1.0 / len(self._heads)
        for row, (parts, items) in enumerate(
            zip(self.apart.parts(users, lists), lists, strict=True)
        ):
            here = slice(own.indptr[row], own.indptr[row + 1])
            rated = own.indices[here].astype(np.int64)
            found = list_parts(self.lists, rated, own.data[here], items, even)
            added = found.own * float(weights[row, 0])
            added[:, self.lists.positions(items) < 0] = 0.0
            yield replace(parts, rated=found.rated, own=added)

    @property
    def _heads(self) -> np.ndarray:
        heads = self.lists.heads
        return np.arange(self.lists.n_items) if heads is None else heads

    def _together(self, own: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
        """Scores of heads, and what a unit of them counts for each user."""
        found = self.lists.many_known(own)
        deviation = found.std(axis=1, keepdims=True)
        known = own[:, self._heads].getnnz(axis=1)[:, None]
        weight = self.weight
        if weight is None:
            weight = PAIRS * min(127.0 * float(self.lists.decode.unit.max(initial=0.0)), 1.0)
        trust = weight * np.sqrt(known / (known + self.few))
        return found, trust / np.where(deviation > 0, deviation, np.inf)
