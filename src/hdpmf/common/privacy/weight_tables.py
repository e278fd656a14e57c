"""Tables of privacy weights as people wrote them: a weight per user, per item, or per rating."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpmf.common.data import IdIndex, Ratings
from hdpmf.common.data.checks import pair_keys
from hdpmf.common.data.columns import is_known
from hdpmf.common.data.items import read_frame
from hdpmf.errors import PrivacyError, RatingsError, hint

_WEIGHTS = ("weight", "privacyweight", "privacy")


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
