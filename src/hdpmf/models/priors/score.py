"""A public score of items by which devices draw taste labels, learned from ratings that were declared public.

Which items somebody rates tells something about how they rate. The score is the direction in the space of item
features along which it tells most: of all weighted means of the features of what a user rated, the one that goes most
with how the user rates single items, other than users do in general.
"""

from __future__ import annotations

import numpy as np

from hdpmf.public.device_fit import to_stars
from hdpmf.public.priors import POPULARITY
from hdpmf.ratings import Ratings
from hdpmf.ratings.item_features import ItemFeatures

_SHRUNK = 20.0
"""Ratings that everybody is taken to have besides their own, of average items; a mean over a few says little."""

_RIDGE = 0.1
_FEWEST_RATERS = 20
_STEADYING = 30.0


def learn_score(ratings: Ratings, features: ItemFeatures) -> dict[str, float]:
    """What each feature, and the logarithm of an item's weight, counts in the score."""
    users, items, n_items = ratings.user_codes, ratings.item_codes, ratings.n_items
    raters = np.bincount(items, minlength=n_items)
    columns = np.column_stack([features.matrix, np.log(np.maximum(raters, 1))])
    rest = _beyond_biases(ratings, raters)
    described = _described(ratings, columns - np.average(columns, axis=0, weights=raters))
    covariance = described.T @ described / len(described)
    covariance += np.diag(_RIDGE * np.diag(covariance)) + 1e-5 * np.eye(len(covariance))
    sizes, vectors = np.linalg.eigh(covariance)
    whitening = (vectors / np.sqrt(sizes)) @ vectors.T
    white = described @ whitening
    steady = np.where(raters >= _FEWEST_RATERS, 1.0 / np.sqrt(raters + _STEADYING), 0.0)
    together = np.column_stack([np.bincount(items, axis[users] * rest, n_items) * steady for axis in white.T])
    directions = np.linalg.svd(together, full_matrices=False)[2]
    weights = whitening @ directions[0]
    weights *= np.sign(weights[np.argmax(np.abs(weights))])  # the sign means nothing; this one is always the same
    return dict(zip((*features.names, POPULARITY), weights.tolist(), strict=True))


def _beyond_biases(ratings: Ratings, raters: np.ndarray) -> np.ndarray:
    """Ratings in stars without their mean, their item's bias and their user's."""
    users, items = ratings.user_codes, ratings.item_codes
    rest = to_stars(ratings.values, ratings.scale).astype(np.float64)
    rest -= rest.mean()
    rest -= (np.bincount(items, rest, ratings.n_items) / (raters + 5.0))[items]
    counts = np.bincount(users, minlength=ratings.n_users)
    return np.asarray(rest - (np.bincount(users, rest, ratings.n_users) / (counts + 5.0))[users])


def _described(ratings: Ratings, columns: np.ndarray) -> np.ndarray:
    """Per user, the mean columns of what it rated, shrunk and centred."""
    users, items = ratings.user_codes, ratings.item_codes
    counts = np.bincount(users, minlength=ratings.n_users)
    sums = np.column_stack([np.bincount(users, column[items], ratings.n_users) for column in columns.T])
    means = sums / (counts + _SHRUNK)[:, None]
    return np.asarray(means - means.mean(0))
