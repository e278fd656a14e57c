"""The distinguishing game against final item factors, trained anew in every run.

This is the view ``final``. A method that is not ours is fitted anew in every run for any view.

Ten thousand trainings of a real data set would take hours, so this view has a small world: 20
items, 30 users, about ten ratings each. One rating among so few moves the factors more than it
would among many, which helps the attacker. Copies of the world have neither users nor items in
common, so a real ``GradientClient`` and ``Recommender`` train a block of them at once and none
notices the others.

The attacker has two scores and uses the one that did better on the pilot runs: the item's vector
projected on Fisher's discriminant (the mean difference of the pilot runs in units of their spread),
and what the factors predict for the rating from the user's other ratings. Without noise it simply
trains both worlds itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.replay import Copies, RecordedRun, SimulatedDevice, messages
from hdpmf.lab.audit.scores import Halves, Scores, discriminated, log_wide_share, lower_bound
from hdpmf.lab.audit.world import Target, in_threads, rating_in_worlds, with_rating
from hdpmf.models import Estimator
from hdpmf.private.client import GradientClient
from hdpmf.untrusted.recommender import Recommender

if TYPE_CHECKING:
    from hdpmf.models.factorization import Factorization


_ROWS_PER_BLOCK = 12_000  # ratings simulated at once: their messages of one round stay in the cache

Progress = Callable[[int], None]
"""Called with the number of runs done since the last call."""


@dataclass(frozen=True, slots=True)
class DeviceScores:
    """Scores by all messages, by those about the rated item, and by those about others.

    The messages about other items depend on the rating only through the user's vector.
    """

    everything: Scores
    direct: Scores
    indirect: Scores


def device_scores(
    target: Target,
    path: RecordedRun,
    view: str,
    runs: int,
    seed: int,
    progress: Progress = lambda done: None,
) -> DeviceScores:
    """Play ``runs`` runs of each world.

    The view is ``messages``, ``sums`` or ``sums-h-hidden``.
    """
    size = max(1, _ROWS_PER_BLOCK // len(target.own))
    begins = range(0, runs, size)
    with Workers(1) as workers:

        def play(block: tuple[int, int]) -> np.ndarray:
            world, begin = block
            noise = SeededNoise(seed, 1_000 + 2 * (begin // size) + world)
            ids = np.arange(begin, min(begin + size, runs))
            parts = _block(target, path, view, target.ends[world], ids, noise, seed, workers)
            progress(len(ids))
            return parts

        low, high = (
            np.concatenate(in_threads(play, [(world, begin) for begin in begins]), axis=1)
            for world in (0, 1)
        )
    return DeviceScores(
        Scores(low.sum(axis=0), high.sum(axis=0)), Scores(low[0], high[0]), Scores(low[1], high[1])
    )


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
    sharing = path.users if view == "messages" else 1
    stream = messages(path, copies, raters, noise, seed, workers, own_h=hidden, sharing=sharing)
    kept = next(stream)
    low, high = (
        SimulatedDevice(path, _copies(target, items, end, ids), kept, None, seed)
        for end in target.ends
    )
    ratios = np.zeros(kept.shape)
    for number, sums in enumerate(stream):
        if path.budget is not None and path.h is None:
            ratios[:, target.position] += _dense_ratio(
                path, number, sums[:, target.position], (low, high), target, sharing
            )
            continue
        if hidden:
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
    """Return ratios if h is unknown: Laplace noise on every coordinate."""
    distances = []
    ones = np.ones(sums.shape[2], np.float32)
    for device in (low, high):
        e = device.residuals(number).astype(np.float32)
        apart = e[:, :, None] * device.u.astype(np.float32)[:, None, :]
        apart -= sums
        np.abs(apart, out=apart)
        distances.append(apart @ ones)  # twice as fast as a sum over so short an axis
    return np.asarray((distances[0] - distances[1]) / path.laplace_scale)


def _dense_ratio(
    path: RecordedRun,
    number: int,
    rows: np.ndarray,
    devices: tuple[SimulatedDevice, SimulatedDevice],
    target: Target,
    sharing: int,
) -> np.ndarray:
    """Return ratios without h, where only messages about the item depend on the rating."""
    laws = []
    for device in devices:
        expected = device.residuals(number)[:, target.position, None] * device.u
        laws.append(log_wide_share(np.abs(rows - expected), path.dense_scale, sharing).sum(axis=1))
    return np.asarray(laws[1] - laws[0])


def _copies(target: Target, items: np.ndarray, rating: float, ids: np.ndarray) -> Copies:
    values = np.tile(target.values(rating)[target.own], (len(ids), 1))
    return Copies(ids, items, values, np.tile(target.weights[target.own], (len(ids), 1)))


SMALL_USERS = 30
SMALL_ITEMS = 20
SMALL_RATINGS_EACH = 10

_RATINGS_PER_BLOCK = 60_000

_RETRAIN_STREAM = 500_000  # away from the other views' streams


def small_world(ratings: Ratings) -> Ratings:
    """Return the most rated items and users who rated about ten of them."""
    items = np.argsort(-ratings.item_counts(), kind="stable")[:SMALL_ITEMS]
    among = ratings.take(np.isin(ratings.item_codes, items))
    counts = among.user_counts()
    distance = np.where(counts >= 2, np.abs(counts - SMALL_RATINGS_EACH), len(items) + 1)
    users = np.argsort(distance, kind="stable")[:SMALL_USERS]
    rows = among.take(np.isin(among.user_codes, users[distance[users] <= len(items)]))
    return Ratings.from_arrays(
        np.unique(rows.user_codes, return_inverse=True)[1],
        np.unique(rows.item_codes, return_inverse=True)[1],
        rows.values,
        scale=rows.scale,
        name=f"{ratings.name}, {SMALL_USERS} users and {SMALL_ITEMS} items",
    )


def retrain_scores(
    model: Factorization,
    target: Target,
    runs: int,
    seed: int,
    progress: Progress = lambda done: None,
) -> Halves:
    """Train ``runs`` pilot and ``runs`` measured runs of each world; score by the better attack."""
    size = max(1, _RATINGS_PER_BLOCK // len(target.ratings))
    begins = range(0, 2 * runs, size)
    with Workers(1) as workers:

        def train(block: tuple[int, int]) -> np.ndarray:
            world, begin = block
            ids = np.arange(begin, min(begin + size, 2 * runs))
            stream = _RETRAIN_STREAM + 4 * (begin // size) + 2 * world
            factors = _train_copies(model, target, target.ends[world], ids, (seed, stream), workers)
            progress(len(ids))
            return factors

        low, high = (
            np.concatenate(in_threads(train, [(world, begin) for begin in begins]))
            for world in (0, 1)
        )
    if model.privacy.epsilon is None:
        scores = [_own_training(low, high, target)]
    else:
        v_low, v_high = (factors[:, target.item].astype(np.float64) for factors in (low, high))
        scores = [discriminated(v_low, v_high, runs), _predictions(model, low, high, target)]
    return max(
        (attack.split(runs) for attack in scores),
        key=lambda pair: lower_bound(pair[0], pair[0]).epsilon,
    )


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
    client = GradientClient(
        inflated, weights, mechanism, SeededNoise(seed, stream), seed, workers, n_users=1
    )
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
        self._first = SeededNoise(seed, _RETRAIN_STREAM - 1)
        self._n_items = n_items

    def normals(self, shape: tuple[int, ...]) -> np.ndarray:
        of_world = self._first.normals((self._n_items, shape[1]))
        return np.tile(of_world, (shape[0] // self._n_items, 1))


def _own_training(low: np.ndarray, high: np.ndarray, target: Target) -> Scores:
    """Score by comparing with the attacker's own training, where there is no noise."""
    apart = np.linalg.norm(high[:, target.item] - low[:, target.item], axis=1).astype(np.float64)
    return Scores(-apart, apart)


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


