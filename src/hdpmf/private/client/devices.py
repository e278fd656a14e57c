"""User vectors and ratings on devices: first vectors, fits, predictions, new users.

Nothing here is sent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.common.base.threads import Workers, one_blas_thread
from hdpmf.common.data import IdIndex, Ratings, RatingScale
from hdpmf.common.model.device_fit import DeviceFit, to_stars
from hdpmf.common.privacy.mechanisms import Mechanism
from hdpmf.private.client.recency import UNKNOWN, freshness, lasting_taste, steady

if TYPE_CHECKING:
    from hdpmf.private.kernels.batch import GroupedRatings


SPREAD = 0.1
"""Standard deviation of the first factors, of users and of items."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def initial_vectors(users: IdIndex, n_factors: int, seed: int) -> np.ndarray:
    """Draw first vectors from N(0, SPREAD^2), shortened to the unit ball, one row per user.

    They depend on the user's id and the seed only, so they are the same in every partition into
    clients.
    """
    keys = _keys(users.ids) ^ _mixed(np.array([seed], np.uint64) + _GOLDEN)
    # Two uniforms for each number (Box and Muller); the counter makes every coordinate a stream of
    # its own.
    counters = np.arange(1, 2 * n_factors + 1, dtype=np.uint64) * _GOLDEN
    words = _mixed(_mixed(keys[:, None] + counters))
    uniforms = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniforms[:, :n_factors]))
    normals = radius * np.cos(2.0 * np.pi * uniforms[:, n_factors:])
    vectors = SPREAD * normals
    # With many factors a draw can be longer than 1, and the noise of the first round is calibrated
    # to the unit ball.
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1.0)
    return vectors.astype(np.float32)


def _keys(ids: np.ndarray) -> np.ndarray:
    if ids.dtype.kind == "i":
        return _mixed(ids.astype(np.uint64))
    digests = b"".join(hashlib.blake2b(str(user).encode(), digest_size=8).digest() for user in ids)
    return np.frombuffer(digests, np.uint64)


def _mixed(words: np.ndarray) -> np.ndarray:
    """Mix words by SplitMix64's finaliser, which wraps around modulo 2^64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = words ^ (words >> np.uint64(31))
    return mixed


_USERS_AT_A_TIME = 8192  # no mutant: users that are solved for at a time

_HALVINGS = 60  # no mutant: further ones are below the precision of a double


def constrained_ridge(
    factors: np.ndarray, target: np.ndarray, ridge: float, bound: float | None
) -> np.ndarray:
    """Return the u that minimises ``|target - factors u|^2 + ridge |u|^2``, ``|u| <= bound``.

    Without a bound (None) any length is allowed.

    Exact: in the eigenbasis of the normal equations the length of u falls with the ridge, so the
    constraint only asks for the larger ridge at which the length is ``bound``.
    """
    from scipy.optimize import (
        brentq,
    )  # here, because importing it takes longer than training starts

    matrix = factors.astype(np.float64)
    values, basis = np.linalg.eigh(matrix.T @ matrix)
    values = np.maximum(values, 0.0)
    projected = basis.T @ (matrix.T @ target)

    def solution(strength: float) -> np.ndarray:
        return np.asarray(projected / (values + strength))

    def excess(strength: float) -> float:
        return float(np.linalg.norm(solution(strength))) - float(bound or 0.0)

    floor = max(ridge, 1e-12)
    if bound is None or excess(floor) <= 0:
        best = solution(floor)
    else:
        ceiling = float(np.linalg.norm(projected)) / bound + floor
        best = solution(float(brentq(excess, floor, ceiling)))
    return np.asarray(basis @ best, np.float32)


def constrained_ridges(by_user: GroupedRatings, factors: np.ndarray, ridge: float) -> np.ndarray:
    """Solve ``constrained_ridge`` within the unit ball for every user at once.

    The ridge is found by halving an interval, to the precision of the result (float32).
    """
    K = factors.shape[1]
    matrix = factors.astype(np.float64)
    vectors = np.zeros((by_user.n_rows, K), np.float32)
    floor = max(ridge, 1e-12)
    for first in range(0, by_user.n_rows, _USERS_AT_A_TIME):
        rows = range(first, min(first + _USERS_AT_A_TIME, by_user.n_rows))
        grams, sides = np.zeros((len(rows), K, K)), np.zeros((len(rows), K))
        for span, row in enumerate(rows):
            own = slice(by_user.start[row], by_user.start[row + 1])
            rated = matrix[by_user.partner[own]]
            grams[span], sides[span] = rated.T @ rated, rated.T @ by_user.target[own]
        values, bases = np.linalg.eigh(grams)
        projected = np.einsum("nkl,nk->nl", bases, sides)
        strength = _strengths(np.maximum(values, 0.0), projected, floor)
        solved = projected / (np.maximum(values, 0.0) + strength)
        vectors[first : first + len(rows)] = np.einsum("nkl,nl->nk", bases, solved)
    return vectors


def _strengths(values: np.ndarray, projected: np.ndarray, floor: float) -> np.ndarray:
    """The ridge of each row, at least ``floor``, that brings its solution into the unit ball."""

    def too_long(strength: np.ndarray) -> np.ndarray:
        return np.asarray(((projected / (values + strength)) ** 2).sum(axis=1, keepdims=True) > 1.0)

    low = np.full((len(values), 1), floor)
    high = np.where(too_long(low), np.linalg.norm(projected, axis=1, keepdims=True) + floor, floor)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        longer = too_long(middle)
        low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    return high


def rows_by_code(codes: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the rows that have each code."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=count))[:-1])


def own_means(ratings: Ratings) -> np.ndarray:
    """Each user's own mean rating; NaN for a user without ratings."""
    counts = ratings.user_counts()
    sums = np.bincount(ratings.user_codes, ratings.values, ratings.n_users)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


