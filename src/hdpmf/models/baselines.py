"""What any private method has to beat: predictions that need no recommender, or no user."""

from __future__ import annotations

import numpy as np

from hdpmf.models.base import Estimator
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.ratings import Ratings


class Baseline(Estimator):
    """A model without factors, which expects each user's own mean of everything."""

    can_rank = False

    def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
        """Nothing: the means are with the users."""

    def expect(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Each user's own mean."""
        return np.asarray(self.devices_.means[users])


class UserMean(Baseline):
    """Each user's own mean, computed on the device. Nothing is sent: epsilon is 0."""


class GlobalMean(Baseline):
    """The mean of all training ratings, for everyone. Not private: it is computed from raw ratings.

    Attributes:
        mean_: That mean.
    """

    mean_: float

    def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
        """Compute the mean."""
        self.mean_ = float(train.values.mean(dtype=np.float64))

    def _predict_codes(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.full(len(users), self.mean_)