_LEAST_T = 4.0
"""A number differs between the worlds if its means are so many standard errors apart."""


def refit_scores(
    make: Callable[[int], Estimator],
    target: Target,
    view: str,
    runs: tuple[int, int],
    adjacency: str,
    seed: int,
    progress: Progress = lambda done: None,
) -> Halves:
    """Fit somebody's own method anew in every run, and score what its observer sees.

    The attacker looks at the numbers that differ most in the pilot runs: at the best one alone, at
    all that differ beyond chance, and at all of them by their differences in units of their spread.
    It keeps what did best there.

    Args:
        make: Returns an unfitted model for a seed.
        target: The rating that differs.
        view: ``messages``, ``sums`` or ``final``; what the model's ``released`` says, and for
            ``final`` without that: predictions for everybody but the person.
        runs: Pilot runs, and runs to measure on.
        adjacency: ``value`` or ``presence``.
        seed: Of the first run.
        progress: Called with the number of runs done since the last call.
    """
    worlds = [with_rating(target, rating) for rating in rating_in_worlds(target, adjacency)]
    pilot, measured = runs
    seen: list[np.ndarray] = []
    for world, (ratings, weights) in enumerate(worlds):
        rows = []
        for run in range(pilot + measured):
            model = make(seed + 2 * run + world).fit(ratings, weights)
            rows.append(_seen(model, view, target))
            progress(1)
        if len({len(row) for row in rows}) > 1:
            raise ConfigError(
                f"released({view!r}) must have the same number of numbers in every run"
            )
        seen.append(np.stack(rows))
    low, high = seen
    if low.shape != high.shape:  # the number of messages already tells
        apart = np.ones(pilot + measured)
        return Scores(-apart, apart).split(pilot)
    differences = high[:pilot].mean(axis=0) - low[:pilot].mean(axis=0)
    spread = low[:pilot].var(axis=0) + high[:pilot].var(axis=0)
    direction = differences / np.maximum(spread, 1e-12)
    far = np.abs(differences) / np.sqrt(np.maximum(spread / pilot, 1e-12))
    best = np.arange(len(far)) == np.argmax(far)
    scores = [
        Scores(low @ (direction * kept), high @ (direction * kept))
        for kept in (best, far >= _LEAST_T, np.ones(len(far), bool))
    ]
    return max(
        (attack.split(pilot) for attack in scores),
        key=lambda pair: lower_bound(pair[0], pair[0]).epsilon,
    )


def _seen(model: Estimator, view: str, target: Target) -> np.ndarray:
    if view == "final" and type(model).released is Estimator.released:
        ratings = target.ratings
        others = np.setdiff1d(np.arange(ratings.n_users), ratings.user_codes[target.row])
        items = np.arange(ratings.n_items)
        found = model.predict(np.repeat(others, len(items)), np.tile(items, len(others)))
    else:
        found = model.released(view)
    numbers = np.asarray(found, np.float64).ravel()
    if not np.isfinite(numbers).all():
        raise ConfigError(f"released({view!r}) must be finite numbers")
    return numbers