@dataclass(frozen=True, slots=True, repr=False)
class FitRecord:
    """The ratings that users had in training, which is what they paid for; later ones cost nothing.

    Attributes:
        users: Who took part.
        beta: The privacy weight that each of them had.
        start: Where each user's items begin in ``rated``, and the end of the last.
        rated: Items rated, user after user.
    """

    users: IdIndex
    beta: np.ndarray
    start: np.ndarray
    rated: np.ndarray

    def __repr__(self) -> str:
        return f"FitRecord({len(self.users)} users)"

    def only(self, ids: np.ndarray) -> FitRecord:
        """Return the record of those among these users who took part."""
        found = self.users.find(ids)
        taken = np.sort(found[found >= 0])
        spans = [self.rated[slice(*self.start[user : user + 2])] for user in taken]
        return FitRecord(
            IdIndex(self.users.ids[taken]),
            self.beta[taken].copy(),
            np.concatenate(([0], np.cumsum([len(span) for span in spans]))).astype(np.int64),
            np.concatenate([self.rated[:0], *spans]),
        )


@dataclass(slots=True, repr=False)
class Devices:
    """The private state of users. Item positions are those of the recommender's catalogue.

    Attributes:
        vectors: U, one row per user.
        gamma: Privacy weight of each item, as the users see it.
        means: Each user's own mean rating (NaN for a user without ratings).
        rated_start: Where each user's list of rated items begins in ``rated``, and the end of the
            last.
        rated: Items rated, user after user.
        stars: How they were rated, in stars (1 to 5) whatever the scale.
        times: When they were rated, in seconds since 1970 or ``UNKNOWN``; None: no time is known.
        fresh: How much each rating counts in lists; None: all alike.
        lasting: How much each user's taste counts in lists; None: whole.
        earlier: What users had in training, where something came after it.
        whole: False where some of those who took part in the training are not among the users.
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
    times: np.ndarray | None = None
    fresh: np.ndarray | None = None
    lasting: np.ndarray | None = None
    earlier: FitRecord | None = None
    whole: bool = True

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
        times: np.ndarray | None = None,
    ) -> Devices:
        """The state of the users of ``ratings``, who now have these vectors.

        ``by_user`` is ``rated_start``, ``rated`` and ``stars``, if the ratings are sorted already;
        ``times`` are sorted as they are then.
        """
        if by_user is None:
            order = np.argsort(ratings.user_codes, kind="stable")
            start = np.concatenate(([0], np.cumsum(ratings.user_counts())))
            by_user = (
                start,
                ratings.item_codes[order],
                to_stars(ratings.values[order], ratings.scale),
            )
            times = None if ratings.timestamps is None else ratings.timestamps[order]
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
            times=times,
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
            whole=False,
        )

    def only(self, users: np.ndarray) -> Devices:
        """Return a copy with only the users at these positions, and nothing of the others.

        Positions are ascending.
        """
        spans = [slice(self.rated_start[user], self.rated_start[user + 1]) for user in users]
        counts = [span.stop - span.start for span in spans]
        return Devices(
            users=IdIndex(self.users.ids[users]),
            vectors=self.vectors[users].copy(),
            beta=self.beta[users].copy(),
            gamma=self.gamma,
            means=self.means[users].copy(),
            rated_start=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            rated=np.concatenate([self.rated[span] for span in spans]),
            stars=np.concatenate([self.stars[span] for span in spans]),
            scale=self.scale,
            times=None
            if self.times is None
            else np.concatenate([self.times[span] for span in spans]),
            earlier=None if self.earlier is None else self.earlier.only(self.users.ids[users]),
            whole=False,
        )

    @property
    def fit_record(self) -> FitRecord:
        """What users had in training."""
        return self.earlier or FitRecord(self.users, self.beta, self.rated_start, self.rated)

    def at_time(self, now: float | np.ndarray) -> Devices:
        """Return the same users, whose recent ratings count more in lists made now.

        Args:
            now: In seconds since 1970, one number for all or one for each; not a number: that
                user's ratings all count alike.
        """
        if self.times is None:
            return self
        each = np.broadcast_to(np.asarray(now, np.float64), (len(self.users),))
        asked = self.rated_start, self.times, each
        return replace(self, fresh=freshness(*asked), lasting=lasting_taste(*asked))

    def at_full_hour(self, clock: float) -> Devices:
        """Return the same users as asked at this time, to the hour; see ``recency.steady``."""
        if self.times is None:
            return self
        return self.at_time(steady(self.rated_start, self.times, clock))

    def predict(
        self,
        users: np.ndarray,
        items: np.ndarray,
        factors: np.ndarray,
        trained: np.ndarray,
        mechanism: Mechanism,
    ) -> np.ndarray:
        """Predict ratings for pairs of user and item positions; -1 means unknown.

        An item without training ratings gets the user's own mean; a user without ratings gets the
        middle of the scale. Neither costs any privacy.
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
        """Predict ratings of all items, a row per user position, by one matrix product."""
        means = self.means[users].astype(np.float64)
        weights = np.multiply.outer(self.beta[users], self.gamma)
        predictions = mechanism.bring_back(self.vectors[users] @ factors.T, weights).astype(
            np.float64
        )
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
        """Fit a vector to each user of ``ratings``, with the item factors fixed, and add the users.

        Args:
            ratings: Ratings of users who were not in training (or come again with more ratings).
            items: Catalogue position of each rating's item.
            weights: Privacy weight of each rating.
            beta: Privacy weight of each user.
            reg: Regularisation of the training.
            reg_per_rating: Whether it acts once per rating (the sequential solver) or once
                (Algorithm 1).
            mechanism: How ratings enter. Nothing is sent, so nothing is sampled away.
        """
        target = mechanism.target(ratings.values, weights)
        vectors = np.zeros((ratings.n_users, factors.shape[1]), np.float32)
        bound = 1.0 if mechanism.bounds_users else None
        with one_blas_thread():  # a small system for each user
            for user, own in enumerate(rows_by_code(ratings.user_codes, ratings.n_users)):
                if len(own):
                    ridge = reg * len(own) if reg_per_rating else reg
                    vectors[user] = constrained_ridge(
                        factors[items[own]], target[own], ridge, bound
                    )
        self.add_ratings(ratings, items, vectors, beta)
        return vectors

    def add_ratings(
        self, ratings: Ratings, items: np.ndarray, vectors: np.ndarray, beta: np.ndarray
    ) -> None:
        """Add the users of ``ratings``, or replace those here, with these vectors and weights.

        ``items`` has the catalogue position of each rating's item.
        """
        stars, times = to_stars(ratings.values, ratings.scale), ratings.timestamps
        rated = [
            (items[own], stars[own], None if times is None else times[own])
            for own in rows_by_code(ratings.user_codes, ratings.n_users)
        ]
        self.add_users(ratings.users, vectors, beta, own_means(ratings), rated)

    def add_users(
        self,
        users: IdIndex,
        vectors: np.ndarray,
        beta: np.ndarray,
        means: np.ndarray,
        rated: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]],
    ) -> None:
        """Add users, or replace those here; ``rated`` has each one's items, stars and times.

        It comes after training: what users had then is kept as `fit_record`.
        """
        self.earlier = self.fit_record
        stay = np.flatnonzero(users.find(self.users.ids) < 0)
        spans = [slice(self.rated_start[user], self.rated_start[user + 1]) for user in stay]
        kept = [
            (self.rated[span], self.stars[span], None if self.times is None else self.times[span])
            for span in spans
        ]
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
        self.times = _joined_times([(len(lists[user][0]), lists[user][2]) for user in order])


