"""Splits into training and test ratings: at random, by time, or predefined as two files.

Splits are the same for the same seed. The parts keep both id indexes of the whole, so codes mean
the same thing in each of them. By time, nobody's training has a rating that is later than one in
their test. `Ratings` has these functions as methods.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdpmf.common.data.checks import RngLike, as_generator, is_count
from hdpmf.common.data.ids import merge
from hdpmf.common.data.items import ItemTable
from hdpmf.errors import ConfigError, RatingsError, hint

if TYPE_CHECKING:
    from hdpmf.common.data.table import Ratings


def hold_out(ratings: Ratings, per_user: int = 10, *, rng: RngLike = 0) -> tuple[Ratings, Ratings]:
    """Hold out ratings of each user, chosen at random.

    A user with ``per_user`` ratings or fewer keeps one of them in training and gives the rest to
    the test; a user with a single rating gives none.

    Args:
        ratings: What to split.
        per_user: How many ratings of each user go to the test.
        rng: A seed or a generator.

    Returns:
        Training and test.
    """
    if not is_count(per_user):
        raise ConfigError("per_user must be an integer of at least 1")
    rank, counts = _rank_within_user(ratings, as_generator(rng))
    held = rank < np.minimum(per_user, counts - 1)[ratings.user_codes]
    return ratings.take(~held), ratings.take(held)


def hold_out_last(ratings: Ratings, per_user: int = 1) -> tuple[Ratings, Ratings]:
    """Hold out the last ratings of each user; 1: leave the last one out.

    A user's ratings of the same second are ordered by row. As with `hold_out`, one rating stays in
    training.
    """
    if not is_count(per_user):
        raise ConfigError("per_user must be an integer of at least 1")
    age, counts = _age_within_user(ratings)
    held = age < np.minimum(per_user, counts - 1)[ratings.user_codes]
    return ratings.take(~held), ratings.take(held)


def ratio(ratings: Ratings, fraction: float = 0.2, *, rng: RngLike = 0) -> tuple[Ratings, Ratings]:
    """Hold out a fraction of all ratings, chosen at random, whoever gave them.

    Some users may have all of theirs in the test: how a model treats newcomers is measured, too.
    """
    size = _test_size(ratings, fraction)
    held = np.zeros(len(ratings), dtype=bool)
    held[as_generator(rng).permutation(len(ratings))[:size]] = True
    return ratings.take(~held), ratings.take(held)


def by_time(
    ratings: Ratings, fraction: float = 0.2, *, per_user: bool = False
) -> tuple[Ratings, Ratings]:
    """Hold out what came last.

    Args:
        ratings: What to split; it needs timestamps.
        fraction: Of the ratings, for the test.
        per_user: False: one moment for everybody, which is what a service meets; all ratings of
            that second and later are the test, so it may be somewhat larger. True: that fraction of
            each user's own, at least one rating staying in training.
    """
    if per_user:
        _check_fraction(fraction)
        age, counts = _age_within_user(ratings)
        held = age < np.minimum(np.floor(fraction * counts + 0.5), counts - 1)[ratings.user_codes]
        return ratings.take(~held), ratings.take(held)
    size = _test_size(ratings, fraction)
    times = _times(ratings)
    moment = np.partition(times, len(times) - size)[len(times) - size]
    held = times >= moment
    if held.all():
        raise RatingsError(
            f"{ratings.name}: all ratings are of one second, so time does not tell training "
            "from test"
        )
    return ratings.take(~held), ratings.take(held)


def k_fold(ratings: Ratings, k: int = 5, *, rng: RngLike = 0) -> Iterator[tuple[Ratings, Ratings]]:
    """Yield ``k`` pairs of training and validation; each rating is validated once.

    Each user's ratings are dealt out evenly, beginning at a random fold, so that the folds are of
    nearly equal size. A user with a single rating is absent from the training part of the fold that
    has it.
    """
    if not is_count(k) or k < 2:
        raise ConfigError("k must be an integer of at least 2")
    # Drawn here and not at the first next(): a shared generator must not depend on when the folds
    # are used.
    generator = as_generator(rng)
    rank, _ = _rank_within_user(ratings, generator)
    first_fold = generator.integers(0, k, size=ratings.n_users)
    fold = (rank + first_fold[ratings.user_codes]) % k
    return ((ratings.take(fold != part), ratings.take(fold == part)) for part in range(k))


def sparsify(ratings: Ratings, fraction: float, *, rng: RngLike = 0) -> Ratings:
    """Keep a fraction of each user's ratings, rounded to the nearest count and at least one."""
    if (
        isinstance(fraction, bool)
        or not isinstance(fraction, (int, float))
        or not 0 < fraction <= 1
    ):
        raise ConfigError("fraction must be a number above 0 and at most 1")
    rank, counts = _rank_within_user(ratings, as_generator(rng))
    kept = np.maximum(1, np.floor(fraction * counts + 0.5)).astype(np.int64)
    return ratings.take(rank < kept[ratings.user_codes])


CUTS = ("hold-out", "last", "ratio", "time", "user-time")
"""The kinds of `cut`."""

