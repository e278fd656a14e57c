"""Many factorizations fitted at once on a GPU: grids of rates and regularisations, folds, seeds.

What can share a launch does: models with the same K, solver, kind of noise and number of epochs (in
``sequential`` also of one seed), over the union of their training ratings. What a model becomes
does not depend on those beside it, but for rounding where they train on different ratings.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy.sampling import seed_of
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import Plan
from hdpmf.errors import ConfigError, HdpmfError
from hdpmf.models.factorization import Factorization
from hdpmf.models.training import (
    EnteredRatings,
    enter,
    first_factors,
    gpu_run_of,
    recipe_of,
)
from hdpmf.private.client import Devices
from hdpmf.private.kernels.gpu.availability import gpu
from hdpmf.untrusted.recommender import Catalogue
from hdpmf.untrusted.recommender.rounds import diverged

if TYPE_CHECKING:
    from hdpmf.private.kernels.gpu.layout import Table
    from hdpmf.private.kernels.gpu.training import GpuTraining

_FACTORS_AT_A_TIME = 1 << 30
"""Numbers in the factors of models that are trained at a time; segments' sums take about as many
again.
"""


@dataclass(frozen=True, slots=True, repr=False)
class Fit:
    """A model to be fitted.

    Attributes:
        model: The model; not fitted yet.
        train: Ratings to learn from. Models that share a table object share the work of preparing
            it.
        weights: Privacy weights, or None for 1.
    """

    model: Factorization
    train: Ratings
    weights: PrivacyWeights | None = None


@dataclass(frozen=True, slots=True)
class FitResult:
    """The result of fitting one of the models.

    Attributes:
        number: Its position among those that were given.
        seconds: Its share of the time.
        error: Why it could not be fitted, or None.
        last: Whether the next prepared, if any, has yet to be trained.
    """

    number: int
    seconds: float = 0.0
    error: HdpmfError | None = None
    last: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class _Prepared:
    number: int
    fit: Fit
    plan: Plan
    ratings: EnteredRatings
    weights: PrivacyWeights
    seed: int


def fit_together(fits: Sequence[Fit]) -> Iterator[FitResult]:
    """Fit models on the GPU, as many at once as go together; yields each one when it is done."""
    groups: dict[Any, list[_Prepared]] = {}
    entered: dict[Any, EnteredRatings] = {}
    for number, fit in enumerate(fits):
        try:
            prepared = _prepare(number, fit, entered)
        except HdpmfError as error:
            yield FitResult(number, error=error)
            continue
        model, mechanism = fit.model, fit.model._mechanism()
        private = prepared.ratings.budget is not None
        recipe = recipe_of(prepared.plan, mechanism, private, model._h_per_item(), model.solver)
        # Runs of ``sequential`` share their orders of ratings, and so their seed.
        shared_seed = prepared.seed if recipe.solver == "sequential" else None
        key = (recipe, shared_seed, prepared.plan.epochs, id(fit.train.users), id(fit.train.items))
        groups.setdefault(key, []).append(prepared)
    for (recipe, *_), group in groups.items():
        for part in _fitting(group):
            yield from _train(recipe, part)


def _prepare(number: int, fit: Fit, entered: dict[Any, EnteredRatings]) -> _Prepared:
    model = fit.model
    model._check_params(None)
    plan, mechanism, _ = model.setup(fit.train.n_items, fit.train.scale)
    seed = seed_of(model.rng)
    if model.cpu_only is not None:
        raise ConfigError(model.cpu_only)
    weights = PrivacyWeights.uniform(fit.train) if fit.weights is None else fit.weights
    # What enters does not depend on learning rate or regularisation, so a grid does it once.
    key = (id(fit.train), id(fit.weights), mechanism, plan.epsilon, seed)
    if key not in entered:
        entered[key] = enter(fit.train, weights, mechanism, plan, seed)
    return _Prepared(number, fit, plan, entered[key], weights, seed)


def _fitting(group: list[_Prepared]) -> Iterator[list[_Prepared]]:
    """Split a group so that its views fit a word of bits and its factors fit the memory."""
    from hdpmf.private.kernels.gpu.layout import MAX_VIEWS, padded

    first = group[0]
    rows = first.fit.train.n_users + first.fit.train.n_items
    at_a_time = max(1, _FACTORS_AT_A_TIME // (rows * padded(first.plan.n_factors)))
    part: list[_Prepared] = []
    for prepared in sorted(group, key=lambda prepared: id(prepared.ratings)):
        views = {id(other.ratings) for other in (*part, prepared)}
        if part and (len(views) > MAX_VIEWS - 1 or len(part) >= at_a_time):
            yield part
            part = []
        part.append(prepared)
    yield part


def _train(recipe: Any, part: list[_Prepared]) -> Iterator[FitResult]:
    import torch

    from hdpmf.private.kernels.gpu.training import GpuTraining

    begin = time.perf_counter()
    views = list({id(prepared.ratings): prepared for prepared in part}.values())
    view_of = {id(prepared.ratings): view for view, prepared in enumerate(views)}
    table = _union(views, gpu())
    runs = [
        gpu_run_of(
            prepared.plan, prepared.ratings.budget, prepared.seed, view_of[id(prepared.ratings)]
        )
        for prepared in part
    ]
    training = GpuTraining(table, recipe, runs, *_first_factors(part))
    training.finish()
    finite = torch.isfinite(training.V.sum(dim=(0, 2))).tolist()
    seconds = (time.perf_counter() - begin) / len(part)
    states: dict[int, Devices] = {}
    for run, prepared in enumerate(part):
        error = None if finite[run] else diverged(prepared.plan.learning_rate)
        if error is None:
            _set_state(prepared, training, run, runs[run].view, states)
        yield FitResult(prepared.number, seconds, error, last=run == len(part) - 1)


def _first_factors(part: list[_Prepared]) -> tuple[np.ndarray, np.ndarray]:
    """Return first user vectors and item factors, of shape (rows, runs, K).

    Models of the same seed start from the same ones.
    """
    by_seed = {
        prepared.seed: first_factors(prepared.fit.train, prepared.plan, prepared.seed)
        for prepared in part
    }
    users, items = (
        np.stack([by_seed[prepared.seed][side] for prepared in part], axis=1) for side in (0, 1)
    )
    return users, items


def _set_state(
    prepared: _Prepared, training: GpuTraining, run: int, view: int, states: dict[int, Devices]
) -> None:
    train, model = prepared.fit.train, prepared.fit.model
    vectors = training.vectors(run)
    if id(train) not in states:
        states[id(train)] = Devices.after_training(train, vectors, np.empty(0), np.empty(0))
    model.devices_ = replace(
        states[id(train)],
        vectors=vectors,
        beta=prepared.weights.for_users(train.users),
        gamma=prepared.weights.for_items(train.items),
    )
    raters = training.raters[view].cpu().numpy()
    model.catalogue_ = Catalogue(
        train.items, training.factors(run), raters, train.scale, train.item_table
    )
    model.history_ = ()


def _union(views: list[_Prepared], device: Any) -> Table:
    """One table of all ratings that take part in any view, with each view's targets."""
    import torch

    from hdpmf.private.kernels.gpu.layout import Table

    n_users, n_items = views[0].fit.train.n_users, views[0].fit.train.n_items
    keys = []
    for prepared in views:
        train, kept = prepared.fit.train, prepared.ratings.kept
        users, items = (
            codes if kept is None else codes[kept] for codes in (train.user_codes, train.item_codes)
        )
        keys.append(torch.from_numpy(users.astype(np.int64) * n_items + items).to(device))
    union = torch.unique(torch.cat(keys))
    shape = (len(views), len(union))
    target = torch.zeros(shape, device=device)
    weighted = any(prepared.ratings.coefficient is not None for prepared in views)
    coefficient = torch.ones(shape, device=device) if weighted else None
    members = torch.zeros(len(union), dtype=torch.int32, device=device)
    for view, (prepared, key) in enumerate(zip(views, keys, strict=True)):
        positions = torch.searchsorted(union, key)
        target[view, positions] = torch.from_numpy(prepared.ratings.target.astype(np.float32)).to(
            device
        )
        if coefficient is not None and prepared.ratings.coefficient is not None:
            coefficient[view, positions] = torch.from_numpy(
                prepared.ratings.coefficient.astype(np.float32)
            ).to(device)
        members[positions] |= 1 << view
    return Table(
        users=(union // n_items).int(),
        items=(union % n_items).int(),
        target=target,
        n_users=n_users,
        n_items=n_items,
        coefficient=coefficient,
        members=members if len(views) > 1 else None,
        n_views=len(views),
    )
