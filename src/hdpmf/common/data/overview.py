"""Summaries of ratings as given: counts, a guessed scale, duplicates, times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hdpmf.common.data import checks
from hdpmf.common.data.checks import pair_keys
from hdpmf.common.data.columns import Layout
from hdpmf.common.data.readers import read_columns
from hdpmf.common.data.scale import RatingScale
from hdpmf.common.data.table import Ratings

# Scales that people are asked to rate on; the first that has room for the ratings is the guess.
_SCALES = ((1, 5), (0.5, 5), (0, 5), (1, 10), (0, 10), (-10, 10), (0, 100))
_MOST_STEPS = 201


@dataclass(frozen=True, repr=False)
class Overview:
    """A summary of a table or file of ratings.

    Attributes:
        name: What it is called.
        n_rows: Rows, duplicates and all.
        user_counts: Rows of each user.
        item_counts: Rows of each item.
        id_kinds: ``integers`` or ``text``, of users and of items.
        n_duplicates: Rows about a pair that an earlier row is about.
        scale: Of the ratings: known, or guessed from them; None for implicit feedback.
        off_scale: Rows whose rating is no finite number.
        values: The finite ratings, duplicates and all.
        timestamps: Seconds since 1970 of each row, or None.
        missing: In how many of the rows that were left out each column has nothing.
        n_dropped: Rows that were left out, because something is missing.
    """

    name: str
    n_rows: int
    user_counts: NDArray[np.int64] = field(repr=False)
    item_counts: NDArray[np.int64] = field(repr=False)
    id_kinds: tuple[str, str]
    n_duplicates: int
    scale: RatingScale | None
    off_scale: int
    values: NDArray[np.float32] = field(repr=False)
    timestamps: NDArray[np.int64] | None = field(repr=False)
    missing: Mapping[str, int] = field(default_factory=dict)
    n_dropped: int = 0

    @property
    def density(self) -> float:
        """The share of all user-item pairs that there is a row about."""
        return (self.n_rows - self.n_duplicates) / (len(self.user_counts) * len(self.item_counts))


def summarize(ratings: Ratings) -> Overview:
    """Of ratings that are known already."""
    return Overview(
        ratings.name,
        len(ratings),
        ratings.user_counts(),
        ratings.item_counts(),
        (_kind(ratings.users.is_integer), _kind(ratings.items.is_integer)),
        0,
        None if ratings.implicit else ratings.scale,
        0,
        ratings.values,
        ratings.timestamps,
    )


def summarize_file(
    path: str | os.PathLike[str], columns: Mapping[str, str] | None = None
) -> Overview:
    """Of a file as it is: duplicates and what is missing are counted, the scale is guessed."""
    name = os.path.basename(os.fspath(path))
    found = read_columns(path, Layout(columns, implicit=None, missing="drop"))
    rows, given = len(found.frame), found.get("rating")
    users, user_index = checks.codes(name, "user", found.frame["user"], None, rows)
    items, item_index = checks.codes(name, "item", found.frame["item"], None, rows)
    numbers = np.empty(0, np.float32) if given is None else checks.numbers(name, given)
    times = found.get("timestamp")
    values = numbers[np.isfinite(numbers)]
    return Overview(
        name,
        rows,
        np.bincount(users, minlength=len(user_index)),
        np.bincount(items, minlength=len(item_index)),
        (_kind(user_index.is_integer), _kind(item_index.is_integer)),
        rows - len(np.unique(pair_keys(users, items, len(item_index)))),
        guess_scale(values) if len(values) else None,
        len(numbers) - len(values),
        values,
        None if times is None else checks.times(name, times),
        found.missing,
        found.n_dropped,
    )


def guess_scale(values: NDArray[np.float32]) -> RatingScale:
    """Guess the scale: a common one that has room for the ratings, with the step between them."""
    low, high = float(values.min()), float(values.max())
    for bottom, top in _SCALES:
        if bottom <= low and high <= top and high > top / 2:
            low, high = bottom, top
            break
    distinct = np.unique(values).astype(np.float64)
    step = float(np.diff(distinct).min()) if 1 < len(distinct) <= _MOST_STEPS else None
    if step is not None:
        levels = (distinct - low) / step
        step = (
            step
            if bool((np.abs(levels - np.rint(levels)) < 1e-3).all()) and step <= high - low
            else None
        )
    return RatingScale(low, high if high > low else low + 1.0, step)


def _kind(integers: bool) -> str:
    return "integers" if integers else "text"
