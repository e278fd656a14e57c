"""Privacy weights: how much of epsilon each rating allows. Private, like the ratings themselves.

They are given as arrays or mappings, or read from frames and files: a weight per user, per item, or
per rating.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hdpmf.common.data import IdIndex, Ratings
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
    """

    def __init__(
        self,
        users: IdIndex,
        items: IdIndex,
        beta: np.ndarray,
        gamma: np.ndarray,
        rating_weights: np.ndarray | None = None,
    ) -> None:
        self.users = users
        self.items = items
        self.beta = _checked(beta, len(users), "user")
        self.gamma = _checked(gamma, len(items), "item")
        self.rating_weights = rating_weights

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
                beside ``user`` (a weight per user), ``item`` (per item) or both (per rating). One
                per user and one per item go together. Whom it names and who has no rating here
                does not matter.
            missing: The weight of whoever it does not name; without it, all have to be named.

        Raises:
            PrivacyError: A weight is outside (0, 1], or somebody has none, or two.
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
            return cls.per_rating(ratings, per_pair(tables["rating"], ratings, missing))
        sides = {
            "user": (ratings.users, ratings.user_counts()),
            "item": (ratings.items, ratings.item_counts()),
        }
        parts = {
            per: per_owner(table, sides[per][0], sides[per][1] > 0, missing)
            for per, table in tables.items()
        }
        return cls.from_parts(ratings, users=parts.get("user", 1.0), items=parts.get("item", 1.0))

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
        if self.rating_weights is None:
            return self
        return self._with(self.rating_weights[positions])

    def at_most(self, ratings: Ratings, limits: np.ndarray) -> PrivacyWeights:
        """The same weights, with no row of ``ratings`` above its limit."""
        own = self.for_ratings(ratings)
        if not bool((own > limits).any()):
            return self
        return self._with(np.minimum(own, limits))

    def _with(self, rating_weights: np.ndarray) -> PrivacyWeights:
        return PrivacyWeights(self.users, self.items, self.beta, self.gamma, rating_weights)

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
