"""What to show: scores for lists, computed on the device from raw ratings. Nothing of it is sent.

A predicted rating says how much somebody would like an item if they took it. A list needs what they would *choose and
like*: how many people choose the item, how much that is this person's taste, and a little of the predicted rating.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.public.device_fit import to_stars
from hdpmf.public.popularity import FEWEST, log_popularity
from hdpmf.shard.devices import Devices
from hdpmf.shard.reasons import Parts

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

LIKE = 0.25
"""What a star of the predicted rating counts, where a factor e in popularity counts 1: best of 0 to 4 on ratings held
out within ML-100K's training part, for mf (NDCG@10 .112 against .109 without and .050 by stars alone); hdp-sum is as
good with 0.1 to 0.4 there and within ML-1M's."""

RIDGE = 10.0
"""Of a person's taste: best of 5, 7, 10, 15 and 20 on ratings held out within ML-100K (NDCG@10 .132, .133, .134, .132,
.130) and ML-1M (.134, .135, .135, .133, .131; hdp-sum, four and two seeds; .078 and .052 without taste)."""


def heights(devices: Devices, users: np.ndarray) -> csr_matrix:
    """How high above the lowest rating each user rated each item, in stars; one row per user."""
    from scipy.sparse import csr_matrix

    counts = np.diff(devices.rated_start)[users]
    start = np.concatenate(([0], np.cumsum(counts)))
    places = np.arange(start[-1]) + np.repeat(devices.rated_start[users] - start[:-1], counts)
    return csr_matrix(
        (devices.stars[places] - 1.0, devices.rated[places], start), shape=(len(users), len(devices.gamma))
    )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ChooseAndLike:
    """Orders items by what somebody would choose and like.

    Attributes:
        devices: The users, with what they rated.
        predicted: Gives predicted ratings of all items, one row for each of some users.
        popularity: How often items are chosen by people in general.
        features: What tastes are about (``public.taste``), one row per item, or None.
        names: Of its columns.
    """

    devices: Devices
    predicted: Callable[[np.ndarray], np.ndarray]
    popularity: np.ndarray
    features: np.ndarray | None = None
    names: tuple[str, ...] = ()

    def scores(self, users: np.ndarray) -> np.ndarray:
        """Scores of all items, one row per user."""
        scores = log_popularity(self.popularity) + self._like(users)
        if self.features is not None:
            scores = scores + self._taste(users, self.features) @ self.features.T
        return np.asarray(scores)

    def parts(self, users: np.ndarray, lists: Sequence[np.ndarray]) -> Iterator[Parts]:
        """What the scores of each user's list are made of, against what people choose in general."""
        features = np.zeros((len(self.popularity), 0)) if self.features is None else self.features
        tastes = self._taste(users, features)
        chosen = _chosen(self.popularity)
        popularity = log_popularity(self.popularity)
        usual, usual_features = float(chosen @ popularity), chosen @ features
        for theta, like, items in zip(tastes, self._like(users), lists, strict=True):
            usual_like = float(chosen @ like)
            yield Parts(
                base=usual + usual_like + float(usual_features @ theta),
                popularity=popularity[items] - usual,
                stars=like[items] - usual_like,
                features=self.names,
                taste=((features[items] - usual_features) * theta).T,
                absent=(features[items] == 0).T,
            )

    def _like(self, users: np.ndarray) -> np.ndarray:
        return np.asarray(LIKE * to_stars(self.predicted(users), self.devices.scale))

    def _taste(self, users: np.ndarray, features: np.ndarray) -> np.ndarray:
        return taste(heights(self.devices, users), features, self.popularity)


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
    chosen = _chosen(popularity)
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


def _chosen(popularity: np.ndarray) -> np.ndarray:
    """The share of each item in what people choose."""
    counts = np.maximum(popularity, FEWEST)
    return np.asarray(counts / counts.sum())
