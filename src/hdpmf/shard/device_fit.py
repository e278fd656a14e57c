"""What each device does alone with its raw ratings: fit its own vector to public item factors. Nothing is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdpmf.public.device_fit import DeviceFit, to_stars
from hdpmf.ratings import Ratings
from hdpmf.shard.devices import Devices
from hdpmf.threads import Workers

if TYPE_CHECKING:
    from hdpmf.kernels.grouping import Grouped


def fit_vectors(fit: DeviceFit, by_user: Grouped, workers: Workers) -> np.ndarray:
    """One vector per user, to be multiplied with ``fit.factors``: theta and a 1 for the offset."""
    from hdpmf.kernels.normal import fit_users  # here and below: a machine with a GPU need not have Numba

    vectors = np.ones((by_user.n_rows, fit.features.shape[1] + 1), np.float32)
    target = by_user.target - fit.offset[by_user.partner].astype(np.float32)
    fit_users(
        by_user.start, by_user.partner, target, fit.features, fit.weight, fit.precision, fit.mean_map, vectors, workers
    )
    return vectors


def ratings_by_user(ratings: Ratings) -> Grouped:
    """Ratings in stars, user after user."""
    from hdpmf.kernels.grouping import group

    stars = to_stars(ratings.values, ratings.scale)
    return group(ratings.user_codes, ratings.item_codes, stars, None, ratings.n_users)


def predict(
    devices: Devices, users: np.ndarray, items: np.ndarray, factors: np.ndarray, stranger: np.ndarray
) -> np.ndarray:
    """Predicted ratings for pairs of positions, where -1 stands for an unknown one.

    An unknown user is predicted as a user without ratings; an unknown item gets the user's own mean.
    """
    rows = np.tile(stranger, (len(users), 1))
    rows[users >= 0] = devices.vectors[users[users >= 0]]
    predictions = np.einsum("nk,nk->n", rows, factors[items]).astype(np.float64)
    unknown = items < 0
    if unknown.any():
        means = np.append(devices.means, np.nan)[users[unknown]]
        predictions[unknown] = np.where(np.isnan(means), devices.scale.middle, means)
    return np.asarray(devices.scale.clip(predictions))
