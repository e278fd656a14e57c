"""Doing what is missing: two stages, all cores, one writer.

Workers only compute; this process writes every result down as it comes. Whatever ends the command,
what was finished is in the store, and the next call goes on from there.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import msgspec

from hdpmf.common.base.progress import progress_bar
from hdpmf.common.base.threads import available_cores
from hdpmf.common.data import dataset_info, dataset_names
from hdpmf.common.methods.registry import PLUGINS
from hdpmf.common.privacy import PrivacySpec
from hdpmf.errors import ConfigError, MissingExtraError
from hdpmf.lab.experiments.execution import (
    RunGroup,
    do_run,
    do_task,
    environment,
    load_data,
    trains_on_gpu,
)
from hdpmf.lab.experiments.expansion import (
    data_of,
    expected_runs,
    final_runs,
    tuning_runs,
)
from hdpmf.lab.experiments.runs import Run
from hdpmf.lab.experiments.spec import Experiment
from hdpmf.lab.experiments.store import Result, Store
from hdpmf.lab.experiments.summary import dataset_title
from hdpmf.private.kernels.gpu.availability import use_gpu

_TASK_SECONDS = 1.0
"""Short runs are done together until they are worth a trip to another process."""


@dataclass(slots=True)
class RunCounts:
    """The outcome of `run_experiments`.

    Attributes:
        ran: Runs done now, by status.
        failures: The last message of failed runs, by method.
        reused: Runs that were in the store already.
    """

    ran: dict[str, int] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    reused: int = 0
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """Number of runs done now."""
        return sum(self.ran.values())


def run_experiments(
    experiments: Sequence[Experiment],
    store: Store,
    *,
    files: Mapping[str, Path] | None = None,
    n_jobs: int | None = None,
    backend: str = "loky",
    on: str = "cpu",
    command: str = "",
    progress: bool | None = None,
) -> RunCounts:
    """Run what is missing of some experiments.

    Args:
        experiments: Resolved experiments (see `expansion.resolve`).
        store: The store for the results.
        files: Paths of the user's files, by checksum.
        n_jobs: Runs at a time; one per core by default.
        backend: One of joblib's: processes here (``loky``), ``threading``, or a cluster:
            ``dask://HOST:PORT`` names its scheduler.
        on: ``cpu``, ``gpu`` or ``auto``; a GPU does all runs that train factors, one by one.
        command: The command line that does the same again.
        progress: Show a bar; None: in a notebook only.
    """
    check_backend(backend)
    on_gpu = use_gpu(on)
    at_a_time = jobs(n_jobs)
    begin = time.perf_counter()
    done = RunCounts()
    store.note(
        "start",
        {
            "command": command,
            "environment": environment(),
            "jobs": at_a_time,
            "backend": backend,
            "experiments": msgspec.to_builtins(list(experiments)),
        },
    )
    reason = "interrupted"
    try:
        _note_datasets(experiments, store, files or {})
        common = RunGroup(
            (),
            {digest: str(path.absolute()) for digest, path in (files or {}).items()},
            tuple(map(str, PLUGINS)),
            os.getpid(),
        )
        for name in ("cross-validation", "evaluation"):
            results = store.results()
            evaluated = name == "evaluation"
            runs = final_runs(experiments, results) if evaluated else tuning_runs(experiments)
            listed = _listed(experiments, results)
            tables = (one for one in experiments if one.vary is None)
            tabled = {run.id for run in final_runs(tables, results)}
            missing = unfinished(experiments, runs, results)
            done.reused += len(runs) - len(missing)
            fast = [run for run in missing if on_gpu and trains_on_gpu(run)]
            others = [run for run in missing if not (on_gpu and trains_on_gpu(run))]
            tasks = [
                msgspec.structs.replace(
                    common, runs=tuple(group), listed=listed & {run.id for run in group}
                )
                for group in tasks_of(others)
            ]
            found = chain(
                (do_run(run, common.files, run.id in listed, on_gpu=True) for run in fast),
                chain.from_iterable(_in_parallel(tasks, at_a_time, backend)),
            )
            n = len(missing)
            with progress_bar(name, n, show=progress, lines=bool(progress)) as advance:
                for number, result in enumerate(found, start=1):
                    if result.run.id not in tabled:  # figures have too many
                        result = msgspec.structs.replace(result, users={})
                    store.add(result)
                    done.ran[result.status] = done.ran.get(result.status, 0) + 1
                    if result.status == "failed":
                        done.failures[result.run.method] = result.message
                    advance(number, n)
        reason = "finished"
    finally:
        done.seconds = time.perf_counter() - begin
        store.note("end", {"reason": reason, "seconds": round(done.seconds, 1), "runs": done.total})
    return done


def _listed(experiments: Iterable[Experiment], results: Mapping[str, Result]) -> frozenset[str]:
    """Return the ids of runs whose lists must be measured."""
    experiments = list(experiments)
    shown = final_runs((one for one in experiments if one.lists), results)
    chosen_by = tuning_runs(one for one in experiments if one.tuning.by == "ndcg_at_10")
    return frozenset(run.id for run in (*shown, *chosen_by))


def unfinished(
    experiments: Iterable[Experiment], runs: Iterable[Run], results: Mapping[str, Result]
) -> list[Run]:
    """Return the runs without a result that has all these experiments show."""
    listed = _listed(experiments, results)
    return [
        run
        for run in runs
        if run.id not in results or not results[run.id].suffices(lists=run.id in listed)
    ]


def estimated_seconds(run: Run) -> float:
    """Estimate how long a run takes on one core.

    The constants come from the sequential solver on one core; a data set of unknown size counts as
    a small one.
    """
    counts = dataset_info(run.data.name).counts if run.data.name in dataset_names() else None
    n_ratings, n_items = (counts.ratings, counts.items) if counts else (100_000, 2_000)
    stated = run.data.world.get("n_ratings")
    n_ratings = stated if isinstance(stated, int) else n_ratings
    epochs = run.params.get("epochs")
    if not isinstance(epochs, int):
        return 0.005 + 5e-8 * n_ratings  # no training loop
    if run.part.folds:
        n_ratings = n_ratings * (run.part.folds - 1) // run.part.folds
    factors = run.params.get("n_factors")
    width = factors if isinstance(factors, int) else 10
    per_rating = (1.6e-8 + 1.2e-9 * width) * (1.0 if run.method != "mf" else 0.7)
    return 0.01 + epochs * (per_rating * n_ratings * run.part.fraction + 6e-8 * n_items)


def expected_seconds(experiments: Iterable[Experiment], n_jobs: int | None = None) -> float:
    """Estimate how long all runs take here."""
    return sum(map(estimated_seconds, expected_runs(experiments))) / jobs(n_jobs)


def jobs(n_jobs: int | None) -> int:
    """Return the number of runs at a time."""
    if n_jobs is not None and n_jobs < 1:
        raise ConfigError(f"the number of jobs must be at least 1, not {n_jobs}")
    return available_cores() if n_jobs is None else n_jobs


def tasks_of(runs: Iterable[Run]) -> Iterator[Sequence[Run]]:
    """Yield groups of runs for workers, in the order they should start.

    Longest first, so that no worker is left with a long run at the end; within equally long ones
    those of the same cut together, so that a worker can keep it.
    """
    ordered = sorted(runs, key=lambda run: (-round(estimated_seconds(run), 1), _cut(run), run.id))
    for _, same in groupby(ordered, key=_cut):
        group: list[Run] = []
        seconds = 0.0
        for run in same:
            cost = estimated_seconds(run)
            if group and seconds + cost > _TASK_SECONDS:
                yield group
                group = []
                seconds = 0.0
            group.append(run)
            seconds += cost
        yield group


def _cut(run: Run) -> bytes:
    return msgspec.json.encode([run.data, run.part], order="sorted")


def check_backend(backend: str) -> None:
    """Raise an error for a backend that is unknown or not installed."""
    if re.fullmatch(r"loky|threading|dask://[^/\s]+:\d+", backend) is None:
        raise ConfigError(
            f"unknown backend {backend!r}; choose loky, threading or a cluster, dask://HOST:PORT"
        )
    if backend.startswith("dask") and find_spec("distributed") is None:
        raise MissingExtraError("--backend dask://... needs dask: pip install 'hdpmf[dask]'")


def _in_parallel(tasks: Sequence[RunGroup], n_jobs: int, backend: str) -> Iterator[list[Result]]:
    from joblib import Parallel, delayed, parallel_config

    with ExitStack() as stack:
        if backend.startswith("dask"):
            backend, address, n_jobs = "dask", backend.replace("dask", "tcp"), -1
            try:
                stack.enter_context(import_module("distributed").Client(address))
            except OSError as error:
                raise ConfigError(f"there is no dask scheduler at {address}") from error
        stack.enter_context(parallel_config(backend, n_jobs=n_jobs))
        parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
        results = parallel(delayed(do_task)(task) for task in tasks)
        try:
            yield from results
        finally:
            results.close()  # on Ctrl-C: no further task is sent, workers are ended


def _note_datasets(
    experiments: Sequence[Experiment], store: Store, files: Mapping[str, Path]
) -> None:
    """Record counts of data sets, as they are now."""
    datasets = store.datasets()
    for experiment in experiments:
        for name in experiment.datasets:
            if name not in datasets:
                datasets[name] = _dataset_facts(experiment, name, files)
                store.note("dataset", datasets[name])


def _dataset_facts(experiment: Experiment, name: str, files: Mapping[str, Path]) -> dict[str, Any]:
    """Return counts of a data set, and aggregates of the default privacy weights (seed 0).

    Only counts and aggregates of simulated wishes; no rating, no weight of anybody.
    """
    data = data_of(experiment, name)
    path = files.get(data.sha256 or "")
    ratings = load_data(data, None if path is None else str(path))
    weights = PrivacySpec().draw(ratings, rng=0).for_ratings(ratings)
    return {
        "name": name,
        "title": dataset_title(name),
        "users": ratings.n_users,
        "items": ratings.n_items,
        "ratings": len(ratings),
        "density": ratings.density,
        "scale": [ratings.scale.low, ratings.scale.high],
        "mean_weight": float(weights.mean()),
        "min_weight": float(weights.min()),
    }
