"""Training on a GPU: move the ratings there as a mechanism lets them enter, and train.

First factors, and which ratings a mechanism samples, are those of the same seed on a CPU. The noise
and the orders of ratings come from another generator: the same distribution, other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.model.device_fit import DeviceFit, to_stars
from hdpmf.common.privacy.mechanisms import Mechanism, laplace_scale
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import Plan, learning_rate_at
from hdpmf.models.training import EnteredRatings, diverged, enter, first_factors
from hdpmf.private.client.devices import Devices
from hdpmf.private.kernels.gpu.availability import fits, gpu

if TYPE_CHECKING:
    from hdpmf.private.kernels.gpu.layout import Table
    from hdpmf.private.kernels.gpu.streaming import Block, Stream
    from hdpmf.private.kernels.gpu.training import GpuRun, Recipe


def recipe_of(
    plan: Plan, mechanism: Mechanism, private: bool, h_per_item: bool, solver: str
) -> Recipe:
    """Return how a plan is trained on a GPU."""
    from hdpmf.private.kernels.gpu.training import Recipe

    noise = "none"
    if private:
        noise = "item" if h_per_item else "shared"
    return Recipe(
        solver="joint" if solver == "sequential" and not private else solver,
        n_factors=plan.n_factors,
        noise=noise,
        fresh_noise=plan.fresh_noise,
        unit_ball=mechanism.bounds_users,
        scale_steps=plan.scale_steps,
    )


def gpu_run_of(plan: Plan, budget: float | None, seed: int, view: int = 0) -> GpuRun:
    """Return the parameters of one plan among those that are trained together."""
    from hdpmf.private.kernels.gpu.training import GpuRun

    scale = 0.0
    if budget is not None:
        scale = laplace_scale(plan.n_factors, plan.scale_high - plan.scale_low, budget)
    rates = tuple(
        learning_rate_at(plan.learning_rate, epoch, plan.epochs)
        for epoch in range(1, plan.epochs + 1)
    )
    return GpuRun(rates, plan.reg, seed, scale, view)


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
    from hdpmf.private.kernels.gpu.training import GpuTraining

    entered = enter(train, weights, mechanism, plan, seed)
    table = table_of(train, entered) if fits(len(entered.target)) else stream_of(train, entered)
    recipe = recipe_of(plan, mechanism, entered.budget is not None, h_per_item, solver)
    training = GpuTraining(
        table, recipe, [gpu_run_of(plan, entered.budget, seed)], *first_factors(train, plan, seed)
    )
    raters = training.raters[0].cpu().numpy()
    for _ in training.epochs():
        if not bool(training.V.sum().isfinite()):
            raise diverged(plan.learning_rate)
        yield OnGpu(training.U, plan.n_factors), OnGpu(training.V, plan.n_factors), raters


def table_of(train: Ratings, entered: EnteredRatings) -> Table:
    """The ratings that take part, on the GPU."""
    from hdpmf.private.kernels.gpu.layout import Table

    (block,) = blocks_of(train, entered, max(len(entered.target), 1))
    coefficient = None if block.coefficient is None else block.coefficient[None]
    return Table(
        block.users, block.items, block.target[None], train.n_users, train.n_items, coefficient
    )


def stream_of(train: Ratings, entered: EnteredRatings) -> Stream:
    """The ratings that take part, brought to the GPU a part at a time."""
    from hdpmf.private.kernels.gpu.streaming import AT_A_TIME, Stream

    return Stream(lambda: blocks_of(train, entered, AT_A_TIME), train.n_users, train.n_items, gpu())


def blocks_of(train: Ratings, entered: EnteredRatings, size: int) -> Iterator[Block]:
    """The ratings that take part, on the GPU, ``size`` at a time."""
    import torch

    from hdpmf.private.kernels.gpu.streaming import Block

    device = gpu()

    def put(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        # Arrays of ratings are read-only, which PyTorch cannot express.
        return torch.from_numpy(values if values.flags.writeable else values.copy()).to(
            device, dtype
        )

    for begin in range(0, len(entered.target), size):
        part = slice(begin, begin + size)
        rows = part if entered.kept is None else entered.kept[part]
        yield Block(
            users=put(train.user_codes[rows], torch.int32),
            items=put(train.item_codes[rows], torch.int32),
            target=put(entered.target[part], torch.float32),
            coefficient=None
            if entered.coefficient is None
            else put(entered.coefficient[part], torch.float32),
        )


class OnGpu:
    """Factors of the first run, copied to the host only when they are used."""

    def __init__(self, factors: Any, n_factors: int) -> None:
        self._factors = factors
        self._n_factors = n_factors

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.copy()
        return values if dtype is None else values.astype(dtype)

    def copy(self) -> np.ndarray:
        """The factors as they are now."""
        return np.array(self._factors[:, 0, : self._n_factors].cpu().numpy())


def fit_devices(train: Ratings, fit: DeviceFit, beta: np.ndarray, gamma: np.ndarray) -> Devices:
    """Fit the vectors of ``train``'s users on the GPU, and return their private state.

    It agrees with the result of a CPU, to that one's precision.
    """
    import torch

    from hdpmf.private.kernels.gpu.layout import begins, shuffled
    from hdpmf.private.kernels.gpu.solvers import fit_users

    device = gpu()

    def put(values: np.ndarray) -> torch.Tensor:
        # Arrays of ratings are read-only, which PyTorch cannot express.
        return torch.from_numpy(np.array(values)).to(device)

    users = put(train.user_codes)
    order = shuffled(users, None)
    begin = begins(users, train.n_users)
    partner = put(train.item_codes)[order]
    stars = put(to_stars(train.values, train.scale))[order]
    target = stars - put(fit.offset.astype(np.float32))[partner.long()]
    theta = fit_users(
        begin, partner, target, *map(put, (fit.features, fit.weight, fit.precision, fit.mean_map))
    )  # fmt: skip
    vectors = np.ones((train.n_users, theta.shape[1] + 1), np.float32)
    vectors[:, :-1] = theta.float().cpu().numpy()
    return Devices.after_training(
        train,
        vectors,
        beta,
        gamma,
        (begin.cpu().numpy(), partner.cpu().numpy(), stars.cpu().numpy()),
        None if train.timestamps is None else put(train.timestamps)[order].cpu().numpy(),
    )
