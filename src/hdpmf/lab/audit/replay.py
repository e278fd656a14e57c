"""A recorded training run, and devices that live through it again.

A recommender chooses what it sends, so it may send everybody the same item factors again, whatever
they answer. Given these, a user's messages depend on nothing but the user's own ratings and noise:
only the audited user has to be simulated. Many copies of the user are simulated at once, by one
real ``GradientClient``: each rating of each copy is an item of its own, so that the client's sum
per item is one user's one message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import IdIndex, Ratings, RatingScale
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.mechanisms import H_FLOOR, dense_laplace_scale, laplace_scale
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Opening, Round, learning_rate_at
from hdpmf.common.protocol.messages import GRADIENT_STEP
from hdpmf.private.client import GradientClient
from hdpmf.private.client.devices import initial_vectors
from hdpmf.untrusted.recommender import Recommender

if TYPE_CHECKING:
    from hdpmf.common.privacy.mechanisms import Mechanism
    from hdpmf.common.protocol import Plan
    from hdpmf.models.factorization import Factorization

# streams of the recording's seed
_SHARD = 11
_RECOMMENDER = 12


@dataclass(frozen=True, slots=True, repr=False)
class RecordedRun:
    """All messages of the recommender in a training run.

    Attributes:
        budget: The epsilon that set the noise, or None.
        factors: V of every round, the closing one included.
        h: The recommender's draws of every round, one row per item or one for all; None without
            noise.
        raters: Number of ratings that took part, per item.
    """

    plan: Plan
    mechanism: Mechanism
    budget: float | None
    factors: np.ndarray
    h: np.ndarray | None
    raters: np.ndarray
    users: int
    scale: RatingScale

    @property
    def laplace_scale(self) -> float:
        """Scale of the noise on each coordinate of a sum if h is unknown."""
        return laplace_scale(self.plan.n_factors, self.scale.width, self.budget or 0.0)

    @property
    def dense_scale(self) -> float:
        """Scale of the noise of methods without h."""
        plan = self.plan
        units = dense_laplace_scale(
            plan.n_factors, self.scale.width, self.budget or 0.0, plan.epochs, GRADIENT_STEP
        )
        return float(units) * GRADIENT_STEP

    def variance(self, round_: int, items: np.ndarray, raters: np.ndarray) -> np.ndarray:
        """Return the variance of the noise in messages about ``items`` (rows), by coordinate."""
        if self.h is None or self.budget is None:
            return np.ones((len(items), self.plan.n_factors))
        h = self.h[round_].astype(np.float64)
        per_item = h[items] if len(h) > 1 else np.repeat(h, len(items), axis=0)
        return np.asarray(2.0 * self.laplace_scale**2 * per_item / raters[:, None])


def record(model: Factorization, train: Ratings, weights: PrivacyWeights, seed: int) -> RecordedRun:
    """Train once, honestly, and record what the recommender sent."""
    plan, mechanism, h_per_item = model.setup(train.n_items, train.scale)
    with Workers(1) as workers:
        client = GradientClient(train, weights, mechanism, SeededNoise(seed, _SHARD), seed, workers)
        recommender = Recommender(plan, mechanism, SeededNoise(seed, _RECOMMENDER), h_per_item)
        opening = recommender.open([client.accept(plan)])
        recommender.start([client.open(opening)])
        factors = []
        draws = []
        for _ in range(plan.epochs):
            message = recommender.next_round()
            factors.append(message.item_factors)
            draws.append(message.h)
            client.receive(message)
            recommender.aggregate([client.contribute()])
        factors.append(recommender.factors)
    drawn = [h for h in draws if h is not None]
    all_h = np.stack(drawn) if drawn else None
    return RecordedRun(
        plan,
        mechanism,
        opening.noise_budget,
        np.stack(factors),
        all_h,
        recommender.raters,
        train.n_users,
        train.scale,
    )


@dataclass(frozen=True, slots=True, repr=False)
class Copies:
    """Ratings of simulated users: ``n`` users with equally many ratings each, user after user.

    Attributes:
        ids: A number for each user, which decides its first vector.
        weights: Their privacy weights, one row per user.
    """

    ids: np.ndarray
    items: np.ndarray
    values: np.ndarray
    weights: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Users, and ratings of each."""
        return self.values.shape[0], self.values.shape[1]


