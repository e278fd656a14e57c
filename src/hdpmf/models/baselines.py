"""Baselines: means, biased MF, private popularity, and list models trained in the clear.

List models predict no ratings: a predicted rating is the user's own mean.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hdpmf.common.base.threads import one_blas_thread
from hdpmf.common.data import Ratings
from hdpmf.common.methods.options import BiasedOptions, ListOptions, PopularityOptions
from hdpmf.common.model.device_fit import STARS, correct_popularity
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.privacy.sampling import SeededNoise, seed_of
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.models.base import Estimator
from hdpmf.models.one_round import counted
from hdpmf.private.client.devices import constrained_ridge, rows_by_code
from hdpmf.private.client.ranking import ByListModel, ListOrder
from hdpmf.untrusted.recommender.deconvolution import margin
from hdpmf.untrusted.recommender.lists.training import Presence, popular_lists, train_list_model
from hdpmf.untrusted.recommender.rounds import check_finite


class Baseline(Estimator):
    """A model without factors, which expects each user's own mean of everything."""

    can_rank = False

    def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
        """Nothing: the means are with the users."""

    def expect(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Each user's own mean."""
        return np.asarray(self.devices_.means[users])

    def _take_in(self, ratings: Ratings, weights: PrivacyWeights) -> None:
        add_to_devices(self, ratings, weights)


def add_to_devices(model: Estimator, ratings: Ratings, weights: PrivacyWeights) -> None:
    """Replace all ratings of these users on devices that have no vectors."""
    model.devices_.add_ratings(
        ratings,
        model.catalogue_.items.find(ratings.items.ids)[ratings.item_codes],
        np.zeros((ratings.n_users, 0), np.float32),
        weights.for_users(ratings.users),
    )


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

    def _take_in(self, ratings: Ratings, weights: PrivacyWeights) -> None:
        super()._take_in(ratings, weights)
        if not self.devices_.whole:  # the mean of all who are not here counts
            return
        scale = self.devices_.scale
        stars = float(self.devices_.stars.mean(dtype=np.float64))
        self.mean_ = scale.low + (stars - 1.0) * scale.width / STARS

    def _predict_codes(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.full(len(users), self.mean_)


_SPREAD = 0.1


@dataclass(eq=False, repr=False)
class BiasedMF(BiasedOptions, Estimator):
    """Matrix factorization with user and item biases, on ratings that are given away.

    A prediction is ``mean + b_i + b_j + u_i . v_j``.

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
        from hdpmf.private.kernels.batch import pad
        from hdpmf.private.kernels.sequential import biased_pass

        seed = seed_of(self.rng)
        noise = SeededNoise(seed, stream=7)
        U, V = (
            pad(noise.normals((rows, self.n_factors)) * np.float32(_SPREAD))
            for rows in (train.n_users, train.n_items)
        )
        user_bias = np.zeros(train.n_users, np.float32)
        item_bias = np.zeros(train.n_items, np.float32)
        mean = float(train.values.mean(dtype=np.float64))
        table = (
            train.user_codes.copy(),
            train.item_codes.copy(),
            (train.values - mean).astype(np.float32),
        )
        for epoch in range(1, self.epochs + 1):
            biased_pass(
                *table, user_bias, item_bias, U, V, self.learning_rate, self.reg, seed, epoch
            )
            check_finite(V, self.learning_rate)
        self.mean_, self.user_bias_, self.item_bias_ = mean, user_bias, item_bias
        self.user_factors_ = U[:, : self.n_factors].copy()
        self.item_factors_ = V[:, : self.n_factors].copy()

    def _take_in(self, ratings: Ratings, weights: PrivacyWeights) -> None:
        """Fit a bias and a vector to all ratings of each of these users."""
        before = self.devices_.users
        add_to_devices(self, ratings, weights)
        users = self.devices_.users
        position = before.find(users.ids)
        self.user_bias_ = np.append(self.user_bias_, np.float32(0))[position]
        empty = np.zeros((1, self.n_factors), np.float32)
        self.user_factors_ = np.concatenate([self.user_factors_, empty])[position]
        own = users.find(ratings.users.ids)
        items = self.catalogue_.items.find(ratings.items.ids)[ratings.item_codes]
        centred = ratings.values - np.float32(self.mean_)
        with one_blas_thread():
            for user, rows in zip(
                own.tolist(), rows_by_code(ratings.user_codes, ratings.n_users), strict=True
            ):
                rated = items[rows]
                target = centred[rows] - self.item_bias_[rated]
                self.user_bias_[user], self.user_factors_[user] = self._side(
                    self.item_factors_[rated], target
                )

    def _side(self, factors: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the bias and the vector that fit these ratings, with the other side fixed."""
        columns = np.column_stack([np.ones(len(factors), np.float32), factors])
        found = constrained_ridge(columns, target, self.reg * len(factors), None)
        return float(found[0]), found[1:]

    def expect(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """The mean, both biases and the product of the vectors."""
        liked = np.einsum("nk,nk->n", self.user_factors_[users], self.item_factors_[items])
        return np.asarray(self.mean_ + self.user_bias_[users] + self.item_bias_[items] + liked)

    def _predict_codes(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Predict as for all, and for users without training ratings by the item's bias alone."""
        predicted = super()._predict_codes(users, items)
        strangers = np.isnan(np.append(self.devices_.means, np.nan)[users])
        bias = np.append(np.where(self._ever_rated(), self.item_bias_, 0.0), 0.0)[items]
        return np.where(strangers, self.devices_.scale.clip(self.mean_ + bias), predicted)


@dataclass(eq=False, repr=False)
class ListsOnly(Baseline):
    """A model that orders items and predicts no ratings of its own.

    Attributes:
        lists_: What devices would get.
    """

    can_rank: ClassVar[bool] = True
    predicts_ratings = False
    takes_implicit: ClassVar[bool] = True

    lists_: ListModel = field(init=False)

    def _order(self) -> ListOrder:
        return ByListModel(self.devices_, self.lists_)


@dataclass(eq=False, repr=False)
class PrivatePopular(PopularityOptions, ListsOnly):
    """The most rated items for everyone, from counts with noise: the baseline of private lists.

    All of epsilon goes into how much weight each item has: a rating's presence costs W_ij * epsilon
    where only sums over users are seen, its value nothing.

    Args:
        epsilon: The largest budget of a rating; rating (i, j) has W_ij times this.
        rng: An int, a numpy Generator, or None for another result every time.
    """

    def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
        """Release the counts."""
        noise = SeededNoise(seed_of(self.rng), stream=3)
        behind = counted(train, weights, noise, self.epsilon)
        self.lists_ = popular_lists(
            correct_popularity(behind, weights.for_items(train.items), 1.0 / self.epsilon)
        )

    def _order(self) -> ListOrder:
        raised = margin(len(self.catalogue_.items), laplace=1.0 / self.epsilon)
        return ByListModel(self.devices_, self.lists_, raised / self.devices_.gamma)


@dataclass(eq=False, repr=False)
class ListYardstick(ListOptions, ListsOnly):
    """A model for lists without privacy.

    Args:
        rng: An int, a numpy Generator, or None for another result every time.
    """

    kind: ClassVar[str] = ""

    def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
        """Learn who rates what with whom."""
        self._learn_from(Presence(train.user_codes, train.item_codes, train.n_users, train.n_items))

    def _take_in(self, ratings: Ratings, weights: PrivacyWeights) -> None:
        """Learn again from who rated what, as `fit` would: it is no secret here.

        A model without some of those who took part keeps what it learned from them.
        """
        super()._take_in(ratings, weights)
        devices = self.devices_
        if not devices.whole:
            return
        users = np.repeat(np.arange(len(devices.users)), np.diff(devices.rated_start))
        self._learn_from(
            Presence(users, devices.rated, len(devices.users), len(self.catalogue_.items))
        )

    def _learn_from(self, presence: Presence) -> None:
        self.lists_ = train_list_model(
            self.kind,
            presence,
            seed=seed_of(self.rng) % 2**31,
        )


class MostPopular(ListYardstick):
    """The most rated items, for everyone."""

    kind = "popular"


class ItemKNN(ListYardstick):
    """Items rated by the same people as those that one has rated."""

    kind = "knn"


class EASE(ListYardstick):
    """A linear item-item model in closed form."""

    kind = "ease"


class IALS(ListYardstick):
    """Implicit alternating least squares."""

    kind = "ials"


class BPR(ListYardstick):
    """A pair-wise model."""

    kind = "bpr"
