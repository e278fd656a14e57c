"""The distinguishing game against rounds of gradients, on the real client and recommender.

A recommender may send everybody the same item factors again, whatever they answer. Given these, a
user's messages depend on nothing but the user's own ratings and noise, so a training is recorded
once and only the audited user is simulated: many copies at once by one real ``GradientClient``,
each rating of each copy an item of its own.

The view ``final`` has no such shortcut: it trains anew in every run, in a small world of 20 items,
30 users and about ten ratings each, where one rating moves the factors more than it would among
many. Copies of that world have neither users nor items in common, so a block of them trains at once
and none notices the others. Its attacker has two scores and uses the one that did better on the
pilot runs: Fisher's discriminant of the item's vector, and what the factors predict for the rating
from the user's other ratings. Without noise it simply trains both worlds itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import IdIndex, Ratings, RatingScale
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.mechanisms import H_FLOOR, dense_laplace_scale, laplace_scale
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Opening, Round, learning_rate_at
from hdpmf.common.protocol.messages import GRADIENT_STEP
from hdpmf.lab.audit.scores import Halves, Scores, best_attack, discriminated
from hdpmf.lab.audit.world import Target, in_threads
from hdpmf.private.client import GradientClient
from hdpmf.private.client.devices import initial_vectors
from hdpmf.untrusted.recommender import Recommender

if TYPE_CHECKING:
    from hdpmf.common.privacy.mechanisms import Mechanism
    from hdpmf.common.protocol import Plan
    from hdpmf.models.factorization import Factorization

# streams of the seed
_SHARD = 11
_RECOMMENDER = 12
_MESSAGES = 1_000
_RETRAIN = 500_000

_ROWS_PER_BLOCK = 12_000  # ratings simulated at once: their messages of one round stay in the cache
_RATINGS_PER_BLOCK = 60_000


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
    scale: RatingScale

    @property
    def laplace_scale(self) -> float:
        """Scale of the noise on each coordinate of a sum, if h is unknown or there is none."""
        plan, budget = self.plan, self.budget or 0.0
        if self.mechanism.needs_h:
            return laplace_scale(plan.n_factors, self.scale.width, budget)
        units = dense_laplace_scale(
            plan.n_factors, self.scale.width, budget, plan.epochs, GRADIENT_STEP
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


def messages(
    path: RecordedRun,
    copies: Copies,
    raters: np.ndarray,
    noise: SeededNoise,
    seed: int,
    workers: Workers,
    *,
    own_h: bool = False,
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

    Yields:
        First a mask (users, ratings), then for every round an array (users, ratings, factors).
    """
    n, m = copies.values.shape
    plan = replace(path.plan, n_items=n * m)
    ratings = Ratings.from_arrays(
        np.repeat(copies.ids, m),
        np.arange(n * m),
        copies.values.ravel(),
        scale=path.scale,
        name="copies of one user",
    )
    weights = PrivacyWeights.per_rating(ratings, copies.weights.ravel())
    # Copies share no item, so that the noise on each row is that of one of them.
    client = GradientClient(ratings, weights, path.mechanism, noise, seed, workers)
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
        seed: int,
        first: np.ndarray | None = None,
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


