"""Expand an experiment into its runs.

There are two stages: the cross-validation runs, which can be listed at once, and the evaluation
runs, which need the hyper-parameters that are chosen from the results of the first stage.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from hdpmf.common.data import dataset_info, find_dataset
from hdpmf.common.data.splits import BY_TIME
from hdpmf.common.methods import METHODS
from hdpmf.common.methods.registry import load_module
from hdpmf.common.privacy import PrivacySpec
from hdpmf.errors import ConfigError, DatasetError, RatingsError
from hdpmf.lab.experiments.runs import Data, Part, Privacy, Run, Scalar, make_run
from hdpmf.lab.experiments.spec import PRIVACY_NAMES, DataOptions, Experiment, Split
from hdpmf.lab.experiments.store import Result


class Configuration(NamedTuple):
    """A data set, method and K, for which hyper-parameters are chosen."""

    dataset: str
    method: str
    factors: int


class GridCell(NamedTuple):
    """One combination of the grid and the runs that measure it, one per fold."""

    values: dict[str, float]
    runs: tuple[Run, ...]


Choices = Mapping[Configuration, Mapping[str, float]]
"""The chosen hyper-parameters."""


def resolve(experiment: Experiment, base: Path | None = None) -> tuple[Experiment, dict[str, Path]]:
    """Resolve what depends on this machine: the available Yelp, and checksums of files.

    Files are relative to the folder ``base``.

    Returns:
        The experiment with data sets that are here, and the place of each file of the user's, by
        checksum.

    Raises:
        DatasetError: A data set is not on this machine.
    """
    files: dict[str, Path] = {}
    names: list[str] = []
    data = dict(experiment.data)
    for name in experiment.datasets:
        options = data.get(name, DataOptions())
        if options.file is not None:
            path = (base or Path()) / options.file
            digest = file_digest(path)
            files[digest] = path
            # Results must not depend on, or reveal, where a file is: only its content counts.
            data[name] = options = msgspec.structs.replace(options, file=f"sha256:{digest}")
        if options.weight_files:
            paths = [(base or Path()) / file for file in options.weight_files]
            digests = [file_digest(path) for path in paths]
            files |= dict(zip(digests, paths, strict=True))
            data[name] = msgspec.structs.replace(
                options, weights=tuple(f"sha256:{digest}" for digest in digests)
            )
        if options.file is not None:
            names.append(name)
            continue
        here = available(name)
        if here is None:
            info = dataset_info(name)
            raise DatasetError(f"{info.title} is not on this machine; {info.how_to_get()}")
        names.append(here)
    return msgspec.structs.replace(
        experiment, datasets=tuple(dict.fromkeys(names)), data=data
    ), files


def available(name: str) -> str | None:
    """Return the data set to use: ``name``, or for ``yelp`` its sample; None if absent."""
    for candidate in (name, "yelp-sample") if name == "yelp" else (name,):
        if dataset_info(candidate).read is None or find_dataset(candidate) is not None:
            return candidate
    return None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise RatingsError(f"cannot read {path}: {error.strerror}") from error


def method_names(experiment: Experiment) -> tuple[str, ...]:
    """Return the methods of an experiment, for ``all`` in the order of the registry."""
    for module in experiment.imports:
        load_module(module)
    lists = experiment.measure == "lists"
    # Some methods make only lists; the trivial baselines among the others make none.
    able = (
        name
        for name, method in METHODS.items()
        if method.lists_only <= lists and (not lists or method.has_lists)
    )
    wanted = tuple(able) if experiment.methods == "all" else experiment.methods
    named = (*wanted, *experiment.without, *experiment.paper_methods)
    for name in named:
        try:
            METHODS.named(name)
        except ConfigError as error:
            raise ConfigError(f"{experiment.name}: {error}") from None
    methods = tuple(dict.fromkeys(name for name in wanted if name not in experiment.without))
    if not methods and experiment.has_runs:
        raise ConfigError(f"{experiment.name}: no methods are left; name some under methods")
    return methods


def grid_of(experiment: Experiment, method: str) -> list[dict[str, float]]:
    """Return the combinations that a method is tuned over; a single empty one if there are none."""
    grids = experiment.tuning.grids
    options = METHODS[method].options.keys() - set(experiment.params)
    grid = grids.get(method, grids.get("default", {}) if "learning_rate" in options else {})
    open_params = {
        name: tuple(_as_option(name, value) for value in values)
        for name, values in grid.items()
        if name in options
    }
    return [
        dict(zip(open_params, cell, strict=True))
        for cell in itertools.product(*open_params.values())
    ]


def _as_option(name: str, value: float) -> float:
    """Return a value as the option takes it: 1 and 1.0 would be two runs, and 40.0 no count."""
    return float(value) if name in ("epsilon", "learning_rate", "reg") else value


def tuned_as(experiment: Experiment, method: str) -> str:
    """Return the method whose hyper-parameters this one takes over."""
    return experiment.tuning.like.get(method, method)


def configurations(experiment: Experiment) -> Iterator[Configuration]:
    """Yield where hyper-parameters must be chosen."""
    if not experiment.has_runs:
        return
    tuned = dict.fromkeys(tuned_as(experiment, method) for method in method_names(experiment))
    for dataset, method, factors in itertools.product(
        experiment.datasets, tuned, experiment.factors
    ):
        yield Configuration(dataset, method, factors)


def tuning_cells(experiment: Experiment, configuration: Configuration) -> list[GridCell]:
    """Return the grid at one place. A grid of one cell has no runs: there is nothing to choose."""
    grid = grid_of(experiment, configuration.method)
    if len(grid) == 1:
        return [GridCell(grid[0], ())]
    return [GridCell(values, fold_runs(experiment, configuration, values)) for values in grid]


def fold_runs(
    experiment: Experiment, configuration: Configuration, values: Mapping[str, float]
) -> tuple[Run, ...]:
    """Return the cross-validation runs of one combination of hyper-parameters, one per fold."""
    tuning = experiment.tuning
    data = data_of(experiment, configuration.dataset)
    part = _part(data, tuning.split, tuning.seed)
    privacy = wishes_of(experiment, configuration.dataset, dict(experiment.privacy), tuning.seed)
    return tuple(
        make_run(
            data,
            msgspec.structs.replace(part, folds=tuning.folds, fold=fold),
            configuration.method,
            {**_shared_params(experiment, configuration), **values},
            privacy,
            tuning.seed,
        )
        for fold in range(tuning.folds)
    )


def evaluation_runs(
    experiment: Experiment, choices: Choices, configuration: Configuration, x: float | None
) -> tuple[Run, ...]:
    """Return the runs of one cell of a table or one point of a curve, one per seed."""
    data = data_of(experiment, configuration.dataset)
    chosen = choices[configuration._replace(method=tuned_as(experiment, configuration.method))]
    params: dict[str, Scalar] = {**_shared_params(experiment, configuration), **chosen}
    varied = "" if experiment.vary is None or x is None else experiment.vary.parameter
    fraction = float(x) if varied == "fraction" and x is not None else 1.0
    if varied in METHODS[configuration.method].options:
        params[varied] = x if x is None else _as_option(varied, x)
    return tuple(
        make_run(
            data,
            msgspec.structs.replace(_part(data, experiment.split, seed), fraction=fraction),
            configuration.method,
            params,
            wishes_of(experiment, configuration.dataset, _wishes(experiment, x), seed),
            seed,
        )
        for seed in experiment.seeds
    )


def privacy_spec(experiment: Experiment, x: float | None = None) -> PrivacySpec:
    """Return the privacy specification at one point of the axis."""
    groups = experiment.user_groups, experiment.item_groups
    return Privacy(_wishes(experiment, x), user_groups=groups[0], item_groups=groups[1]).spec


def _wishes(experiment: Experiment, x: float | None) -> dict[str, float]:
    """Return the differences from Table II at one point of the axis."""
    vary = experiment.vary
    varied = (
        {}
        if vary is None or x is None or vary.parameter not in PRIVACY_NAMES
        else {vary.parameter: float(x)}
    )
    return {**experiment.privacy, **varied}


def _shared_params(experiment: Experiment, configuration: Configuration) -> dict[str, Scalar]:
    """Return the experiment's parameters, as far as this method has such options."""
    shared: dict[str, Scalar] = {
        "n_factors": configuration.factors,
        "epochs": experiment.epochs,
        "epsilon": float(experiment.epsilon),
        "solver": experiment.solver,
    }
    method = METHODS[configuration.method]
    # A method with a default of its own (as a number of epochs) keeps it, unless params or vary say
    # otherwise.
    usual = {name: value for name, value in shared.items() if name not in method.defaults}
    return method.own(**{**usual, **experiment.params})


