"""Pairs and ratings apart, as scikit-learn has them: ``X`` with a user and an item per row, ``y`` with the ratings."""

from __future__ import annotations

from typing import Any

import numpy as np

from hdpmf.errors import RatingsError
from hdpmf.ratings import Ratings
from hdpmf.ratings.scale import ScaleLike


def columns_of(pairs: Any) -> tuple[np.ndarray, np.ndarray]:
    """The users and the items of ``X``: its columns ``user`` and ``item``, or the first two.

    Raises:
        RatingsError: It has no two columns.
    """
    names = [str(name) for name in getattr(pairs, "columns", ())]
    if {"user", "item"} <= set(names):
        return np.asarray(pairs["user"]), np.asarray(pairs["item"])
    table = np.asarray(pairs)
    if table.ndim != 2 or table.shape[1] != 2:
        raise RatingsError(f"pairs have two columns, user and item; this has the shape {table.shape}")
    return table[:, 0], table[:, 1]


def joined(pairs: Any, ratings: Any, scale: ScaleLike | None) -> Ratings:
    """Both together, as a table."""
    users, items = columns_of(pairs)
    return Ratings.from_arrays(users, items, np.asarray(ratings), scale=scale)


def tags() -> Any:
    """What scikit-learn wants to know about an estimator; called by scikit-learn alone."""
    from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

    return Tags(
        estimator_type="regressor",
        target_tags=TargetTags(required=True),
        regressor_tags=RegressorTags(),
        input_tags=InputTags(string=True),
        no_validation=True,
    )
