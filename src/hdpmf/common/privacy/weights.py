"""Privacy weights: how much of epsilon each rating allows. Private, like the ratings themselves.

They are given as arrays or mappings, or read from frames and files: a weight per user, per item, or
per rating.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpmf.common.data import IdIndex, Ratings
from hdpmf.common.data.checks import pair_keys
from hdpmf.common.data.columns import is_known
from hdpmf.common.data.items import read_frame
from hdpmf.errors import PrivacyError, RatingsError, hint

_WEIGHTS = ("weight", "privacyweight", "privacy")


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
        check_ratings(ratings)
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
        check_ratings(ratings)
        given = _checked(weights, len(ratings), "rating")
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
        out[positions] = _numbers(list(given.values()), kind)
        return out
    array = _numbers(given, kind)
    return np.full(len(index), array) if array.ndim == 0 else array


def check_ratings(ratings: object) -> None:
    """Refuse what weights cannot be for."""
    if not isinstance(ratings, Ratings):
        raise RatingsError(
            f"weights are of Ratings, not of a {type(ratings).__name__}; make some with Ratings.of"
        )


def _numbers(weights: Any, kind: str) -> np.ndarray:
    array = np.asarray(weights)
    if array.dtype.kind not in "iuf":
        raise PrivacyError(f"{kind} weights are numbers above 0 and at most 1, not {array.dtype}")
    return array.astype(np.float64)


def _checked(weights: Any, expected: int, kind: str) -> np.ndarray:
    array = _numbers(weights, kind)
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


@dataclass(frozen=True, repr=False)
class WeightTable:
    """A table of privacy weights, found in a frame or a file."""

    name: str
    weights: np.ndarray
    users: list[Any] | None
    items: list[Any] | None

    @property
    def per(self) -> str:
        """The owner of a weight: ``user``, ``item`` or ``rating``."""
        if self.users is not None and self.items is not None:
            return "rating"
        return "item" if self.users is None else "user"

    @classmethod
    def of(cls, data: Any, name: str = "weights") -> WeightTable:
        """Find them in a data frame, or in a CSV, TSV or Parquet file with a header.

        Raises:
            RatingsError: There is no column of weights, or none of users or items.
            PrivacyError: A weight is not in (0, 1].
        """
        import narwhals as nw

        if isinstance(data, (str, os.PathLike)):
            name = os.path.basename(os.fspath(data))
            data = read_frame(data, _id_columns, "privacy weights")
        try:
            table = nw.from_native(data, eager_only=True)
        except TypeError:
            raise RatingsError(
                f"{name}: {type(data).__name__} is neither a data frame nor a file's path"
            ) from None
        columns = table.columns
        found = [column for column in columns if _normalized_name(column) in _WEIGHTS]
        owners = {
            ours: [column for column in columns if is_known(column, ours)]
            for ours in ("user", "item")
        }
        if len(found) != 1 or not any(owners.values()) or max(map(len, owners.values())) > 1:
            raise RatingsError(
                f"{name}: privacy weights are in a column 'weight' beside a column 'user' (a "
                "weight per user), 'item' (per item), or both (per rating); this has columns "
                + ", ".join(columns[:12])
            )
        ids = {ours: table[names[0]].to_list() if names else None for ours, names in owners.items()}
        return cls(name, _checked_column(table[found[0]], name), ids["user"], ids["item"])


def per_owner(
    table: WeightTable, index: IdIndex, present: np.ndarray, missing: float | None
) -> np.ndarray:
    """The weight of each id of an index, given per user or per item.

    Args:
        table: The weights.
        index: The users or items.
        present: Which of them have a rating: the others need no weight.
        missing: The weight of those whom the table does not name; None: they have to be named.
    """
    codes = _find(index, table.users if table.per == "user" else table.items or [])
    _refuse_twice(codes, table)
    weights = np.full(len(index), np.nan)
    weights[codes[codes >= 0]] = table.weights[codes >= 0]
    _fill(weights, present, table, missing)
    return weights


def per_pair(table: WeightTable, ratings: Ratings, missing: float | None) -> np.ndarray:
    """Each rating's weight in a table per rating; arguments as `per_owner`."""
    users, items = _find(ratings.users, table.users), _find(ratings.items, table.items)
    known = np.flatnonzero((users >= 0) & (items >= 0))
    keys = np.full(len(users), -1, np.int64)
    keys[known] = pair_keys(users[known], items[known], ratings.n_items)
    _refuse_twice(keys, table)
    order = known[np.argsort(keys[known], kind="stable")]
    wanted = pair_keys(ratings.user_codes, ratings.item_codes, ratings.n_items)
    rows = np.full(len(ratings), -1, np.int64)
    if len(order):
        positions = np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)
        same = keys[order][positions] == wanted
        rows[same] = order[positions[same]]
    weights = np.where(rows >= 0, table.weights[rows], np.nan)
    _fill(weights, np.ones(len(ratings), bool), table, missing)
    return weights


def _find(index: IdIndex, ids: Sequence[Any] | None) -> np.ndarray:
    """Codes of ids, which compare as they are written."""
    listed = list(ids or ())
    if index.is_integer == all(isinstance(value, int) for value in listed):
        return index.find(listed)
    positions = {str(value): code for code, value in enumerate(index.ids.tolist())}
    return np.array([positions.get(str(value), -1) for value in listed], np.int32)


def _fill(
    weights: np.ndarray, present: np.ndarray, table: WeightTable, missing: float | None
) -> None:
    named = ~np.isnan(weights)
    if not named.any():
        raise PrivacyError(
            f"{table.name}: none of its {table.per}s has a rating here; are its ids "
            "written otherwise?"
        )
    without = int((present & ~named).sum())
    if without and missing is None:
        raise PrivacyError(
            f"{table.name}: {without:,} of {int(present.sum()):,} {table.per}s have no weight in "
            f"it; add them, or give the others a weight with {hint('missing')}"
        )
    weights[~named] = 1.0 if missing is None else missing


def _refuse_twice(codes: np.ndarray, table: WeightTable) -> None:
    rows = np.flatnonzero(codes >= 0)
    _, first = np.unique(codes[rows], return_index=True)
    again = np.setdiff1d(np.arange(len(rows)), first)
    if len(again):
        raise PrivacyError(
            f"{table.name}: row {rows[again[0]] + 1:,} is about a {table.per} that has a "
            "weight before"
        )


def _checked_column(series: Any, name: str) -> np.ndarray:
    if not series.dtype.is_numeric():
        raise PrivacyError(
            f"{name}: column '{series.name}' must hold numbers above 0 and at most 1, not "
            f"{series.dtype}"
        )
    weights = np.array(series.to_list(), np.float64)  # what is missing becomes NaN
    bad = np.flatnonzero(~((weights > 0) & (weights <= 1)))
    if len(bad):
        raise PrivacyError(
            f"{name}: column '{series.name}', row {bad[0] + 1:,}: a privacy weight must be above 0 "
            f"and at most 1 ({len(bad):,} such rows)"
        )
    return weights


def _id_columns(names: Sequence[str]) -> list[str]:
    return [name for name in names if is_known(name, "user") or is_known(name, "item")]


def _normalized_name(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))
