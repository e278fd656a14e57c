"""The two worlds of the game: the same ratings, but for one, which is the lowest or the highest of the scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.errors import ConfigError, PrivacyError, RatingsError
from hdpmf.privacy import PrivacySpec, PrivacyWeights
from hdpmf.ratings import Ratings

# More messages per run cost time in proportion and leave the verdict as it is.
_MOST_RATINGS_OF_TARGET = 30


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """One rating of one user in a world of ratings, with everybody's privacy weights.

    Attributes:
        weights: Weight of each of its ratings.
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
    def place(self) -> int:
        """Where the rating is among those of its user."""
        return int(np.flatnonzero(self.own == self.row)[0])

    @property
    def raters(self) -> int:
        """How many users rated the item."""
        return int(self.ratings.item_counts()[self.item])

    @property
    def weight(self) -> float:
        """Privacy weight of the rating."""
        return float(self.weights[self.row])

    @property
    def ends(self) -> tuple[float, float]:
        """The rating in the two worlds."""
        return self.ratings.scale.low, self.ratings.scale.high

    def values(self, rating: float) -> np.ndarray:
        """All values of the world in which the rating is ``rating``."""
        values = self.ratings.values.copy()
        values[self.row] = rating
        return values

    def privacy_weights(self) -> PrivacyWeights:
        """The weights as models take them."""
        return PrivacyWeights.per_rating(self.ratings, self.weights)


def choose_target(ratings: Ratings, weight: float = 1.0, *, seed: int = 0) -> Target:
    """An ordinary rating: of a user with a median number of ratings (at most 30), of an item of median popularity.

    Everybody else's privacy weights are drawn by the paper's specification, with ``seed``.
    """
    if not 0.0 < weight <= 1.0:
        raise PrivacyError(f"the weight of the audited rating must lie in (0, 1], not {weight:g}")
    counts = ratings.user_counts()
    eligible = np.flatnonzero((counts >= 2) & (counts <= _MOST_RATINGS_OF_TARGET))
    if len(eligible) == 0:
        eligible = np.flatnonzero(counts >= 2)
    if len(eligible) == 0:
        raise RatingsError("no user has a second rating, so there is nothing that an audit could compare")
    wanted = min(float(np.median(counts[counts >= 2])), float(_MOST_RATINGS_OF_TARGET))
    user = eligible[np.argmin(np.abs(counts[eligible] - wanted))]
    own = np.flatnonzero(ratings.user_codes == user)
    raters = ratings.item_counts()[ratings.item_codes[own]]
    row = int(own[np.argsort(raters, kind="stable")[len(own) // 2]])
    weights = np.array(PrivacySpec().draw(ratings, seed).for_ratings(ratings))
    weights[row] = weight
    return Target(ratings, weights, row, own)


def check_runs(runs: int) -> None:
    """Raise ConfigError where there is nothing to measure."""
    if runs < 10:
        raise ConfigError(f"an audit needs at least 10 runs of each world, not {runs}")
