"""The paper's way of choosing hyper-parameters, for one method on one data set."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hdpmf.common.data import dataset_names
from hdpmf.common.data.checks import Duplicates
from hdpmf.common.methods import method_named
from hdpmf.errors import ConfigError, DivergedError, HdpmfError, notify
from hdpmf.lab.experiments.expansion import (
    Configuration,
    GridCell,
    GridPoint,
    best_of_grid,
    fold_runs,
    points_of,
    resolve,
)
from hdpmf.lab.experiments.runner import Progress, RunCounts, run_experiments
from hdpmf.lab.experiments.runs import Run
from hdpmf.lab.experiments.spec import (
    BATCH_GRID,
    USUAL_GRID,
    DataOptions,
    Experiment,
    Grid,
    Split,
    Tuning,
    check,
)
from hdpmf.lab.experiments.store import Store
from hdpmf.models import make_model
from hdpmf.models.search import PRIVATE_CHOICE, Proposals, SearchKind, proposals


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of tuning.

    Attributes:
        grid: Every combination that was tried, with its mean errors over the folds.
        best: The combination with the lowest MSE, or the highest NDCG@10.
        done: The runs that were needed.
    """

    method: str
    dataset: str
    factors: int
    folds: int
    grid: tuple[GridPoint, ...]
    best: GridPoint
    done: RunCounts


def tune(
    method: str,
    data: str | os.PathLike[str],
    *,
    n_factors: int = 10,
    learning_rates: Sequence[float] | None = None,
    regs: Sequence[float] | None = None,
    search: SearchKind = "grid",
    trials: int | None = None,
    by: str = "mse",
    folds: int = 5,
    epochs: int | None = None,
    epsilon: float | None = None,
    solver: str | None = None,
    privacy: Mapping[str, float] | None = None,
    params: Mapping[str, bool | int | float | str | None] | None = None,
    scale: tuple[float, float] | None = None,
    columns: Mapping[str, str] | None = None,
    duplicates: Duplicates = "error",
    weights: str | Sequence[str] | None = None,
    missing_weight: float | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    backend: str = "loky",
    on: str = "cpu",
    command: str = "",
    progress: Progress | None = None,
) -> TuningResult:
    """Cross-validate a method over a grid, or let a Bayesian search choose what to try.

    Args:
        method: Name of the method.
        data: A registered data set, of which the training part of its split is used, or a file of
            training ratings.
        n_factors: K.
        learning_rates: Values to try; larger ones by default with ``batch`` than with
            ``sequential``.
        regs: Values to try.
        search: ``grid`` for every combination, or ``bayes`` for Optuna's choice of ``trials``
            within the ranges that these values span (``pip install 'hdpmf[optuna]'``).
        trials: Combinations that ``bayes`` tries; 20 by default.
        by: ``mse``, for predicted ratings, or ``ndcg_at_10``, for lists.
        folds: Folds.
        epochs: Passes over the ratings; 100 unless the method has its own default.
        epsilon: The largest budget; 1 by default.
        solver: ``batch``, which is the default, or ``sequential``.
        privacy: Differences from the paper's Table II, by its names.
        params: Further parameters of the model.
        scale: The rating scale of a file.
        columns: Names of a file's columns.
        duplicates: The rule for several ratings of one item by one user in a file.
        weights: ``uniform``, ``paper``, or files of privacy weights; by default everybody is at 1
            in a file, and in the paper's groups in a registered data set.
        missing_weight: The weight of everybody whom such a file does not name.
        seed: Seed of the split, the folds, the privacy weights and the training.
        out: Folder for the results, so that a stopped call can be resumed; None keeps nothing.
        n_jobs: Runs at a time; one per core by default.
        backend: See `run_experiments`.
        on: See `run_experiments`.
        command: The command line that does the same again.
        progress: A listener for progress.

    Raises:
        ConfigError: The method has nothing to tune, or an argument makes no sense.
        DivergedError: Every combination diverged.
    """
    known = method_named(method)
    if "learning_rate" not in known.options:
        raise ConfigError(f"{known.label} has no learning rate or regularisation: nothing to tune")
    usual = known.tuning or USUAL_GRID if solver == "sequential" else BATCH_GRID
    grid: Grid = {
        "learning_rate": tuple(map(float, learning_rates or usual["learning_rate"])),
        "reg": tuple(map(float, regs or usual["reg"])),
    }
    wanted = {"epochs": epochs, "epsilon": epsilon, "solver": solver, **(params or {})}
    # What the method fixes may be said again; saying otherwise is an error, as is an option that it
    # does not have.
    own = {
        key: value
        for key, value in wanted.items()
        if value is not None and known.fixed.get(key, ...) != value
    }
    name, options, whole = _source(data, scale, columns, duplicates)
    if weights is not None or missing_weight is not None:
        said = (
            weights
            if isinstance(weights, str) or weights is None
            else tuple(map(os.path.abspath, weights))
        )
        options = msgspec.structs.replace(
            options or DataOptions(), weights=said, missing_weight=missing_weight
        )
    plain = {
        "name": f"tune-{method}",
        "title": f"{known.label} on {name}",
        "datasets": [name],
        "methods": [method],
        "factors": [n_factors],
        "seeds": [seed],
        "solver": "batch",
        "params": own,
        "privacy": dict(privacy or {}),
    }
    tuning = {"by": by, "folds": folds, "seed": seed, "grids": {method: grid}, "like": {}}
    try:
        experiment = msgspec.convert(plain, Experiment)
        experiment = msgspec.structs.replace(
            experiment,
            data={} if options is None else {name: options},
            tuning=msgspec.structs.replace(
                msgspec.convert(tuning, Tuning), split=Split("whole") if whole else Split()
            ),
        )
    except msgspec.ValidationError as error:
        raise ConfigError(f"tune: {error}") from error
    check(experiment, "tune")
    experiment, files = resolve(experiment)
    space = {name: values for name, values in grid.items() if name in known.own(**grid)}
    source = proposals(search, space, trials=trials, seed=seed)
    configuration = Configuration(experiment.datasets[0], method, n_factors)
    if whole and make_model(method).privacy.epsilon:
        notify(PRIVATE_CHOICE)
    with ExitStack() as stack:
        if out is None:
            out = stack.enter_context(tempfile.TemporaryDirectory(prefix="hdpmf-tune-"))
        store = stack.enter_context(Store(out, create=True))
        cells: list[GridCell] = []
        done = run_experiments(
            [experiment],
            store,
            files=files,
            n_jobs=n_jobs,
            backend=backend,
            on=on,
            command=command,
            progress=progress,
            stages=_stages(experiment, configuration, store, source, cells, _AT_ONCE[search]),
        )
        results = store.results()
    rows = points_of(cells, results)
    winner = best_of_grid(rows, by)
    if winner is None:
        messages = [
            message for row in rows for run in row.run_ids if (message := results[run].message)
        ]
        messages.append("there are no lists to choose by")
        kind: type[HdpmfError] = (
            DivergedError if all(row.status == "diverged" for row in rows) else ConfigError
        )
        raise kind(f"no combination of the grid could be used; the first said: {messages[0]}")
    return TuningResult(method, configuration.dataset, n_factors, folds, tuple(rows), winner, done)


