"""Expand an experiment into its runs.

There are two stages: the cross-validation runs, which can be listed at once, and the evaluation
runs, which need the hyper-parameters that are chosen from the results of the first stage.
"""

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
from hdpmf.common.privacy import PrivacySpec
from hdpmf.errors import ConfigError, DatasetError, RatingsError
from hdpmf.lab.experiments.runs import Data, Part, Privacy, Run, Scalar, make_run
from hdpmf.lab.experiments.spec import (
    PRIVACY_NAMES,
    DataOptions,
    Experiment,
    Split,
    has_ready_made,
)
from hdpmf.lab.experiments.store import Result


class Configuration(NamedTuple):
    """A data set, method and K, for which hyper-parameters are chosen.

    Attributes:
        seed: The seed whose training part they are chosen on; None if all seeds have one choice.
    """

    dataset: str
    method: str
    factors: int
    seed: int | None = None


class GridCell(NamedTuple):
    """One combination of the grid and the runs that measure it, one per fold."""

    values: dict[str, float]
    runs: tuple[Run, ...]


Choices = Mapping[Configuration, Mapping[str, float]]
"""The chosen hyper-parameters."""


def resolve(experiment: Experiment, base: Path | None = None) -> tuple[Experiment, dict[str, Path]]:
    """Resolve what depends on this machine: the available Yelp, and checksums of files.

    Files are relative to the folder ``base``. Results must not depend on, or reveal, where a file
    is: only its content counts.

    Returns:
        The experiment with data sets that are here, and the place of each file of the user's, by
        checksum.

    Raises:
        DatasetError: A data set is not on this machine.
    """
    files: dict[str, Path] = {}

    def digest_of(file: str) -> str:
        path = (base or Path()) / file
        digest = file_digest(path)
        files[digest] = path
        return f"sha256:{digest}"

    names: list[str] = []
    data = dict(experiment.data)
    for name in experiment.datasets:
        own = data.get(name, DataOptions())
        if own.weight_files:
            weights = tuple(map(digest_of, own.weight_files))
            data[name] = own = msgspec.structs.replace(own, weights=weights)
        if own.file is not None:
            data[name] = msgspec.structs.replace(own, file=digest_of(own.file))
        here = name if own.file is not None or own.world else available(name)
        if here is None:
            info = dataset_info(name)
            raise DatasetError(f"{info.title} is not on this machine; {info.how_to_get()}")
        names.append(here)
    datasets = tuple(dict.fromkeys(names))
    return msgspec.structs.replace(experiment, datasets=datasets, data=data), files


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
    wanted = experiment.methods
    if wanted == "all":
        # Some methods make only lists; the trivial baselines among the others make none.
        lists = experiment.measure == "lists"
        wanted = tuple(
            name
            for name, method in METHODS.items()
            if method.lists_only <= lists <= method.has_lists
        )
    try:
        for name in (*wanted, *experiment.without, *experiment.paper_methods):
            METHODS.named(name)
    except ConfigError as error:
        raise ConfigError(
            f"{experiment.name}: {error}; the file of a method of your own is named by --plugin"
        ) from None
    methods = tuple(dict.fromkeys(name for name in wanted if name not in experiment.without))
    if not methods:
        raise ConfigError(f"{experiment.name}: no methods are left; name some under methods")
    return methods


def grid_of(experiment: Experiment, method: str) -> list[dict[str, float]]:
    """Return the combinations that a method is tuned over; a single empty one if there are none."""
    grids = experiment.tuning.grids
    options = METHODS[method].options.keys() - set(experiment.params)
    grid = grids.get(method, grids.get("default", {}) if "learning_rate" in options else {})
    tried = {
        name: [_as_option(name, value) for value in values]
        for name, values in grid.items()
        if name in options
    }
    return [dict(zip(tried, cell, strict=True)) for cell in itertools.product(*tried.values())]


def _as_option(name: str, value: float) -> float:
    """Return a value as the option takes it: 1 and 1.0 would be two runs, and 40.0 no count."""
    return float(value) if name in ("epsilon", "learning_rate", "reg") else value


def configurations(experiment: Experiment) -> Iterator[Configuration]:
    """Yield where hyper-parameters must be chosen."""
    like = experiment.tuning.like
    tuned = dict.fromkeys(like.get(method, method) for method in method_names(experiment))
    for dataset, method, factors in itertools.product(
        experiment.datasets, tuned, experiment.factors
    ):
        for seed in dict.fromkeys(_choice_seeds(experiment, dataset)):
            yield Configuration(dataset, method, factors, seed)


def _choice_seeds(experiment: Experiment, dataset: str) -> Sequence[int | None]:
    """Return, for each seed, the one whose training part its choice is made on (None: all's)."""
    kind = _part(experiment, dataset, experiment.split, 0).kind
    alike = experiment.tuning.split is not None or kind in ("ready-made", *BY_TIME)
    return [None] * len(experiment.seeds) if alike else experiment.seeds


