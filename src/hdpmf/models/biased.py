"""Biased matrix factorization without privacy: the baseline that people expect (Surprise calls it SVD)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hdpmf.methods.configurations import BiasedOptions
from hdpmf.models.base import Estimator
from hdpmf.models.training import check_finite
from hdpmf.privacy.sampling import SeededNoise, seed_of
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.ratings import Ratings

_SPREAD = 0.1


@dataclass(eq=False, repr=False)
class BiasedMF(BiasedOptions, Estimator):
    """Matrix factorization with user and item biases, on ratings given away: ``mean + b_i + b_j + u_i . v_j``.

    Args:
        n_factors: Length K of the latent vectors.
        learning_rate: Of every step.
        reg: Regularisation, of biases and vectors.
        epochs: Passes over the ratings.
        rng: An int, a numpy Generator, or None for another result every time.

    Attributes:
        mean_: Of all training ratings.
        user_bias_: b_i, one for each user.
        item_bias_: b_j, one for each item.
        user_factors_: u_i, one row per user.
        item_factors_: v_j, one row per item.
    """

    mean_: float = field(init=False)
    user_bias_: np.ndarray = field(init=False)
    item_bias_: np.ndarray = field(init=False)
    user_factors_: np.ndarray = field(init=False)
    item_factors_: np.ndarray = field(init=False)

    def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
        """Train by stochastic gradient descent, a step per rating."""
        from hdpmf.kernels.biased import biased_pass
        from hdpmf.kernels.simd import pad

        seed = seed_of(self.rng)
        noise = SeededNoise(seed, stream=7)
        U, V = (
            pad(noise.normals((rows, self.n_factors)) * np.float32(_SPREAD)) for rows in (train.n_users, train.n_items)
        )
        user_bias, item_bias = np.zeros(train.n_users, np.float32), np.zeros(train.n_items, np.float32)
        mean = float(train.values.mean(dtype=np.float64))
        table = train.user_codes.copy(), train.item_codes.copy(), (train.values - mean).astype(np.float32)
        for epoch in range(1, self.epochs + 1):
            biased_pass(*table, user_bias, item_bias, U, V, self.learning_rate, self.reg, seed, epoch)
            check_finite(V, self.learning_rate)
        self.mean_, self.user_bias_, self.item_bias_ = mean, user_bias, item_bias
        self.user_factors_, self.item_factors_ = U[:, : self.n_factors].copy(), V[:, : self.n_factors].copy()

    def _item_vectors(self) -> np.ndarray:
        return self.item_factors_

    def expect(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """The mean, both biases and the product of the vectors."""
        liked = np.einsum("nk,nk->n", self.user_factors_[users], self.item_factors_[items])
        return np.asarray(self.mean_ + self.user_bias_[users] + self.item_bias_[items] + liked)