_AT_ONCE = {"grid": 1_000_000, "bayes": 4}
"""Combinations that are tried before the next ones are chosen. Of a Bayesian search it is a
constant and not the number of cores, so that the same command asks for the same everywhere."""


def _stages(
    experiment: Experiment,
    configuration: Configuration,
    store: Store,
    source: Proposals,
    cells: list[GridCell],
    at_once: int,
) -> Iterator[tuple[str, list[Run]]]:
    """Yield the runs of the combinations that a search asks for; ``cells`` are those so far."""
    while asked := source.ask(at_once):
        new = [GridCell(values, fold_runs(experiment, configuration, values)) for values in asked]
        cells += new
        yield "cross-validation", [run for cell in new for run in cell.runs]
        for values, point in zip(asked, points_of(new, store.results()), strict=True):
            cost = -point.ndcg if experiment.tuning.by == "ndcg_at_10" else point.mse
            source.tell(values, cost if point.status == "done" else math.inf)


def _source(
    data: str | os.PathLike[str],
    scale: tuple[float, float] | None,
    columns: Mapping[str, str] | None,
    duplicates: Duplicates,
) -> tuple[str, DataOptions | None, bool]:
    if isinstance(data, str) and data in dataset_names():
        if scale is not None or columns or duplicates != "error":
            raise ConfigError(
                "scale, columns and duplicates describe files; a registered data set knows its own"
            )
        return data, None, False
    path = Path(data).absolute()
    return (
        "ratings",
        DataOptions(str(path), scale, dict(columns or {}), duplicates=duplicates),
        True,
    )