BY_TIME = ("last", "time", "user-time")
"""Those that hold out what came last."""


def cut(
    ratings: Ratings, kind: str, amount: float | None = None, rng: RngLike = 0
) -> tuple[Ratings, Ratings]:
    """Split by name: ``hold-out``, ``last``, ``ratio``, ``time`` or ``user-time``.

    Args:
        ratings: What to split.
        kind: How.
        amount: Test ratings per user (10 for ``hold-out`` and 1 for ``last`` where it is not
            given), or the fraction of all ratings or of each user's (0.2).
        rng: A seed or a generator, for those that are random.
    """
    if kind == "hold-out":
        return hold_out(ratings, 10 if amount is None else _whole(amount), rng=rng)
    if kind == "last":
        return hold_out_last(ratings, 1 if amount is None else _whole(amount))
    fraction = 0.2 if amount is None else amount
    if kind == "ratio":
        return ratio(ratings, fraction, rng=rng)
    if kind in ("time", "user-time"):
        return by_time(ratings, fraction, per_user=kind == "user-time")
    raise ConfigError(f"there is no split {kind!r}; choose from {', '.join(CUTS)}")


def min_ratings(ratings: Ratings, per_user: int = 20) -> Ratings:
    """Keep users with at least ``per_user`` ratings; unused ids leave the indexes."""
    if not is_count(per_user):
        raise ConfigError("per_user must be an integer of at least 1")
    kept = ratings.user_counts()[ratings.user_codes] >= per_user
    if not bool(kept.any()):
        raise RatingsError(
            f"{ratings.name}: no user has {per_user:,} ratings or more; ask for fewer"
        )
    return ratings.take(kept).compact()


def _rank_within_user(
    ratings: Ratings, generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rank each rating randomly among its user's; also return the ratings per user."""
    n = len(ratings)
    # One 64-bit key, user above and randomness below, sorts faster than two keys; the stable sort
    # makes ties fall the same way on every processor.
    keys = ratings.user_codes.astype(np.uint64) << np.uint64(32)
    keys |= generator.integers(0, 2**32, size=n, dtype=np.uint64)
    order = np.argsort(keys, kind="stable")
    counts = ratings.user_counts()
    starts = np.cumsum(counts) - counts
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n) - np.repeat(starts, counts)
    return rank, counts


def _age_within_user(ratings: Ratings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count, for each rating, its user's later ratings; also return the ratings per user."""
    order = np.lexsort((_times(ratings), ratings.user_codes))
    counts = ratings.user_counts()
    ends = np.cumsum(counts) - 1
    age = np.empty(len(ratings), dtype=np.int64)
    age[order] = np.repeat(ends, counts) - np.arange(len(ratings))
    return age, counts


def _times(ratings: Ratings) -> NDArray[np.int64]:
    if ratings.timestamps is None:
        raise RatingsError(
            f"{ratings.name}: there are no times, so nothing came last; say which column has them "
            f"with {hint('columns', 'timestamp')}, or split at random"
        )
    return ratings.timestamps


def _test_size(ratings: Ratings, fraction: float) -> int:
    _check_fraction(fraction)
    size = int(np.floor(fraction * len(ratings) + 0.5))
    if not 0 < size < len(ratings):
        raise RatingsError(
            f"{ratings.name}: {fraction:g} of {len(ratings):,} ratings leaves training or "
            "test empty"
        )
    return size


def _check_fraction(fraction: object) -> None:
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction < 1:
        raise ConfigError("the fraction of ratings to test on must be a number above 0 and below 1")


def _whole(amount: float) -> int:
    if amount != int(amount):
        raise ConfigError("the number of test ratings per user must be an integer of at least 1")
    return int(amount)


def alike(first: Ratings, second: Ratings) -> tuple[Ratings, Ratings]:
    """Give two tables ids of one kind: text if either has an id that is no plain integer."""
    if first.users.is_integer != second.users.is_integer:
        first, second = first.with_text_ids(users=True), second.with_text_ids(users=True)
    if first.items.is_integer != second.items.is_integer:
        first, second = first.with_text_ids(items=True), second.with_text_ids(items=True)
    return first, second


def share_indexes(
    train: Ratings, test: Ratings, item_table: ItemTable | None = None
) -> tuple[Ratings, Ratings]:
    """Bring two tables into one id space, so that their codes mean the same thing."""
    users = merge(train.users, test.users, "user")
    items = merge(train.items, test.items, "item")
    first, second = train.reindex(users, items), test.reindex(users, items)
    if item_table is not None:
        first, second = first.describe(item_table), second.describe(item_table)
    return first, second


def read_split(
    train_path: str | os.PathLike[str], test_path: str | os.PathLike[str], **options: Any
) -> tuple[Ratings, Ratings]:
    """Read a training and a test file into one id space; options are those of `Ratings.read`.

    Users and items that only one of the files has are in both indexes.
    """
    from hdpmf.common.data.table import Ratings

    return share_indexes(
        *alike(*(Ratings.read(path, **options) for path in (train_path, test_path)))
    )
