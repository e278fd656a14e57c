"""What any private method has to beat: predictions that need no recommender, or no user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from hdpmf.models.base import Callback, Model
from hdpmf.privacy.mechanisms import Mechanism, NoPrivacy
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.ratings import RatingsLike
from hdpmf.recommender import Catalogue
from hdpmf.shard import Devices


class Baseline(Model):
    """A model without factors: its items count as untrained, so that predictions are each user's own mean."""

    can_rank = False

    def fit(
        self,
        train: RatingsLike,
        weights: PrivacyWeights | None = None,
        *,
        validation: RatingsLike | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Compute the means; weights, validation and callbacks are accepted and not needed."""
        train = self._taken(train)
        nothing = np.zeros((train.n_users, 0), np.float32)
        self.devices_ = Devices.after_training(train, nothing, np.ones(train.n_users), np.ones(train.n_items))
        self.catalogue_ = Catalogue(
            train.items,
            np.zeros((train.n_items, 0), np.float32),
            np.zeros(train.n_items, np.int64),
            train.scale,
            train.item_table,
        )
        return self

    def _mechanism(self) -> Mechanism:
        return NoPrivacy()

    def _ever_rated(self) -> np.ndarray:
        return np.isin(np.arange(len(self.catalogue_.items)), self.devices_.rated)


class UserMean(Baseline):
    """Each user's own mean, computed on the device. Nothing is sent: epsilon is 0."""


class GlobalMean(Baseline):
    """The mean of all training ratings, for everyone. Not private: it is computed from raw ratings.

    Attributes:
        mean_: That mean.
    """

    mean_: float

    def fit(
        self,
        train: RatingsLike,
        weights: PrivacyWeights | None = None,
        *,
        validation: RatingsLike | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Compute the mean."""
        train = self._taken(train)
        super().fit(train)
        self.mean_ = float(train.values.mean(dtype=np.float64))
        return self

    def _predict_codes(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.full(len(users), self.mean_)