def chosen_by_seed(
    experiment: Experiment, tuned: Configuration, chosen: Choices
) -> tuple[Mapping[str, float], ...]:
    """Return the values chosen at a place, one for each seed; empty while any is open."""
    seeds = _choice_seeds(experiment, tuned.dataset)
    found = [chosen.get(tuned._replace(seed=seed)) for seed in seeds]
    return () if None in found else tuple(values for values in found if values is not None)


def cell_configurations(
    experiment: Experiment,
) -> Iterator[tuple[Configuration, Configuration, float | None]]:
    """Yield the places of cells: each with the one whose hyper-parameters it takes, and x."""
    methods = method_names(experiment)
    for dataset, method, factors, x in itertools.product(
        experiment.datasets, methods, experiment.factors, experiment.xs
    ):
        tuned = experiment.tuning.like.get(method, method)
        yield Configuration(dataset, method, factors), Configuration(dataset, tuned, factors), x


def tuning_cells(experiment: Experiment, configuration: Configuration) -> list[GridCell]:
    """Return the grid at one place. A grid of one cell has no runs: there is nothing to choose."""
    grid = grid_of(experiment, configuration.method)
    if len(grid) == 1:
        return [GridCell(grid[0], ())]
    tuning = experiment.tuning
    data = data_of(experiment, configuration.dataset)
    own = experiment.seeds[0] if configuration.seed is None else configuration.seed
    seed = own if tuning.split is None else tuning.seed
    part = _part(experiment, configuration.dataset, tuning.split or experiment.split, seed)
    privacy = wishes_of(experiment, configuration.dataset, dict(experiment.privacy), seed)
    shared = _shared_params(experiment, configuration)

    def run(values: dict[str, float], fold: int) -> Run:
        folded = msgspec.structs.replace(part, folds=tuning.folds, fold=fold)
        params = {**shared, **values}
        return make_run(data, folded, configuration.method, params, privacy, seed)

    return [
        GridCell(values, tuple(run(values, fold) for fold in range(tuning.folds)))
        for values in grid
    ]


def evaluation_runs(
    experiment: Experiment,
    configuration: Configuration,
    chosen: Sequence[Mapping[str, float]],
    x: float | None,
) -> tuple[Run, ...]:
    """Return the runs of one cell of a table or one point of a curve, one per seed.

    ``chosen`` are the hyper-parameters of each seed; there are no runs while they are open.
    """
    data = data_of(experiment, configuration.dataset)
    shared = _shared_params(experiment, configuration)
    varied: dict[str, Scalar] = {}
    if x is not None and experiment.varied in METHODS[configuration.method].options:
        varied[experiment.varied] = _as_option(experiment.varied, x)
    fraction = float(x) if x is not None and experiment.varied == "fraction" else 1.0
    wishes = _wishes(experiment, x)
    return tuple(
        make_run(
            data,
            msgspec.structs.replace(
                _part(experiment, configuration.dataset, experiment.split, seed), fraction=fraction
            ),
            configuration.method,
            {**shared, **values, **varied},
            wishes_of(experiment, configuration.dataset, wishes, seed),
            seed,
        )
        for seed, values in zip(experiment.seeds, chosen, strict=bool(chosen))
    )


def tuning_runs(experiments: Iterable[Experiment]) -> list[Run]:
    """Return the cross-validation runs of some experiments, each once."""
    runs = {
        run.id: run
        for experiment in experiments
        for configuration in configurations(experiment)
        for cell in tuning_cells(experiment, configuration)
        for run in cell.runs
    }
    return list(runs.values())


def final_runs(experiments: Iterable[Experiment], results: Mapping[str, Result]) -> list[Run]:
    """Return the evaluation runs whose hyper-parameters are known, each once."""
    return _evaluated((experiment, choices(experiment, results)) for experiment in experiments)


def expected_runs(experiments: Iterable[Experiment]) -> list[Run]:
    """Return all runs, for estimates with the first cell of each grid instead of the chosen."""
    experiments = list(experiments)
    first = [
        {place: tuning_cells(one, place)[0].values for place in configurations(one)}
        for one in experiments
    ]
    runs = [*tuning_runs(experiments), *_evaluated(zip(experiments, first, strict=True))]
    return list({run.id: run for run in runs}.values())


def _evaluated(chosen: Iterable[tuple[Experiment, Choices]]) -> list[Run]:
    runs = {
        run.id: run
        for experiment, values in chosen
        for configuration, tuned, x in cell_configurations(experiment)
        for run in evaluation_runs(
            experiment, configuration, chosen_by_seed(experiment, tuned, values), x
        )
    }
    return list(runs.values())


def privacy_spec(experiment: Experiment, x: float | None = None) -> PrivacySpec:
    """Return the privacy specification at one point of the axis."""
    return Privacy(_wishes(experiment, x)).spec


def _wishes(experiment: Experiment, x: float | None) -> dict[str, float]:
    """Return the differences from Table II at one point of the axis."""
    if x is None or experiment.varied not in PRIVACY_NAMES:
        return dict(experiment.privacy)
    return {**experiment.privacy, experiment.varied: float(x)}


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
    own = experiment.data.get(name, DataOptions())
    return Data(
        name,
        None if own.file is None else own.file.removeprefix("sha256:"),
        own.scale,
        dict(own.columns),
        dict(own.world),
        own.duplicates,
        own.implicit,
        own.missing,
    )