def data_of(experiment: Experiment, name: str) -> Data:
    """Return a data set as runs describe it."""
    options = experiment.data.get(name, DataOptions())
    digest = None if options.file is None else options.file.removeprefix("sha256:")
    return Data(
        name,
        digest,
        options.scale,
        dict(options.columns),
        dict(options.world),
        options.duplicates,
        options.implicit,
        options.missing,
    )


def wishes_of(experiment: Experiment, name: str, changes: dict[str, float], seed: int) -> Privacy:
    """Return the privacy wishes on a data set; none are invented for a user's own file."""
    options = experiment.data.get(name, DataOptions())
    if options.weight_files:
        return Privacy({}, 0, options.weight_files, options.missing_weight)
    groups = experiment.user_groups, experiment.item_groups
    specified = (
        changes
        or any(groups)
        or (experiment.vary is not None and experiment.vary.parameter in PRIVACY_NAMES)
    )
    own = options.file is not None and options.weights is None and not specified
    if own or options.weights == "uniform":
        return Privacy({}, 0, ("uniform",))
    return Privacy(changes, seed, user_groups=groups[0], item_groups=groups[1])


def wishes_in_words(experiment: Experiment, name: str) -> str:
    """Describe the privacy weights on a data set."""
    wishes = wishes_of(experiment, name, experiment.privacy, 0)
    varied = "" if experiment.vary is None else experiment.vary.parameter
    if wishes.weights == ("uniform",):
        return "everybody at 1"
    if wishes.user_groups or wishes.item_groups:
        kinds = ("users", wishes.user_groups), ("items", wishes.item_groups)
        parts = [
            f"{kind}: " + ", ".join(f"{group.name} {100 * group.ratio:g} %" for group in groups)
            for kind, groups in kinds
            if groups
        ]
        return f"random groups of the experiment's own ({'; '.join(parts)})"
    if wishes.weights == ("paper",):
        other = wishes.changes or varied in PRIVACY_NAMES
        shares = ", with other shares or weights" if other else ""
        return f"the paper's random groups{shares}, nobody's own wishes"
    return "from files of people's own wishes"


