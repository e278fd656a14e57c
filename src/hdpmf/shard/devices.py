"""What devices hold after training, and what they do with it: predict, recommend, take in a new user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.privacy.mechanisms import Mechanism
from hdpmf.public.device_fit import to_stars
from hdpmf.ratings import IdIndex, Ratings, RatingScale
from hdpmf.shard.fold_in import constrained_ridge


def own_means(ratings: Ratings) -> np.ndarray:
    """Each user's own mean rating; NaN for a user without ratings."""
    counts = ratings.user_counts()
    sums = np.bincount(ratings.user_codes, ratings.values, ratings.n_users)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


@dataclass(slots=True, repr=False)
class Devices:
    """The private state of users. Item positions are those of the recommender's catalogue.

    Attributes:
        vectors: U, one row per user.
        gamma: Privacy weight of each item, as the users see it.
        means: Each user's own mean rating (NaN for a user without ratings).
        rated_start: Where each user's list of rated items begins in ``rated``, and the end of the last.
        rated: Items rated, user after user.
        stars: How they were rated, in stars (1 to 5) whatever the scale.
    """

    users: IdIndex
    vectors: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    means: np.ndarray
    rated_start: np.ndarray
    rated: np.ndarray
    stars: np.ndarray
    scale: RatingScale

    def __repr__(self) -> str:
        return f"Devices({len(self.users)} users)"

    @classmethod
    def after_training(
        cls,
        ratings: Ratings,
        vectors: np.ndarray,
        beta: np.ndarray,
        gamma: np.ndarray,
        by_user: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> Devices:
        """The state of the users of ``ratings``, who now have these vectors.

        ``by_user`` is ``rated_start``, ``rated`` and ``stars``, where somebody has sorted the ratings already.
        """
        if by_user is None:
            order = np.argsort(ratings.user_codes, kind="stable")
            start = np.concatenate(([0], np.cumsum(ratings.user_counts())))
            by_user = start, ratings.item_codes[order], to_stars(ratings.values[order], ratings.scale)
        return cls(
            users=ratings.users,
            vectors=np.ascontiguousarray(vectors),
            beta=beta,
            gamma=gamma,
            means=own_means(ratings),
            rated_start=by_user[0],
            rated=by_user[1],
            stars=by_user[2],
            scale=ratings.scale,
        )

    @classmethod
    def nobody(cls, n_items: int, width: int, scale: RatingScale) -> Devices:
        """No user yet, for a model that was made of what others released."""
        none, numbers = IdIndex(np.zeros(0, np.int64)), np.zeros(0, np.float32)
        return cls(
            users=none,
            vectors=np.zeros((0, width), np.float32),
            beta=numbers,
            gamma=np.ones(n_items),
            means=numbers,
            rated_start=np.zeros(1, np.int64),
            rated=np.zeros(0, np.int32),
            stars=numbers,
            scale=scale,
        )

    def only(self, users: np.ndarray) -> Devices:
        """The same with only the users at these positions, which are in order; nothing of the others is left."""
        places = [slice(self.rated_start[user], self.rated_start[user + 1]) for user in users]
        counts = [place.stop - place.start for place in places]
        return Devices(
            users=IdIndex(self.users.ids[users]),
            vectors=self.vectors[users].copy(),
            beta=self.beta[users].copy(),
            gamma=self.gamma,
            means=self.means[users].copy(),
            rated_start=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            rated=np.concatenate([self.rated[place] for place in places]),
            stars=np.concatenate([self.stars[place] for place in places]),
            scale=self.scale,
        )

    def predict(
        self,
        users: np.ndarray,
        items: np.ndarray,
        factors: np.ndarray,
        trained: np.ndarray,
        mechanism: Mechanism,
    ) -> np.ndarray:
        """Predicted ratings for pairs of user and item positions, where -1 stands for an unknown one.

        An item that nobody's ratings taught gets the user's own mean; a user without ratings gets the middle of
        the scale. Neither costs any privacy.
        """
        means = np.append(self.means, np.nan)[users]
        predictions = np.where(np.isnan(means), self.scale.middle, means)
        known = (items >= 0) & ~np.isnan(means)
        known[known] = trained[items[known]]
        users, items = users[known], items[known]
        scores = np.einsum("nk,nk->n", self.vectors[users], factors[items])
        predictions[known] = mechanism.bring_back(scores, self.beta[users] * self.gamma[items])
        return self.scale.clip(predictions)

    def predict_all(
        self, users: np.ndarray, factors: np.ndarray, trained: np.ndarray, mechanism: Mechanism
    ) -> np.ndarray:
        """The same for all items, one row per user position: one matrix product."""
        means = self.means[users].astype(np.float64)
        weights = np.multiply.outer(self.beta[users], self.gamma)
        predictions = mechanism.bring_back(self.vectors[users] @ factors.T, weights).astype(np.float64)
        predictions[:, ~trained] = means[:, None]
        predictions[np.isnan(means)] = self.scale.middle
        return self.scale.clip(predictions)

    def take_in(
        self,
        ratings: Ratings,
        items: np.ndarray,
        weights: np.ndarray,
        beta: np.ndarray,
        factors: np.ndarray,
        reg: float,
        reg_per_rating: bool,
        mechanism: Mechanism,
    ) -> np.ndarray:
        """Fit a vector to each user of ``ratings`` with the item factors fixed, and keep these users from now on.

        Args:
            ratings: Ratings of users who were not in training (or come again with more ratings).
            items: Catalogue position of each rating's item.
            weights: Privacy weight of each rating.
            beta: Privacy weight of each user.
            factors: The item factors.
            reg: Regularisation of the training.
            reg_per_rating: Whether it acts once per rating (the sequential solver) or once (Algorithm 1).
            mechanism: How ratings enter. Nothing is sent, so nothing is sampled away.
        """
        target = mechanism.target(ratings.values, weights)
        vectors = np.zeros((ratings.n_users, factors.shape[1]), np.float32)
        rated: list[tuple[np.ndarray, np.ndarray]] = []
        for user in range(ratings.n_users):
            own = ratings.user_codes == user
            rated.append((items[own], to_stars(ratings.values[own], ratings.scale)))
            if own.any():
                ridge = reg * own.sum() if reg_per_rating else reg
                bound = 1.0 if mechanism.bounds_users else None
                vectors[user] = constrained_ridge(factors[items[own]], target[own], ridge, bound)
        self.add_users(ratings.users, vectors, beta, own_means(ratings), rated)
        return vectors

    def add_users(
        self,
        users: IdIndex,
        vectors: np.ndarray,
        beta: np.ndarray,
        means: np.ndarray,
        rated: list[tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Add users, replacing those that are here already; ``rated`` has items and stars of each."""
        stay = np.flatnonzero(users.find(self.users.ids) < 0)
        places = [slice(self.rated_start[user], self.rated_start[user + 1]) for user in stay]
        kept = [(self.rated[place], self.stars[place]) for place in places]
        everyone = np.concatenate((self.users.ids[stay], users.ids)) if len(stay) else users.ids
        order = np.argsort(everyone, kind="stable")
        lists = [*kept, *rated]
        self.users = IdIndex(everyone[order])
        self.vectors = np.concatenate((self.vectors[stay], vectors))[order]
        self.beta = np.concatenate((self.beta[stay], beta))[order]
        self.means = np.concatenate((self.means[stay], means))[order]
        self.rated_start = np.concatenate(([0], np.cumsum([len(lists[user][0]) for user in order])))
        self.rated = np.concatenate([lists[user][0] for user in order])
        self.stars = np.concatenate([lists[user][1] for user in order])