def wishes_of(experiment: Experiment, name: str, changes: dict[str, float], seed: int) -> Privacy:
    """Return the privacy wishes on a data set; none are invented for a user's own file."""
    own = experiment.data.get(name, DataOptions())
    if own.weight_files:
        return Privacy({}, 0, own.weight_files, own.missing_weight)
    specified = changes or experiment.varied in PRIVACY_NAMES
    invented = own.file is not None and own.weights is None and not specified
    if invented or own.weights == "uniform":
        return Privacy({}, 0, ("uniform",))
    return Privacy(changes, seed)


def wishes_in_words(experiment: Experiment, name: str) -> str:
    """Describe the privacy weights on a data set."""
    wishes = wishes_of(experiment, name, experiment.privacy, 0)
    if wishes.weights == ("uniform",):
        return "everybody at 1"
    if wishes.weights != ("paper",):
        return "from files of people's own wishes"
    other = wishes.changes or experiment.varied in PRIVACY_NAMES
    shares = ", with other shares or weights" if other else ""
    return f"the paper's random groups{shares}, nobody's own wishes"


def split_in_words(experiment: Experiment, name: str) -> str:
    """Describe what a data set is tested and tuned on."""
    tuning = experiment.tuning
    kind = _part(experiment, name, experiment.split, 0).kind
    tested = _part_in_words(_part(experiment, name, experiment.split, 0))
    fixed = kind in ("ready-made", *BY_TIME)
    drawn = "the same for all seeds" if fixed else "drawn for each seed"
    tuned = "that training part" if fixed else "each seed's training part"
    held = "" if tuning.split is None else _part_in_words(_part(experiment, name, tuning.split, 0))
    if held and not (fixed and held == tested):
        tuned = (
            f"one training part for all seeds, beside {held} (seed {tuning.seed}): the paper's "
            "procedure, which sees test ratings of other seeds"
        )
    return f"tested on {tested}, {drawn}; {tuning.folds} folds of {tuned}"


def _part_in_words(part: Part) -> str:
    return {
        "hold-out": f"{part.per_user} random ratings of each user",
        "leave-one-out": "one random rating of each user",
        "last": f"the last {part.per_user} ratings of each user",
        "ratio": f"a random {part.share:g} of all ratings",
        "time": f"the last {part.share:g} of all ratings",
        "user-time": f"the last {part.share:g} of each user's ratings",
        "ready-made": "the test set that the data comes with",
    }[part.kind]


def _part(experiment: Experiment, name: str, split: Split, seed: int) -> Part:
    if split.ready_made and split.kind == "hold-out" and has_ready_made(experiment, name):
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
    status: str
    run_ids: tuple[str, ...]
    ndcg: float = math.nan


def grid_points(
    experiment: Experiment, configuration: Configuration, results: Mapping[str, Result]
) -> list[GridPoint]:
    """Return the grid at one place with its cross-validated numbers."""
    rows = []
    for values, runs in tuning_cells(experiment, configuration):
        ids = tuple(run.id for run in runs)
        folds = [results[run] for run in ids if run in results]
        order = ("diverged", "failed", "missing", "done")
        status = worst_status(folds, len(ids), order) if runs else "single"
        if status in ("missing", "single"):
            rows.append(GridPoint(values, math.nan, status, ids))
            continue
        mse, ndcg = (
            math.fsum(fold.metric(name) for fold in folds) / len(folds)
            for name in ("mse", "ndcg_at_10")
        )
        rows.append(GridPoint(values, mse, status, ids, ndcg))
    return rows


def worst_status(results: Sequence[Result], wanted: int, order: Sequence[str]) -> str:
    """Return the first status in ``order`` of any result; ``missing`` if there are too few."""
    states: set[str] = {result.status for result in results}
    if len(results) < wanted:
        states.add("missing")
    return next(status for status in order if status in states)


def best_of_grid(grid: list[GridPoint], by: str = "mse") -> GridPoint | None:
    """Return the combination with the lowest MSE, or the highest NDCG (``ndcg_at_10``).

    None while any is missing or where none is usable. A combination with a diverged or failed fold
    is never chosen.
    """
    if grid[0].status == "single":
        return grid[0]
    if any(row.status == "missing" for row in grid):
        return None

    def cost(row: GridPoint) -> float:
        return -row.ndcg if by == "ndcg_at_10" else row.mse

    usable = (row for row in grid if row.status == "done" and math.isfinite(cost(row)))
    return min(usable, key=cost, default=None)


def choices(experiment: Experiment, results: Mapping[str, Result]) -> Choices:
    """Return the chosen hyper-parameters, where they are known."""
    by = experiment.tuning.by
    winners = {
        place: best_of_grid(grid_points(experiment, place, results), by)
        for place in configurations(experiment)
    }
    return {place: winner.values for place, winner in winners.items() if winner is not None}
