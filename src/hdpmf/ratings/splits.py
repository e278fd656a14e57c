"""Cutting ratings into training and test.

Every split is per user, made of whole-array operations (a sort of random keys within users), and the same for
the same seed. The parts keep both id indexes of the whole, so codes mean the same thing in each of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hdpmf.errors import ConfigError
from hdpmf.ratings.randomness import RngLike, as_generator
from hdpmf.ratings.table import Ratings


def hold_out(ratings: Ratings, per_user: int = 10, *, rng: RngLike = 0) -> tuple[Ratings, Ratings]:
    """Hold out ratings of each user, chosen at random.

    A user with ``per_user`` ratings or fewer keeps one of them in training and gives the rest to the test; a
    user with a single rating gives none.

    Args:
        ratings: What to split.
        per_user: How many ratings of each user go to the test.
        rng: A seed or a generator.

    Returns:
        Training and test.
    """
    if not _is_count(per_user):
        raise ConfigError("per_user must be an integer of at least 1")
    rank, counts = _rank_within_user(ratings, as_generator(rng))
    held = rank < np.minimum(per_user, counts - 1)[ratings.user_codes]
    return ratings.take(~held), ratings.take(held)


def leave_one_out(ratings: Ratings, *, rng: RngLike = 0) -> tuple[Ratings, Ratings]:
    """Hold out one rating of each user; a user's only rating stays in training."""
    return hold_out(ratings, 1, rng=rng)


def k_fold(ratings: Ratings, k: int = 5, *, rng: RngLike = 0) -> Iterator[tuple[Ratings, Ratings]]:
    """Go through ``k`` pairs of training and validation; each rating is in exactly one validation part.

    Each user's ratings are dealt out evenly, beginning at a random fold, so that the folds are of nearly
    equal size. A user with a single rating is absent from the training part of the fold that has it.
    """
    if not _is_count(k) or k < 2:
        raise ConfigError("k must be an integer of at least 2")
    # Drawn here and not at the first next(): a shared generator must not depend on when the folds are used.
    generator = as_generator(rng)
    rank, _ = _rank_within_user(ratings, generator)
    first_fold = generator.integers(0, k, size=ratings.n_users)
    fold = (rank + first_fold[ratings.user_codes]) % k
    return ((ratings.take(fold != part), ratings.take(fold == part)) for part in range(k))


def sparsify(ratings: Ratings, fraction: float, *, rng: RngLike = 0) -> Ratings:
    """Keep a fraction of each user's ratings, rounded to the nearest count and at least one."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
        raise ConfigError("fraction must be a number above 0 and at most 1")
    rank, counts = _rank_within_user(ratings, as_generator(rng))
    kept = np.maximum(1, np.floor(fraction * counts + 0.5)).astype(np.int64)
    return ratings.take(rank < kept[ratings.user_codes])


def _rank_within_user(ratings: Ratings, generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give each rating a random place among its user's ratings; also return the ratings per user."""
    n = len(ratings)
    # One 64-bit key, user above and randomness below, sorts faster than two keys; the stable sort makes ties
    # fall the same way on every processor.
    keys = ratings.user_codes.astype(np.uint64) << np.uint64(32)
    keys |= generator.integers(0, 2**32, size=n, dtype=np.uint64)
    order = np.argsort(keys, kind="stable")
    counts = ratings.user_counts()
    starts = np.cumsum(counts) - counts
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n) - np.repeat(starts, counts)
    return rank, counts


def _is_count(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1
