"""What to show: scores for lists, computed on the device from raw ratings. Nothing of it is sent.

A predicted rating says how much somebody would like an item if they took it. A list needs what they would *choose and
like*: how many people choose the item, how much that is this person's taste, and a little of the predicted rating.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdpmf.public.device_fit import to_stars
from hdpmf.shard.devices import Devices

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

LIKE = 0.25
"""What a star of the predicted rating counts, where a factor e in popularity counts 1: best of 0 to 4 on ratings held
out within ML-100K's training part, for mf (NDCG@10 .112 against .109 without and .050 by stars alone) and hdp-sum."""

RIDGE = 10.0
"""Of a person's taste for public features: best of 5, 10, 20 and 40 there (.107 with it, .082 without taste)."""

_FEWEST = 0.3


def heights(devices: Devices, users: np.ndarray) -> csr_matrix:
    """How high above the lowest rating each user rated each item, in stars; one row per user."""
    from scipy.sparse import csr_matrix

    counts = np.diff(devices.rated_start)[users]
    start = np.concatenate(([0], np.cumsum(counts)))
    places = np.arange(start[-1]) + np.repeat(devices.rated_start[users] - start[:-1], counts)
    return csr_matrix(
        (devices.stars[places] - 1.0, devices.rated[places], start), shape=(len(users), len(devices.gamma))
    )


def log_popularity(popularity: np.ndarray) -> np.ndarray:
    """How often items are chosen by people in general, as a score."""
    return np.asarray(np.log(np.maximum(popularity, _FEWEST)))


def list_scores(
    devices: Devices,
    users: np.ndarray,
    predicted: np.ndarray,
    popularity: np.ndarray,
    features: np.ndarray | None = None,
) -> np.ndarray:
    """Scores of all items, one row per user: what each would choose and like.

    Args:
        devices: The users, with what they rated.
        users: Whom to score for.
        predicted: Predicted ratings of all items, one row for each of them.
        popularity: How often items are chosen by people in general.
        features: Public features of items, one row each, or None.
    """
    scores = log_popularity(popularity) + LIKE * to_stars(predicted, devices.scale)
    if features is not None and features.shape[1]:
        scores = scores + taste(heights(devices, users), features, popularity) @ features.T
    return np.asarray(scores)


def best_items(devices: Devices, user: int, n: int, scores: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """The ``n`` best candidates that the user has not rated, best first; equal ones in the order of the catalogue."""
    able = candidates.copy()
    able[devices.rated[devices.rated_start[user] : devices.rated_start[user + 1]]] = False
    places = np.flatnonzero(able)
    return np.asarray(places[np.argsort(-scores[places], kind="stable")[:n]])


def taste(own: csr_matrix, features: np.ndarray, popularity: np.ndarray, ridge: float = RIDGE) -> np.ndarray:
    """How much more often than people in general each user chooses items with each feature, as a score per feature.

    It is one step of a logistic choice model: the mean features of what somebody rated (a higher rating counts more)
    against those of what people rate in general, through the covariance of the latter.

    Args:
        own: What each user rated; see ``heights``.
        features: Public, one row per item.
        popularity: How often items are chosen.
        ridge: How strongly a taste is held to zero, in ratings.
    """
    chosen = np.maximum(popularity, _FEWEST)
    chosen = chosen / chosen.sum()
    mean = chosen @ features
    centred = features - mean
    spread = centred.T @ (centred * chosen[:, None])
    totals = np.asarray(own.sum(axis=1)).ravel()
    apart = np.asarray(own @ features) / np.maximum(totals, 1e-9)[:, None] - mean
    n_rated = np.diff(own.indptr).astype(np.float64)
    n_rated[totals <= 0] = 0.0  # somebody who rated everything lowest has told nothing about taste
    values, directions = np.linalg.eigh(spread)
    weights = n_rated[:, None] / (n_rated[:, None] * values + ridge)
    return np.asarray(((apart @ directions) * weights) @ directions.T)
