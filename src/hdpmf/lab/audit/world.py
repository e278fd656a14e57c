"""The audited rating and the worlds that it is in, for all audits."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hdpmf.common.base.threads import available_cores
from hdpmf.common.data import Ratings
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.errors import PrivacyError, RatingsError

Block = TypeVar("Block")

Done = TypeVar("Done")


def in_threads(work: Callable[[Block], Done], blocks: Sequence[Block]) -> list[Done]:
    """Return the results in the order of ``blocks``. NumPy releases the GIL where time is spent."""
    pool = ThreadPoolExecutor(available_cores())
    try:
        return list(pool.map(work, blocks))
    finally:
        # After an error or an interrupt, what has not begun never will.
        pool.shutdown(cancel_futures=True)


# More messages per run cost time in proportion and leave the verdict as it is.
_MOST_RATINGS_OF_TARGET = 30


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """One rating of one user in a world of ratings, with everybody's privacy weights.

    Attributes:
        row: The rating that differs between the worlds.
        own: All rows of its user, ``row`` among them.
    """

    ratings: Ratings
    weights: np.ndarray
    row: int
    own: np.ndarray

    def __repr__(self) -> str:
        return f"Target({len(self.own)} ratings of its user, {self.raters} of its item)"

    @property
    def item(self) -> int:
        """Position of the rated item."""
        return int(self.ratings.item_codes[self.row])

    @property
    def position(self) -> int:
        """Position of the rating among those of its user."""
        return int(np.flatnonzero(self.own == self.row)[0])

    @property
    def raters(self) -> int:
        """Count of users who rated the item."""
        return int(self.ratings.item_counts()[self.item])

    @property
    def ends(self) -> tuple[float, float]:
        """The rating in the two worlds."""
        return self.ratings.scale.low, self.ratings.scale.high

    def values(self, rating: float) -> np.ndarray:
        """Return all values of the world in which the rating is ``rating``."""
        values = self.ratings.values.copy()
        values[self.row] = rating
        return values

    def privacy_weights(self) -> PrivacyWeights:
        """Return the weights as models take them."""
        return PrivacyWeights.per_rating(self.ratings, self.weights)


def choose_target(ratings: Ratings, weight: float = 1.0, *, seed: int = 0) -> Target:
    """Choose a rating of a user and an item with a typical number of ratings.

    The user's number is nearest the median (at most 30), the item's is the median of the user's own
    items. Everybody else's privacy weights are drawn by the paper's specification, with ``seed``.

    Raises:
        PrivacyError: ``weight`` is not in (0, 1].
        RatingsError: No user has two ratings.
    """
    if not 0.0 < weight <= 1.0:
        raise PrivacyError(f"the weight of the audited rating must lie in (0, 1], not {weight:g}")
    counts = ratings.user_counts()
    eligible = np.flatnonzero((counts >= 2) & (counts <= _MOST_RATINGS_OF_TARGET))
    if len(eligible) == 0:
        eligible = np.flatnonzero(counts >= 2)
    if len(eligible) == 0:
        raise RatingsError(
            "no user has a second rating, so there is nothing that an audit could compare"
        )
    wanted = min(float(np.median(counts[counts >= 2])), float(_MOST_RATINGS_OF_TARGET))
    user = eligible[np.argmin(np.abs(counts[eligible] - wanted))]
    own = np.flatnonzero(ratings.user_codes == user)
    raters = ratings.item_counts()[ratings.item_codes[own]]
    row = int(own[np.argsort(raters, kind="stable")[len(own) // 2]])
    weights = np.array(PrivacySpec().draw(ratings, seed).for_ratings(ratings))
    weights[row] = weight
    return Target(ratings, weights, row, own)


def rating_in_worlds(target: Target, adjacency: str) -> tuple[float | None, float]:
    """Return the rating in the two worlds; None where it is absent."""
    low, high = target.ends
    return (None if adjacency == "presence" else low), high


def with_rating(target: Target, rating: float | None) -> tuple[Ratings, PrivacyWeights]:
    """Return the world with this rating in the audited place, or without one there."""
    ratings = target.ratings
    weights = target.weights
    values = ratings.values if rating is None else target.values(rating)
    world = Ratings.from_arrays(
        ratings.user_codes, ratings.item_codes, values, scale=ratings.scale, name=ratings.name
    )
    if rating is None:
        others = np.delete(np.arange(len(ratings)), target.row)
        world = world.take(others)
        weights = weights[others]
    return world, PrivacyWeights.per_rating(world, weights)


SMALL_USERS = 30
SMALL_ITEMS = 20
SMALL_RATINGS_EACH = 10


def small_world(ratings: Ratings, n_items: int = SMALL_ITEMS) -> Ratings:
    """Return the most rated items and users who rated about ten of them."""
    items = np.argsort(-ratings.item_counts(), kind="stable")[:n_items]
    among = ratings.take(np.isin(ratings.item_codes, items))
    counts = among.user_counts()
    distance = np.where(counts >= 2, np.abs(counts - SMALL_RATINGS_EACH), len(items) + 1)
    users = np.argsort(distance, kind="stable")[:SMALL_USERS]
    rows = among.take(np.isin(among.user_codes, users[distance[users] <= len(items)]))
    return Ratings.from_arrays(
        np.unique(rows.user_codes, return_inverse=True)[1],
        np.unique(rows.item_codes, return_inverse=True)[1],
        rows.values,
        scale=rows.scale,
        name=f"{ratings.name}, {SMALL_USERS} users and {n_items} items",
    )
