"""Training loops: ``batch``, the protocol in one process, and ``sequential``, as published.

Both are generators that yield user vectors and item factors after every epoch, so that progress,
validation and early stopping are written once, in ``run_epochs``.

On a GPU first factors, and which ratings a mechanism samples, are those of the same seed on a CPU.
The noise and the orders of ratings come from another generator: the same distribution, other
numbers.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings
from hdpmf.common.privacy.mechanisms import Budgets, Mechanism, TrainingRatings, laplace_scale
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import Plan, learning_rate_at
from hdpmf.errors import ConfigError
from hdpmf.private.client.devices import SPREAD, initial_vectors
from hdpmf.private.kernels.gpu.availability import fits, gpu
from hdpmf.untrusted.recommender import Recommender
from hdpmf.untrusted.recommender.rounds import check_finite, diverged

if TYPE_CHECKING:
    from hdpmf.models.factorization import Factorization
    from hdpmf.private.kernels.gpu.layout import Table
    from hdpmf.private.kernels.gpu.solvers import GpuRun


RECOMMENDER_STREAM = 1

CLIENT_STREAM = 2
"""Streams of one seed: the recommender's draws must not be the users'."""


@dataclass(frozen=True, slots=True, repr=False)
class EnteredRatings(TrainingRatings):
    """Ratings as a mechanism lets them enter, and the epsilon of the noise (None: no noise)."""

    budget: float | None


def enter(
    train: Ratings, weights: PrivacyWeights, mechanism: Mechanism, plan: Plan, seed: int
) -> EnteredRatings:
    """Let ratings enter as a single client of all users would."""
    row_weights = weights.for_ratings(train)
    budgets = Budgets.of(row_weights, plan.epsilon) if mechanism.needs_budgets else None
    budget = mechanism.noise_budget(plan.epsilon, budgets)
    uniforms = SeededNoise(seed, CLIENT_STREAM).uniforms(len(train))
    entered = mechanism.enter(train.values, row_weights, plan.epsilon, budget, uniforms)
    return EnteredRatings(entered.kept, entered.target, entered.coefficient, budget)


def first_factors(train: Ratings, plan: Plan, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """First user vectors and item factors."""
    items = SeededNoise(seed, RECOMMENDER_STREAM).normals(
        (plan.n_items, plan.n_factors)
    ) * np.float32(SPREAD)
    return initial_vectors(train.users, plan.n_factors, seed), items


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """Facts about an epoch that is over.

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
class TrainingResult:
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
    """Algorithm 1: the protocol with one client of all users, in this process."""
    # Here and below: a machine that trains on its GPU need not have Numba.
    from hdpmf.private.client import GradientClient

    client = GradientClient(
        train, weights, mechanism, SeededNoise(seed, CLIENT_STREAM), seed, workers
    )
    recommender = Recommender(plan, mechanism, SeededNoise(seed, RECOMMENDER_STREAM), h_per_item)
    for message in recommender.train(lambda message: [client.answer(message)]):
        yield client.vectors, message.item_factors, message.raters


def sequential_epochs(
    train: Ratings,
    weights: PrivacyWeights,
    mechanism: Mechanism,
    plan: Plan,
    h_per_item: bool,
    seed: int,
    workers: Workers,
) -> Epochs:
    """Train by the procedure behind the published numbers: one step per rating.

    This is a simulation; no federation can run it.
    """
    from hdpmf.private.kernels import sequential
    from hdpmf.private.kernels.batch import group, pad

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


def run_epochs(
    epochs: Epochs,
    plan: Plan,
    validate: Callable[[np.ndarray, np.ndarray, np.ndarray], float] | None,
    patience: int | None,
    callbacks: Iterable[Callable[[EpochRecord], object]],
) -> TrainingResult:
    """Drive a solver to its end, or until validation has not improved for ``patience`` epochs.

    With ``patience`` the best epoch's factors are returned, otherwise the last epoch's.
    """
    callbacks = tuple(callbacks)
    history: list[EpochRecord] = []
    best: tuple[float, int, np.ndarray, np.ndarray] | None = None
    begin = time.perf_counter()
    for epoch, (vectors, factors, raters) in enumerate(epochs, start=1):
        error = None
        if validate is not None:
            error = validate(np.asarray(vectors), np.asarray(factors), raters)
        rate = learning_rate_at(plan.learning_rate, epoch, plan.epochs)
        record = EpochRecord(epoch, plan.epochs, rate, time.perf_counter() - begin, error)
        history.append(record)
        # Every one is called, also after one says stop.
        answers = [callback(record) for callback in callbacks]
        stop = any(answer is True for answer in answers)
        if patience is not None and error is not None:
            if best is None or error < best[0]:
                best = (error, epoch, vectors.copy(), factors.copy())
            stop = stop or epoch - best[1] >= patience
        if stop:
            break
    if best is not None:
        _, _, vectors, factors = best
    return TrainingResult(np.array(vectors), np.array(factors), raters, tuple(history))