def _part(data: Data, split: Split, seed: int) -> Part:
    if (
        split.ready_made
        and split.kind == "hold-out"
        and data.sha256 is None
        and dataset_info(data.name).split
    ):
        return Part("ready-made", seed=seed)
    per_user = split.per_user if split.kind in ("hold-out", "last") else 10
    share = split.fraction if split.kind in ("ratio", "time", "user-time") else 0.0
    return Part(split.kind, per_user, 0 if split.kind in BY_TIME else seed, share=share)


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One combination of a grid with its cross-validated numbers.

    Attributes:
        mse: Mean over the folds; infinite if a fold diverged or failed, NaN if unknown.
        ndcg: NDCG@10 if the choice is by it, else NaN.
        status: ``done``, ``diverged``, ``failed``, ``missing`` (of any fold), or ``single``
            (nothing to choose).
        run_ids: One run per fold.
    """

    values: dict[str, float]
    mse: float
    mae: float
    status: str
    run_ids: tuple[str, ...]
    ndcg: float = math.nan


def grid_points(
    experiment: Experiment, configuration: Configuration, results: Mapping[str, Result]
) -> list[GridPoint]:
    """Return the grid at one place with its cross-validated numbers."""
    return points_of(tuning_cells(experiment, configuration), results)


def points_of(cells: Iterable[GridCell], results: Mapping[str, Result]) -> list[GridPoint]:
    """Return combinations with their cross-validated numbers."""
    rows = []
    for values, runs in cells:
        ids = tuple(run.id for run in runs)
        if not runs:
            rows.append(GridPoint(values, math.nan, math.nan, "single", ids))
            continue
        folds = [results[run] for run in ids if run in results]
        status = worst_status(folds, len(ids), ("diverged", "failed", "missing", "done"))
        if status == "missing":
            rows.append(GridPoint(values, math.nan, math.nan, status, ids))
            continue
        mse, mae, ndcg = (
            math.fsum(fold.metric(name) for fold in folds) / len(folds)
            for name in ("mse", "mae", "ndcg_at_10")
        )
        rows.append(GridPoint(values, mse, mae, status, ids, ndcg))
    return rows


def worst_status(results: Sequence[Result], wanted: int, order: Sequence[str]) -> str:
    """Return the first status in ``order`` of any result; ``missing`` if there are too few."""
    states = {result.status for result in results} | (
        {"missing"} if len(results) < wanted else set()
    )
    return next(status for status in order if status in states)


def best_of_grid(grid: list[GridPoint], by: str = "mse") -> GridPoint | None:
    """Return the combination with the lowest MSE, or the highest NDCG (``ndcg_at_10``).

    None while any is missing or where none is usable. A combination with a diverged or failed fold
    is never chosen.
    """
    if len(grid) == 1 and grid[0].status == "single":
        return grid[0]
    if any(row.status == "missing" for row in grid):
        return None

    def cost(row: GridPoint) -> float:
        return -row.ndcg if by == "ndcg_at_10" else row.mse

    return min(
        (row for row in grid if row.status == "done" and math.isfinite(cost(row))),
        key=cost,
        default=None,
    )


def choices(experiment: Experiment, results: Mapping[str, Result]) -> Choices:
    """Return the chosen hyper-parameters, where they are known."""
    chosen = {}
    for configuration in configurations(experiment):
        winner = best_of_grid(grid_points(experiment, configuration, results), experiment.tuning.by)
        if winner is not None:
            chosen[configuration] = winner.values
    return chosen