def messages(
    path: RecordedRun,
    copies: Copies,
    raters: np.ndarray,
    noise: SeededNoise,
    seed: int,
    workers: Workers,
    *,
    own_h: bool = False,
    sharing: int = 1,
) -> Iterator[np.ndarray]:
    """Yield a real client's answers: which ratings take part, then the messages of every round.

    Args:
        path: The recommender's messages.
        raters: The number of raters that the recommender states, one for each of a user's ratings.
            With the true numbers a message has one user's share of the noise; with 1 it has the
            noise of the whole sum.
        seed: Seed of the first user vectors.
        workers: Threads for the kernels.
        own_h: Draw h anew for every copy, item and round, instead of what the path has.
        sharing: Without h: the users whose shares make the whole noise; each copy adds one share.

    Yields:
        First a mask (users, ratings), then for every round an array (users, ratings, factors).
    """
    n, m = copies.shape
    plan = _plan_for(path.plan, n * m)
    ratings = Ratings.from_arrays(
        np.repeat(copies.ids, m),
        np.arange(n * m),
        copies.values.ravel(),
        scale=path.scale,
        name="copies of one user",
    )
    weights = PrivacyWeights.per_rating(ratings, copies.weights.ravel())
    # Copies share no item, so that the noise on each row is that of one of them.
    client = GradientClient(
        ratings, weights, path.mechanism, noise, seed, workers, n_users=1, sharing=sharing
    )
    client.accept(plan)
    counts = client.open(Opening(noise_budget=path.budget)).counts
    yield counts.reshape(n, m) > 0
    stated = np.tile(np.maximum(raters, 1), n)
    for number in range(1, plan.epochs + 1):
        factors = path.factors[number - 1][copies.items]
        h = None if path.h is None else path.h[number - 1]
        if h is not None and own_h:
            h = np.maximum(noise.exponentials((n * m, plan.n_factors)), np.float32(H_FLOOR))
        elif h is not None and len(h) > 1:
            h = np.tile(h[copies.items], (n, 1))
        client.receive(
            Round(number=number, item_factors=np.tile(factors, (n, 1)), raters=stated, h=h)
        )
        yield client.contribute().sums.reshape(n, m, plan.n_factors)


def _plan_for(plan: Plan, n_items: int) -> Plan:
    from msgspec.structs import replace

    return replace(plan, n_items=n_items)


class SimulatedDevice:
    """The attacker's simulation of devices with supposed ratings.

    Everything is known to the attacker but the ratings in question: the path, the other ratings and
    the weights, which ratings take part, and the first vectors (the theorem that is put to the test
    fixes them, too).
    """

    def __init__(
        self,
        path: RecordedRun,
        copies: Copies,
        kept: np.ndarray,
        first: np.ndarray | None,
        seed: int,
    ) -> None:
        plan = path.plan
        self.target = np.asarray(path.mechanism.target(copies.values, copies.weights), np.float64)
        coefficient = path.mechanism.coefficient(copies.weights)
        self._coefficient = 1.0 if coefficient is None else coefficient
        self._path = path
        self._items = copies.items
        self._kept = kept
        self._root = (
            np.sqrt(np.maximum(kept.sum(axis=1, keepdims=True), 1)) if plan.scale_steps else 1.0
        )
        ids = IdIndex(copies.ids)
        self.u = (
            initial_vectors(ids, plan.n_factors, seed).astype(np.float64)
            if first is None
            else first.copy()
        )

    def residuals(self, round_: int) -> np.ndarray:
        """Step the vectors to a round (from 0); return ``e`` of its messages ``e u``."""
        path = self._path
        plan = self._path.plan
        factors = path.factors[round_][self._items].astype(np.float64)
        if not path.mechanism.sends_fitted_vectors:
            direction = self._kept @ factors
            lengths = np.linalg.norm(direction, axis=1, keepdims=True)
            self.u = direction / np.where(lengths > 0, lengths, 1.0)
        elif round_ > 0:
            rate = learning_rate_at(plan.learning_rate, round_, plan.epochs)
            error = (self.u @ factors.T - self.target) * self._kept
            self.u = self.u - rate / self._root * 2.0 * (error @ factors + plan.reg * self.u)
            if path.mechanism.bounds_users:
                self.u /= np.maximum(np.linalg.norm(self.u, axis=1, keepdims=True), 1.0)
        return np.asarray(2.0 * self._coefficient * (self.u @ factors.T - self.target) * self._kept)