_ROWS = 50_000

_FAR = 1.5
"""Factors start near zero, so that a model that has hardly begun is several times worse than the
users' means; one that has arrived is better, even with the paper's noise at epsilon 1
(docs/methods.md)."""


class FarFromConvergedWarning(UserWarning):
    """A model fits the ratings that it was trained on worse than a mean does."""


def warn_if_far(model: Factorization, train: Ratings) -> None:
    """Warn if the model fits its training ratings much worse than each user's mean does.

    Much worse is a mean squared error more than ``_FAR`` times as large, on at most about ``_ROWS``
    ratings.
    """
    rows = slice(None, None, max(1, len(train) // _ROWS))
    users, items, values = train.user_codes[rows], train.item_codes[rows], train.values[rows]
    error = float(np.mean((model._predict_codes(users, items) - values) ** 2))
    if error <= _FAR * float(np.mean((model.devices_.means[users] - values) ** 2)):
        return
    epochs = len(model.history_)
    noise = "" if type(model).__name__ == "MF" else ", or its noise drowns them"
    warnings.warn(
        f"{type(model).__name__} fits its own training ratings worse than each user's own mean "
        f"does: after {epochs} epochs at learning rate {model.learning_rate:g} it is far from "
        f"converged{noise}; train longer, or with a larger rate",
        FarFromConvergedWarning,
        stacklevel=4,
    )


def gpu_run(
    plan: Plan, mechanism: Mechanism, budget: float | None, h_per_item: bool, seed: int, solver: str
) -> GpuRun:
    """Return how a plan is trained on a GPU."""
    from hdpmf.private.kernels.gpu.solvers import GpuRun

    noise, scale = "none", 0.0
    if budget is not None:
        noise = "item" if h_per_item else "shared"
        scale = laplace_scale(plan.n_factors, plan.scale_high - plan.scale_low, budget)
    rates = tuple(
        learning_rate_at(plan.learning_rate, epoch, plan.epochs)
        for epoch in range(1, plan.epochs + 1)
    )
    return GpuRun(
        solver=solver,
        n_factors=plan.n_factors,
        rates=rates,
        reg=plan.reg,
        seed=seed,
        noise=noise,
        noise_scale=scale,
        fresh_noise=plan.fresh_noise,
        unit_ball=mechanism.bounds_users,
        scale_steps=plan.scale_steps,
    )


def gpu_epochs(
    train: Ratings,
    weights: PrivacyWeights,
    mechanism: Mechanism,
    plan: Plan,
    h_per_item: bool,
    seed: int,
    solver: str,
) -> Iterator[tuple[Any, Any, np.ndarray]]:
    """Train on the GPU and yield (user vectors, item factors, raters) after every epoch.

    Factors are copied to the host only when they are used.

    Raises:
        DivergedError: The factors are no longer finite.
    """
    from hdpmf.private.kernels.gpu.solvers import GpuTraining

    entered = enter(train, weights, mechanism, plan, seed)
    run = gpu_run(plan, mechanism, entered.budget, h_per_item, seed, solver)
    training = GpuTraining(table_of(train, entered), run, *first_factors(train, plan, seed))
    raters = training.raters.cpu().numpy()
    for _ in training.epochs():
        if not bool(training.V.sum().isfinite()):
            raise diverged(plan.learning_rate)
        yield OnGpu(training.U, plan.n_factors), OnGpu(training.V, plan.n_factors), raters


def table_of(train: Ratings, entered: EnteredRatings) -> Table:
    """The ratings that take part, on the GPU."""
    import torch

    from hdpmf.private.kernels.gpu.layout import Table

    n, device = len(entered.target), gpu()
    if not fits(n):
        raise ConfigError(f"{n:,} ratings do not fit into the GPU's free memory; use on='cpu'")

    def put(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        # Arrays of ratings are read-only, which PyTorch cannot express.
        return torch.from_numpy(values if values.flags.writeable else values.copy()).to(
            device, dtype
        )

    rows = slice(None) if entered.kept is None else entered.kept
    coefficient = entered.coefficient
    return Table(
        put(train.user_codes[rows], torch.int32),
        put(train.item_codes[rows], torch.int32),
        put(entered.target, torch.float32),
        train.n_users,
        train.n_items,
        None if coefficient is None else put(coefficient, torch.float32),
    )


class OnGpu:
    """Factors, copied to the host only when they are used."""

    def __init__(self, factors: Any, n_factors: int) -> None:
        self._factors = factors
        self._n_factors = n_factors

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.copy()
        return values if dtype is None else values.astype(dtype)

    def copy(self) -> np.ndarray:
        """The factors as they are now."""
        return np.array(self._factors[:, : self._n_factors].cpu().numpy())