def device_scores(
    target: Target, path: RecordedRun, view: str, runs: int, seed: int
) -> dict[str, Scores]:
    """Play ``runs`` runs of each world in the view ``messages``, ``sums`` or ``sums-h-hidden``.

    Scores are by ``everything``, by messages about the rated item (``direct``) and by those about
    the user's other items (``indirect``), which depend on the rating through the user's vector.
    """
    size = max(1, _ROWS_PER_BLOCK // len(target.own))
    with Workers(1) as workers:

        def play(block: tuple[int, int]) -> np.ndarray:
            world, begin = block
            noise = SeededNoise(seed, _MESSAGES + 2 * (begin // size) + world)
            ids = np.arange(begin, min(begin + size, runs))
            return _block(target, path, view, target.ends[world], ids, noise, seed, workers)

        low, high = (
            np.concatenate(
                in_threads(play, [(world, begin) for begin in range(0, runs, size)]), axis=1
            )
            for world in (0, 1)
        )
    return {
        "everything": Scores(low.sum(axis=0), high.sum(axis=0)),
        "direct": Scores(low[0], high[0]),
        "indirect": Scores(low[1], high[1]),
    }


def _block(
    target: Target,
    path: RecordedRun,
    view: str,
    rating: float,
    ids: np.ndarray,
    noise: SeededNoise,
    seed: int,
    workers: Workers,
) -> np.ndarray:
    """Return log-likelihood ratios of messages about the rated item, and about the others."""
    items = target.ratings.item_codes[target.own]
    raters = (
        np.maximum(path.raters[items], 1) if view == "messages" else np.ones(len(items), np.int64)
    )
    copies = _copies(target, items, rating, ids)
    hidden = view == "sums-h-hidden"
    stream = messages(path, copies, raters, noise, seed, workers, own_h=hidden)
    kept = next(stream)
    low, high = (
        SimulatedDevice(path, _copies(target, items, end, ids), kept, seed) for end in target.ends
    )
    ratios = np.zeros(kept.shape)
    for number, sums in enumerate(stream):
        if hidden or (path.budget is not None and path.h is None):
            ratios += _laplace_ratio(path, number, sums, low, high)
            continue
        precision = 1.0 / path.variance(number, items, raters)
        e_low = low.residuals(number)
        e_high = high.residuals(number)
        # sum_k (m - (mu1 + mu0)/2) (mu1 - mu0) / var with mu = e u, without an array as large as
        # the messages.
        both = np.stack((low.u, high.u), axis=2).astype(np.float32)
        seen = (sums * precision.astype(np.float32)) @ both
        ratios += e_high * seen[:, :, 1] - e_low * seen[:, :, 0]
        ratios -= 0.5 * (
            e_high**2 * (high.u**2 @ precision.T) - e_low**2 * (low.u**2 @ precision.T)
        )
    own = ratios[:, target.position]
    return np.stack((own, ratios.sum(axis=1) - own))


def _laplace_ratio(
    path: RecordedRun, number: int, sums: np.ndarray, low: SimulatedDevice, high: SimulatedDevice
) -> np.ndarray:
    """Return ratios if h is unknown, or there is none: Laplace noise on every coordinate."""
    distances = []
    ones = np.ones(sums.shape[2], np.float32)
    for device in (low, high):
        e = device.residuals(number).astype(np.float32)
        apart = e[:, :, None] * device.u.astype(np.float32)[:, None, :]
        apart -= sums
        np.abs(apart, out=apart)
        distances.append(apart @ ones)  # twice as fast as a sum over so short an axis
    return np.asarray((distances[0] - distances[1]) / path.laplace_scale)


def _copies(target: Target, items: np.ndarray, rating: float, ids: np.ndarray) -> Copies:
    values = np.tile(target.values(rating)[target.own], (len(ids), 1))
    return Copies(ids, items, values, np.tile(target.weights[target.own], (len(ids), 1)))


def retrain_scores(model: Factorization, target: Target, runs: int, seed: int) -> Halves:
    """Train ``runs`` pilot and ``runs`` measured runs of each world; score by the better attack."""
    size = max(1, _RATINGS_PER_BLOCK // len(target.ratings))
    begins = range(0, 2 * runs, size)
    with Workers(1) as workers:

        def train(block: tuple[int, int]) -> np.ndarray:
            world, begin = block
            ids = np.arange(begin, min(begin + size, 2 * runs))
            stream = _RETRAIN + 4 * (begin // size) + 2 * world
            return _train_copies(model, target, target.ends[world], ids, (seed, stream), workers)

        low, high = (
            np.concatenate(in_threads(train, [(world, begin) for begin in begins]))
            for world in (0, 1)
        )
    if model.privacy.epsilon is None:
        # Without noise: compare with the attacker's own training.
        apart = np.linalg.norm(high[:, target.item] - low[:, target.item], axis=1)
        scores = [Scores(-apart.astype(np.float64), apart.astype(np.float64))]
    else:
        v_low, v_high = (factors[:, target.item].astype(np.float64) for factors in (low, high))
        scores = [discriminated(v_low, v_high, runs), _predictions(model, low, high, target)]
    return best_attack([attack.split(runs) for attack in scores])


def _train_copies(
    model: Factorization,
    target: Target,
    rating: float,
    ids: np.ndarray,
    streams: tuple[int, int],
    workers: Workers,
) -> np.ndarray:
    """Return final item factors of copies of the world, (copies, items, factors)."""
    ratings = target.ratings
    n = len(ids)
    copy = np.repeat(ids, len(ratings))
    inflated = Ratings.from_arrays(
        copy * ratings.n_users + np.tile(ratings.user_codes, n),
        copy * ratings.n_items + np.tile(ratings.item_codes, n),
        np.tile(target.values(rating), n),
        scale=ratings.scale,
        name="copies of a small world",
    )
    plan, mechanism, h_per_item = model.setup(inflated.n_items, inflated.scale)
    weights = PrivacyWeights.per_rating(inflated, np.tile(target.weights, n))
    seed, stream = streams
    # Copies share no item: the whole noise is on every row, wherever it comes from.
    client = GradientClient(inflated, weights, mechanism, SeededNoise(seed, stream), seed, workers)
    start = _SameStart(seed, stream + 1, ratings.n_items)
    recommender = Recommender(plan, mechanism, start, h_per_item)
    recommender.start([client.open(recommender.open([client.accept(plan)]))])
    for _ in range(plan.epochs):
        client.receive(recommender.next_round())
        recommender.aggregate([client.contribute()])
    return recommender.factors.reshape(n, ratings.n_items, plan.n_factors)


class _SameStart(SeededNoise):
    """Noise with the same first item factors for every copy, which the attacker knows."""

    def __init__(self, seed: int, stream: int, n_items: int) -> None:
        super().__init__(seed, stream)
        self._first = SeededNoise(seed, _RETRAIN - 1)
        self._n_items = n_items

    def normals(self, shape: tuple[int, ...]) -> np.ndarray:
        of_world = self._first.normals((self._n_items, shape[1]))
        return np.tile(of_world, (shape[0] // self._n_items, 1))


def _predictions(model: Factorization, low: np.ndarray, high: np.ndarray, target: Target) -> Scores:
    """Score by predicted ratings, with a user vector fitted to the user's other ratings."""
    _, mechanism, _ = model.setup(target.ratings.n_items, target.ratings.scale)
    others = np.delete(target.own, target.position)
    items = target.ratings.item_codes[others]
    wanted = mechanism.target(target.ratings.values[others], target.weights[others]).astype(
        np.float64
    )
    scores = []
    for factors in (low, high):
        known = factors[:, items].astype(np.float64)
        gram = known.transpose(0, 2, 1) @ known
        ridge = max(model.reg, 1e-3) + 1e-6 * np.trace(gram, axis1=1, axis2=2)
        gram += ridge[:, None, None] * np.eye(known.shape[2])
        u = np.linalg.solve(gram, (known.transpose(0, 2, 1) @ wanted)[:, :, None])[:, :, 0]
        if mechanism.bounds_users:
            u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1.0)
        scores.append(np.sum(u * factors[:, target.item], axis=1))
    return Scores(scores[0], scores[1])
