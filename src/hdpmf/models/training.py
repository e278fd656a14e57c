"""Training loops: the protocol in one process (``batch``) and the published procedure (``sequential``).

Both are generators that yield user vectors and item factors after every epoch, so that progress, validation and early
stopping are written once, in ``run_epochs``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from hdpmf.errors import DivergedError
from hdpmf.models.entry import RECOMMENDER_STREAM, SHARD_STREAM, enter
from hdpmf.privacy.mechanisms import Mechanism
from hdpmf.privacy.noise import laplace_scale
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.protocol import Plan, learning_rate_at
from hdpmf.ratings import Ratings
from hdpmf.recommender import Recommender
from hdpmf.shard.initial import initial_vectors
from hdpmf.threads import Workers


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """What is known after an epoch.

    Attributes:
        epoch: From 1.
        epochs: How many there will be.
        learning_rate: The rate of this epoch.
        seconds: Time since training began.
        validation_mse: Error on the validation set, where there is one.
    """

    epoch: int
    epochs: int
    learning_rate: float
    seconds: float
    validation_mse: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Trained:
    """User vectors, item factors, the ratings that took part per item, and the history."""

    vectors: np.ndarray
    factors: np.ndarray
    raters: np.ndarray
    history: tuple[EpochRecord, ...]


Epochs = Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Yields (user vectors, item factors, raters) after every epoch."""


def batch_epochs(
    train: Ratings,
    weights: PrivacyWeights,
    mechanism: Mechanism,
    plan: Plan,
    h_per_item: bool,
    seed: int,
    workers: Workers,
) -> Epochs:
    """Algorithm 1: the protocol with one shard of all users, in this process."""
    from hdpmf.shard import Shard  # here and below: a machine that trains on its GPU need not have Numba

    shard = Shard(train, weights, mechanism, SeededNoise(seed, SHARD_STREAM), seed, workers)
    recommender = Recommender(plan, mechanism, SeededNoise(seed, RECOMMENDER_STREAM), h_per_item)
    opening = recommender.open([shard.accept(plan)])
    recommender.start([shard.open(opening)])
    message = recommender.next_round()
    shard.receive(message)
    for _ in range(plan.epochs):
        recommender.aggregate([shard.contribute()])
        check_finite(recommender.factors, plan.learning_rate)
        message = recommender.next_round()
        shard.receive(message)
        yield shard.vectors, message.item_factors, recommender.raters


def sequential_epochs(
    train: Ratings,
    weights: PrivacyWeights,
    mechanism: Mechanism,
    plan: Plan,
    h_per_item: bool,
    seed: int,
    workers: Workers,
) -> Epochs:
    """The procedure behind the published numbers: one step per rating. A simulation; no federation can run it."""
    from hdpmf.kernels import sequential
    from hdpmf.kernels.grouping import group
    from hdpmf.kernels.simd import pad

    recommender_noise = SeededNoise(seed, RECOMMENDER_STREAM)
    entered = enter(train, weights, mechanism, plan, seed)
    budget = entered.budget
    users, items = train.user_codes, train.item_codes
    if entered.kept is not None:
        users, items = users[entered.kept], items[entered.kept]
    raters = np.bincount(items, minlength=train.n_items)
    U = pad(initial_vectors(train.users, plan.n_factors, seed))
    V = pad(recommender_noise.normals((plan.n_items, plan.n_factors)) * np.float32(0.1))
    vectors, factors = U[:, : plan.n_factors], V[:, : plan.n_factors]

    if budget is None:
        # Non-private MF steps both vectors of a rating at once.
        table = users.copy(), items.copy(), entered.target.astype(np.float32)
        for epoch in range(1, plan.epochs + 1):
            rate = learning_rate_at(plan.learning_rate, epoch, plan.epochs)
            sequential.joint_pass(*table, U, V, rate, plan.reg, seed, epoch)
            check_finite(V, plan.learning_rate)
            yield vectors, factors, raters
        return

    by_item = group(items, users, entered.target, entered.coefficient, train.n_items)
    by_user = group(users, items, entered.target, None, train.n_users)
    scale = laplace_scale(plan.n_factors, plan.scale_high - plan.scale_low, budget)
    share = scale * math.sqrt(2.0) / np.sqrt(np.maximum(raters, 1))
    spread = np.zeros_like(V)
    for epoch in range(1, plan.epochs + 1):
        rate = learning_rate_at(plan.learning_rate, epoch, plan.epochs)
        if epoch == 1 or plan.fresh_noise:
            h = recommender_noise.exponentials((plan.n_items if h_per_item else 1, plan.n_factors))
            spread[:, : plan.n_factors] = np.sqrt(h) * share[:, None]
        noise = sequential.PassNoise(spread, epoch if plan.fresh_noise else 0)
        sequential.item_pass(by_item, U, V, rate, plan.reg, seed, epoch, noise, workers)
        sequential.user_pass(by_user, U, V, rate, plan.reg, seed, epoch, workers)
        check_finite(V, plan.learning_rate)
        yield vectors, factors, raters


def check_finite(factors: np.ndarray, learning_rate: float) -> None:
    """Raise DivergedError where training has run away."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(factors.sum())
    if not finite:
        raise DivergedError(f"training ran away to infinity with learning rate {learning_rate:g}; use a smaller one")


def run_epochs(
    epochs: Epochs,
    plan: Plan,
    validate: Callable[[np.ndarray, np.ndarray, np.ndarray], float] | None,
    patience: int | None,
    callbacks: Iterable[Callable[[EpochRecord], object]],
) -> Trained:
    """Drive a solver to its end, or until validation has not improved for ``patience`` epochs.

    With ``patience`` the best epoch's factors are returned, otherwise the last epoch's.
    """
    callbacks = tuple(callbacks)
    history: list[EpochRecord] = []
    best: tuple[float, int, np.ndarray, np.ndarray] | None = None
    begin = time.perf_counter()
    for epoch, (vectors, factors, raters) in enumerate(epochs, start=1):
        error = None if validate is None else validate(np.asarray(vectors), np.asarray(factors), raters)
        rate = learning_rate_at(plan.learning_rate, epoch, plan.epochs)
        record = EpochRecord(epoch, plan.epochs, rate, time.perf_counter() - begin, error)
        history.append(record)
        answers = [callback(record) for callback in callbacks]  # every one is called, also after one says stop
        stop = any(answer is True for answer in answers)
        if patience is not None and error is not None:
            if best is None or error < best[0]:
                best = (error, epoch, vectors.copy(), factors.copy())
            stop = stop or epoch - best[1] >= patience
        if stop:
            break
    if best is not None:
        _, _, vectors, factors = best
    return Trained(np.array(vectors), np.array(factors), raters, tuple(history))
