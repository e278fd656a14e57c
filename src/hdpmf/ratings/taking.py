"""Whatever holds ratings, as ratings: what models call first."""

from __future__ import annotations

from typing import Any, TypeAlias

from hdpmf.ratings.scale import ScaleLike
from hdpmf.ratings.table import Ratings

RatingsLike: TypeAlias = Ratings | Any
"""Ratings, a data frame (pandas, polars, PyArrow, ...), a SciPy sparse matrix of users by items, or a file's path."""


def as_ratings(data: RatingsLike, scale: ScaleLike | None = None, *, implicit: bool | None = False) -> Ratings:
    """The ratings that `Ratings.of` makes of data, or the same ones where it is ratings already.

    Args:
        data: What holds them.
        scale: Their public scale, where the data is no `Ratings`, which know their own.
        implicit: See `Ratings.of`.
    """
    return data if isinstance(data, Ratings) else Ratings.of(data, scale=scale, implicit=implicit)
