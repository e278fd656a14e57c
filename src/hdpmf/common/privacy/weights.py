"""Privacy weights: how much of epsilon each rating allows. Private, like the ratings themselves.

They are given as arrays or mappings, or read from frames and files: a weight per user, per item, or
per rating. Levels of what is hidden go with them (``hdpmf.common.privacy.levels``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hdpmf.common.data import IdIndex, Ratings
from hdpmf.common.privacy.levels import (
    HIDDEN,
    ITEM_DEFAULT,
    USER_DEFAULT,
    level_codes,
    spread_levels,
)
from hdpmf.common.privacy.weight_tables import WeightTable, per_owner, per_pair
from hdpmf.errors import PrivacyError


class PrivacyWeights:
    """W_ij in (0, 1]: beta_i * gamma_j, or a number of its own for each training rating.

    Make one with ``PrivacyWeights.from_frame``, ``from_parts``, ``uniform``, ``per_rating``, or
    ``PrivacySpec().draw``.

    Attributes:
        users: The users that have a weight.
        items: The items that have a weight.
        beta: Weight of each user.
        gamma: Weight of each item.
        rating_weights: Weight of each rating of one particular table, where weights are not a
            product. Pairs outside that table then get ``beta`` (the user's mean weight) times
            ``gamma`` (1).
        user_levels: What each user hides, as positions in ``LEVELS``; None: everybody everything.
        item_levels: The same for items; None: no item restricts what a user shows.
        rating_levels: The same for each rating of one particular table.
    """

    def __init__(
        self,
        users: IdIndex,
        items: IdIndex,
        beta: np.ndarray,
        gamma: np.ndarray,
        rating_weights: np.ndarray | None = None,
        *,
        user_levels: np.ndarray | None = None,
        item_levels: np.ndarray | None = None,
        rating_levels: np.ndarray | None = None,
    ) -> None:
        self.users = users
        self.items = items
        self.beta = _checked(beta, len(users), "user")
        self.gamma = _checked(gamma, len(items), "item")
        self.rating_weights = rating_weights
        self.user_levels = _checked_levels(user_levels, len(users), "user")
        self.item_levels = _checked_levels(item_levels, len(items), "item")
        self.rating_levels = _checked_levels(rating_levels, None, "rating")

    def __repr__(self) -> str:
        return f"PrivacyWeights({len(self.users)} users, {len(self.items)} items)"

    @classmethod
    def from_parts(cls, ratings: Ratings, users: Any = 1.0, items: Any = 1.0) -> PrivacyWeights:
        """Weights per user and per item: a mapping from ids, an array in id order, or a number."""
        return cls(
            ratings.users,
            ratings.items,
            _spread(users, ratings.users, "user"),
            _spread(items, ratings.items, "item"),
        )

    @classmethod
    def uniform(cls, ratings: Ratings, weight: float = 1.0) -> PrivacyWeights:
        """The same weight for every rating."""
        return cls.from_parts(ratings, users=weight)

    @classmethod
    def per_rating(cls, ratings: Ratings, weights: Iterable[float]) -> PrivacyWeights:
        """One weight for each row of ``ratings``, in its order."""
        given = _checked(np.asarray(weights, dtype=np.float64), len(ratings), "rating")
        counts = ratings.user_counts()
        totals = np.bincount(ratings.user_codes, given, ratings.n_users)
        beta = np.where(counts > 0, totals / np.maximum(counts, 1), 1.0)
        return cls(ratings.users, ratings.items, beta, np.ones(ratings.n_items), given)

    @classmethod
    def from_frame(
        cls, ratings: Ratings, *sources: Any, missing: float | None = None
    ) -> PrivacyWeights:
        """Weights as people wished them, from data frames or files.

        Args:
            ratings: The ratings that they are for.
            sources: A frame, or the path of a CSV, TSV or Parquet file, with a column ``weight``
                beside ``user`` (a weight per user), ``item`` (per item) or both (per rating), and
                if wished a column ``level`` (hidden, seen or open). One per user and one per item
                go together. Whom it names and who has no rating here does not matter.
            missing: The weight of whoever it does not name; without it, all have to be named. The
                level of users and ratings that are not named is hidden, that of items open.

        Raises:
            PrivacyError: A weight is outside (0, 1], or somebody has none, or two; or something in
                the column ``level`` is none.
        """
        tables = {table.per: table for table in (WeightTable.of(given) for given in sources)}
        if not sources or len(tables) < len(sources) or ("rating" in tables and len(tables) > 1):
            raise PrivacyError(
                "give weights per user, per item, or both; or one table with weights per rating"
            )
        if missing is not None and not 0 < missing <= 1:
            raise PrivacyError(
                "the weight of those who are not named must be above 0 and at most 1"
            )
        if "rating" in tables:
            pairs = tables["rating"]
            rows, weights = per_pair(pairs, ratings, missing)
            return cls.per_rating(ratings, weights)._with_rating_levels(ratings, pairs, rows)
        sides = {
            "user": (ratings.users, ratings.user_counts()),
            "item": (ratings.items, ratings.item_counts()),
        }
        parts = {
            per: per_owner(table, sides[per][0], sides[per][1] > 0, missing)
            for per, table in tables.items()
        }
        levels = {f"{per}s": table.owner_levels(sides[per][0]) for per, table in tables.items()}
        return cls.from_parts(
            ratings, users=parts.get("user", 1.0), items=parts.get("item", 1.0)
        ).with_levels(**levels)

    def with_levels(self, users: Any = None, items: Any = None) -> PrivacyWeights:
        """The same weights with levels of what is hidden; what is None stays as it was.

        Args:
            users: A level for all users, one for each in their order, or a mapping from ids; whom
                a mapping does not name hides everything.
            items: The same for items: an item that somebody marked is ``hidden`` whoever rated it.
                What a mapping does not name restricts nothing.

        Raises:
            PrivacyError: Something is no level, or an id is not among these users or items.
        """
        own = self.user_levels
        if users is not None:
            own = spread_levels(users, self.users, USER_DEFAULT, "user")
        marks = self.item_levels
        if items is not None:
            marks = spread_levels(items, self.items, ITEM_DEFAULT, "item")
        return self._copy(user_levels=own, item_levels=marks)

    @property
    def has_levels(self) -> bool:
        """True if somebody said what is hidden; without, everything is."""
        own = (self.user_levels, self.item_levels, self.rating_levels)
        return any(levels is not None for levels in own)

    def levels_for(self, ratings: Ratings) -> np.ndarray:
        """The level of each row of ``ratings``: the more hidden one of its user's and its item's.

        Levels of single ratings count beside both.
        """
        levels = np.full(len(ratings), HIDDEN, np.int8)
        if self.user_levels is not None:
            users = _positions(self.users, ratings.users, "user")
            levels = self.user_levels[users][ratings.user_codes]
        if self.item_levels is not None:
            items = _positions(self.items, ratings.items, "item")
            levels = np.minimum(levels, self.item_levels[items][ratings.item_codes])
        if self.rating_levels is not None:
            if len(self.rating_levels) != len(ratings):
                raise PrivacyError(
                    f"these levels belong to a table of {len(self.rating_levels)} ratings, not "
                    f"{len(ratings)}; make weights for the table that you fit"
                )
            levels = np.minimum(levels, self.rating_levels)
        return np.asarray(levels, np.int8)

    def _with_rating_levels(
        self, ratings: Ratings, table: WeightTable, rows: np.ndarray
    ) -> PrivacyWeights:
        """The same with the levels of a table per rating; a user's is that of the least hidden."""
        if table.levels is None:
            return self
        levels = np.full(len(ratings), HIDDEN, np.int8)
        levels[rows >= 0] = table.levels[rows[rows >= 0]]
        users = np.full(ratings.n_users, HIDDEN, np.int8)
        np.maximum.at(users, ratings.user_codes, levels)
        return self._copy(user_levels=users, rating_levels=levels)

    def _copy(self, **changes: Any) -> PrivacyWeights:
        kept = {
            name: getattr(self, name)
            for name in ("rating_weights", "user_levels", "item_levels", "rating_levels")
        }
        return PrivacyWeights(self.users, self.items, self.beta, self.gamma, **{**kept, **changes})

    def for_ratings(self, ratings: Ratings) -> np.ndarray:
        """The weight of each row of ``ratings``."""
        if self.rating_weights is not None:
            if len(self.rating_weights) != len(ratings):
                raise PrivacyError(
                    f"these weights belong to a table of {len(self.rating_weights)} ratings, not "
                    f"{len(ratings)}; make weights for the table that you fit"
                )
            return self.rating_weights
        beta = self.for_users(ratings.users)[ratings.user_codes]
        gamma = self.for_items(ratings.items)[ratings.item_codes]
        return np.asarray(beta * gamma)

    def take(self, positions: np.ndarray) -> PrivacyWeights:
        """The weights of these rows of the table that they were made for."""
        if self.rating_weights is None and self.rating_levels is None:
            return self
        own = self.rating_weights, self.rating_levels
        weights, levels = (None if each is None else each[positions] for each in own)
        return self._copy(rating_weights=weights, rating_levels=levels)

    def at_most(self, ratings: Ratings, limits: np.ndarray) -> PrivacyWeights:
        """The same weights, with no row of ``ratings`` above its limit."""
        own = self.for_ratings(ratings)
        if not bool((own > limits).any()):
            return self
        return self._copy(rating_weights=np.minimum(own, limits))

    def for_users(self, users: IdIndex) -> np.ndarray:
        """User weights in the order of ``users``; a user without a weight is an error."""
        return np.asarray(self.beta[_positions(self.users, users, "user")])

    def for_items(self, items: IdIndex) -> np.ndarray:
        """Item weights in the order of ``items``; an item without a weight is an error."""
        return np.asarray(self.gamma[_positions(self.items, items, "item")])


def _positions(known: IdIndex, wanted: IdIndex, kind: str) -> np.ndarray:
    if known is wanted:
        return np.arange(len(known))
    positions = known.find(wanted.ids)
    missing = int((positions < 0).sum())
    if missing:
        raise PrivacyError(
            f"{missing} {kind}s have ratings but no privacy weight; draw or give the "
            "weights for this table"
        )
    return positions


def _spread(given: Any, index: IdIndex, kind: str) -> np.ndarray:
    if isinstance(given, Mapping):
        positions = index.find(list(given))
        unknown = int((positions < 0).sum())
        if unknown or len(positions) != len(index):
            raise PrivacyError(
                f"weights were given for {len(given)} {kind}s, of which {unknown} are not in the "
                f"ratings, and {len(index) - (len(given) - unknown)} {kind}s of the ratings have "
                "none; give each exactly one"
            )
        out = np.empty(len(index))
        out[positions] = list(given.values())
        return out
    array = np.asarray(given, dtype=np.float64)
    return np.full(len(index), array) if array.ndim == 0 else array


def _checked(weights: Any, expected: int, kind: str) -> np.ndarray:
    array = np.array(weights, dtype=np.float64)
    if array.shape != (expected,):
        raise PrivacyError(
            f"expected one weight for each of {expected} {kind}s, got an array of shape "
            f"{array.shape}"
        )
    bad = ~((array > 0) & (array <= 1))
    if bad.any():
        raise PrivacyError(
            f"{int(bad.sum())} {kind} weights are not in (0, 1] (the first is number "
            f"{int(np.argmax(bad))}); a weight of 1 allows the whole of epsilon, smaller ones "
            "allow less, 0 or less means nothing"
        )
    array.flags.writeable = False
    return array


def _checked_levels(
    levels: np.ndarray | None, expected: int | None, kind: str
) -> np.ndarray | None:
    if levels is None:
        return None
    codes = level_codes(levels, f"levels of {kind}s")
    if expected is not None and len(codes) != expected:
        raise PrivacyError(f"expected one level for each of {expected} {kind}s, got {len(codes)}")
    codes.flags.writeable = False
    return codes