def _joined_times(parts: list[tuple[int, np.ndarray | None]]) -> np.ndarray | None:
    """Join the times of so many ratings each; None where nobody's are known."""
    if all(times is None for _, times in parts):
        return None
    return np.concatenate(
        [np.full(count, UNKNOWN) if times is None else times for count, times in parts]
    )


def fit_vectors(fit: DeviceFit, by_user: GroupedRatings, workers: Workers) -> np.ndarray:
    """One vector per user, to be multiplied with ``fit.factors``: theta and a 1 for the offset."""
    from hdpmf.private.kernels.batch import (
        fit_users,
    )  # here and below: a machine with a GPU need not have Numba

    vectors = np.ones((by_user.n_rows, fit.features.shape[1] + 1), np.float32)
    target = by_user.target - fit.offset[by_user.partner].astype(np.float32)
    fit_users(
        by_user.start,
        by_user.partner,
        target,
        fit.features,
        fit.weight,
        fit.precision,
        fit.mean_map,
        vectors,
        workers,
    )
    return vectors


def ratings_by_user(ratings: Ratings) -> GroupedRatings:
    """Ratings in stars, user after user."""
    from hdpmf.private.kernels.batch import group

    stars = to_stars(ratings.values, ratings.scale)
    return group(ratings.user_codes, ratings.item_codes, stars, None, ratings.n_users)


def times_by_user(ratings: Ratings, start: np.ndarray) -> np.ndarray | None:
    """Times of ratings, user after user as in `ratings_by_user`, where there are any."""
    if ratings.timestamps is None:
        return None
    from hdpmf.private.kernels.batch import placed

    return placed(ratings.user_codes, ratings.timestamps, start, np.int64)


def predict(
    devices: Devices,
    users: np.ndarray,
    items: np.ndarray,
    factors: np.ndarray,
    stranger: np.ndarray,
) -> np.ndarray:
    """Predict ratings for pairs of positions; -1 means unknown.

    An unknown user is predicted as a user without ratings; an unknown item gets the user's own
    mean.
    """
    rows = np.tile(stranger, (len(users), 1))
    rows[users >= 0] = devices.vectors[users[users >= 0]]
    predictions = np.einsum("nk,nk->n", rows, factors[items]).astype(np.float64)
    unknown = items < 0
    if unknown.any():
        means = np.append(devices.means, np.nan)[users[unknown]]
        predictions[unknown] = np.where(np.isnan(means), devices.scale.middle, means)
    return np.asarray(devices.scale.clip(predictions))
