"""What each device does alone with its raw ratings: fit its own vector to public item factors. Nothing is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.kernels.threads import Workers
from hdpmf.ratings import Ratings, RatingScale
from hdpmf.shard.devices import Devices

if TYPE_CHECKING:
    from hdpmf.kernels.grouping import Grouped

STARS = 4.0


@dataclass(frozen=True, slots=True, repr=False)
class DeviceFit:
    """A prediction is ``offset_j + features_j . theta_i`` in stars; theta_i has a Gaussian prior.

    All of it is public; only theta_i, which is made of it and of raw ratings, is private.

    Attributes:
        features: One row per item.
        offset: What is predicted where theta is zero, in stars (1 to 5).
        weight: How much a rating of each item counts, less where the offset is uncertain.
        precision: Of the prior, relative to a rating of weight 1.
        mean_map: The precision times the map from a user's description to the prior's mean.
    """

    features: np.ndarray
    offset: np.ndarray
    weight: np.ndarray
    precision: np.ndarray
    mean_map: np.ndarray

    def __repr__(self) -> str:
        return f"DeviceFit({self.features.shape[0]} items, {self.features.shape[1]} features)"

    def fit(self, by_user: Grouped, workers: Workers) -> np.ndarray:
        """One vector per user, to be multiplied with ``factors``: theta and a 1 for the offset."""
        from hdpmf.kernels.normal import fit_users  # here and below: a machine with a GPU need not have Numba

        size = self.features.shape[1]
        vectors = np.ones((by_user.n_rows, size + 1), np.float32)
        target = by_user.target - self.offset[by_user.partner].astype(np.float32)
        fit_users(
            by_user.start, by_user.partner, target, self.features, self.weight, self.precision, self.mean_map,
            vectors, workers,
        )  # fmt: skip
        return vectors

    def factors(self, scale: RatingScale) -> np.ndarray:
        """The item factors in the units of the rating scale: a user's vector times these is a prediction."""
        per_star = scale.width / STARS
        offset = scale.low + (self.offset - 1.0) * per_star
        return np.column_stack([self.features * per_star, offset]).astype(np.float32)

    def stranger(self) -> np.ndarray:
        """The vector of a user without ratings: the prior's mean."""
        described = np.zeros(self.mean_map.shape[1])
        described[-2:] = np.log(1 / 80.0), np.log(1 / 80.0) ** 2
        theta = np.linalg.solve(self.precision, self.mean_map @ described)
        return np.append(theta, 1.0).astype(np.float32)


def to_stars(values: np.ndarray, scale: RatingScale) -> np.ndarray:
    """Ratings on any scale as one to five stars."""
    return np.asarray((values - np.float32(scale.low)) * np.float32(STARS / scale.width) + np.float32(1.0))


def ratings_by_user(ratings: Ratings) -> Grouped:
    """Ratings in stars, user after user."""
    from hdpmf.kernels.grouping import group

    stars = to_stars(ratings.values, ratings.scale)
    return group(ratings.user_codes, ratings.item_codes, stars, None, ratings.n_users)


def devices_after(
    ratings: Ratings, by_user: Grouped, vectors: np.ndarray, beta: np.ndarray, gamma: np.ndarray
) -> Devices:
    """The private state of the users of ``ratings``, who now have these vectors."""
    counts = by_user.counts
    sums = np.bincount(ratings.user_codes, ratings.values, ratings.n_users)
    return Devices(
        users=ratings.users,
        vectors=vectors,
        beta=beta,
        gamma=gamma,
        means=np.where(counts > 0, sums / np.maximum(counts, 1), np.nan),
        rated_start=by_user.start,
        rated=by_user.partner,
        scale=ratings.scale,
    )


def predict(
    devices: Devices, users: np.ndarray, items: np.ndarray, factors: np.ndarray, stranger: np.ndarray
) -> np.ndarray:
    """Predicted ratings for pairs of positions, where -1 stands for an unknown one.

    An unknown user is predicted as a user without ratings; an unknown item gets the user's own mean.
    """
    rows = np.where(users[:, None] >= 0, devices.vectors[users], stranger)
    predictions = np.einsum("nk,nk->n", rows, factors[items]).astype(np.float64)
    unknown = items < 0
    if unknown.any():
        means = np.append(devices.means, np.nan)[users[unknown]]
        predictions[unknown] = np.where(np.isnan(means), devices.scale.middle, means)
    return np.asarray(devices.scale.clip(predictions))
