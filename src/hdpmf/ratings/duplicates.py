"""Several ratings of one item by one user: refused, or made one."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hdpmf.errors import ConfigError, RatingsError
from hdpmf.ratings.ids import Codes
from hdpmf.wording import say

Duplicates = Literal["error", "last", "first", "mean", "max"]
"""What becomes of them. ``last`` and ``first`` go by time where there are times, else by the order of rows."""

_CELLS_PER_ROW = 64

DUPLICATES: tuple[Duplicates, ...] = get_args(Duplicates)


def pair_keys(user_codes: Codes, item_codes: Codes, n_items: int) -> NDArray[np.int64]:
    """One number per pair of user and item."""
    keys = user_codes.astype(np.int64)
    keys *= n_items
    keys += item_codes
    return keys


def check_duplicates(name: str, user_codes: Codes, item_codes: Codes, n_items: int) -> None:
    """Refuse a second rating of the same item by the same user."""
    keys = pair_keys(user_codes, item_codes, n_items)
    repeated = len(keys) - _distinct(keys)
    if not repeated:
        return
    _, first_rows = np.unique(keys, return_index=True)
    again = np.ones(len(keys), dtype=bool)
    again[first_rows] = False
    raise RatingsError(
        f"{name}: row {np.argmax(again) + 1:,} rates an item that the same user has rated before "
        f"({repeated:,} such rows); keep one rating per user and item, or say which counts: {say('duplicates')}"
    )


def _distinct(keys: NDArray[np.int64]) -> int:
    """How many different ones there are."""
    highest = int(keys.max(initial=-1))
    if highest < _CELLS_PER_ROW * len(keys):  # dense tables: marking cells beats a sort by far
        marked = np.zeros(highest + 1, dtype=bool)
        marked[keys] = True
        return int(np.count_nonzero(marked))
    ordered = np.sort(keys)
    return min(len(keys), 1) + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def merged(
    keys: NDArray[np.int64],
    values: NDArray[np.float32],
    timestamps: NDArray[np.int64] | None,
    how: Duplicates,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """One row for each pair.

    Args:
        keys: The pair of each row.
        values: The rating of each row.
        timestamps: The time of each row, where known.
        how: Which of several counts; ``mean`` and ``max`` have the time of the last one.

    Returns:
        The rows that stay, in their order, and their ratings.
    """
    if how not in DUPLICATES:
        raise ConfigError(f"duplicates are treated as {', '.join(DUPLICATES)}, not {how!r}")
    order = np.argsort(keys, kind="stable") if timestamps is None else np.lexsort((timestamps, keys))
    ordered = keys[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    ends = np.append(starts[1:], len(order)) - 1
    chosen = order[starts if how == "first" else ends]
    combined = values[chosen]
    if how == "mean":
        totals = np.add.reduceat(values[order], starts, dtype=np.float64)
        combined = (totals / (ends - starts + 1)).astype(np.float32)
    elif how == "max":
        combined = np.maximum.reduceat(values[order], starts)
    in_order = np.argsort(chosen)
    return chosen[in_order], combined[in_order]
