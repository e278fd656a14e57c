"""``hdpmf experiment``: run an experiment that a TOML file describes, and report on it.

``hdpmf paper`` uses its options and functions, too.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import argument, command, option, run_option
from hdpmf.cli.output import Block, Result, Table, note
from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.lab.experiments import Cell, Experiment, RunCounts
    from hdpmf.lab.report import ReportFiles

SOME_RUNS_FAILED = 15
"""Exit code; the results of the other runs are saved and printed."""

_OUT = Path("out") / "experiment"
_ERRORS = {"mse_all": "MSE", "mae_all": "MAE", "mse": "warm MSE", "mae": "warm MAE"}
"""Over all test ratings; warm are those whose user and item were in training."""

_HYPERPARAMETERS = ("learning_rate", "reg")
_LISTS = {"ndcg_at_10": "NDCG@10", "recall_at_10": "recall", "coverage_at_10": "coverage"}

Jobs = Annotated[
    int | None, run_option("Runs at a time.", "N", "--jobs", "-j", default="all cores")
]
Fresh = Annotated[
    bool | None,
    run_option(
        "Do everything again, earlier results set aside; or go on from results that must be there.",
        None,
        "--fresh/--resume",
        default="go on where there are results",
    ),
]
ReportFolder = Annotated[Path, argument("Folder to write into; made where it is absent.", "OUT")]
Results = Annotated[
    Path, option("The --out of 'paper run' or 'experiment run'.", "FOLDER", "--results")
]


@dataclass(frozen=True)
class ExecutionOptions:
    """The processes, threads or cluster that runs use, and the processor."""

    jobs: Jobs = None
    backend: Annotated[
        str,
        run_option(
            "Who does the runs: processes or threads here, or a cluster by its address, as "
            "dask://HOST:8786.",
            "loky|threading|dask://HOST:PORT",
            words=("loky", "threading"),
        ),
    ] = "loky"
    on: Annotated[
        str,
        run_option(
            "Where factors are trained; auto: on a GPU, if one can be used. There a seed "
            "gives other numbers.",
            "cpu|gpu|auto",
            words=("cpu", "gpu", "auto"),
        ),
    ] = "auto"

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the functions that run experiments."""
        return {"n_jobs": self.jobs, "backend": self.backend, "on": self.on}

    @property
    def typed(self) -> dict[str, Any]:
        """The options that differ from their defaults, for `command_line`."""
        usual = ExecutionOptions()
        return {
            name: value for name, value in asdict(self).items() if value != getattr(usual, name)
        }


@command
def run_file(
    file: Annotated[Path, argument("A TOML file.", "FILE")],
    execution: ExecutionOptions,
    out: Annotated[
        Path,
        option(
            "Folder of results; a stopped command continues from there.", "FOLDER", "--out", "-o"
        ),
    ] = _OUT,
    fresh: Fresh = None,
) -> Result:
    """Run an experiment: cross-validation, then every method on every seed; resumable."""
    from hdpmf.lab.experiments import read_experiment, resolve

    experiment, files = resolve(read_experiment(file), file.parent)
    prepare_results(out, fresh)
    done, by_name = run_and_collect(
        [experiment],
        out,
        execution,
        files=files,
        command=command_line("hdpmf", "experiment", "run", file, out=out, **execution.typed),
        public_command=command_line("hdpmf", "experiment", "run", file.name, **execution.typed),
    )
    cells = by_name.get(experiment.name, [])
    notes, exit_code = failures(done)
    fields = {
        "experiment": experiment.name,
        "out": str(out),
        "cells": [cell_fields(cell) for cell in cells],
        **done_fields(done),
    }
    text = [
        *cell_tables(experiment, cells),
        *off_scale_lines(cells),
        *claim_lines(cells),
        f"{done.total} runs done now, {done.reused} reused; results in {out}",
    ]
    return Result(fields, text, notes=notes, exit_code=exit_code)


@command
def report(out: ReportFolder, results: Results = _OUT) -> Result:
    """Write an HTML page, figures (PNG, PDF), CSV and LaTeX tables about experiments."""
    from hdpmf.lab.report import write_report

    return report_result(write_report(results, out), results)


def report_result(written: ReportFiles, results: Path, **more: Any) -> Result:
    """Return the files of a report; ``more`` fields are for JSON."""
    page = written.folder / "index.html"
    fields = {
        "out": str(written.folder),
        "results": str(results),
        "page": str(page),
        "files": list(written.files),
        "findings": list(written.findings),
        **more,
        "missing_cells": written.missing,
        "problems": list(written.problems),
    }
    notes = list(written.problems)
    if written.missing:
        notes.append(
            f"{written.missing} cells are incomplete and marked so; the same 'run' command "
            "does what is missing"
        )
    text = [*written.findings, f"{len(written.files)} files written; open {page}"]
    return Result(fields, text, notes=notes)


def prepare_results(out: Path, fresh: bool | None) -> None:
    """Set earlier results aside, or require some, as ``--fresh/--resume`` says."""
    from hdpmf.lab.experiments.store import FILE_NAME, set_aside

    if fresh is False and not (out / FILE_NAME).exists():
        raise ConfigError(f"there is nothing to go on from in {out}; drop --resume to begin")
    if fresh:
        earlier = set_aside(out)
        if earlier is not None:
            note(f"earlier results are kept in {earlier}")


@contextmanager
def resume_hint(command: str) -> Iterator[None]:
    """Print the command that resumes the work, on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"stopped; what was finished is kept. To go on: {command}")
        raise


def command_line(*words: object, **options: object) -> str:
    """Return a command as typed in a shell, without options that are None, False or empty."""
    parts = [str(word) for word in words]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False or value == []:
            continue
        for word in value if isinstance(value, (list, tuple)) else [value]:
            parts += [option] if word is True else [option, str(word)]
    return shlex.join(parts)


def run_and_collect(
    experiments: Sequence[Experiment],
    out: Path,
    execution: ExecutionOptions,
    *,
    files: Mapping[str, Path] | None = None,
    command: str,
    public_command: str,
) -> tuple[RunCounts, dict[str, list[Cell]]]:
    """Do the runs that are missing, and return the cells of each experiment.

    ``files`` are the user's own data, by name. ``command`` resumes the work after Ctrl-C;
    ``public_command`` is the same for the results, without paths of this machine.
    """
    from hdpmf.common.base.progress import clock
    from hdpmf.lab.experiments import (
        Store,
        collect,
        expected_runs,
        run_experiments,
        watch,
    )
    from hdpmf.lab.experiments.runner import expected_seconds
    from hdpmf.private.kernels.gpu.availability import use_gpu

    with Store(out, create=True) as store:
        about = ""
        if not use_gpu(execution.on):  # the estimate knows processors only
            duration = clock(expected_seconds(experiments, execution.jobs))
            about = f", about {duration} if none were done before"
        note(f"{len(expected_runs(experiments))} runs in all{about}")
        weights = (line for experiment in experiments for line in _weight_lines(experiment))
        for line in dict.fromkeys(weights):
            note(line)
        with resume_hint(command), watch() as progress:
            done = run_experiments(
                experiments,
                store,
                files=files or {},
                command=public_command,
                progress=progress,
                **execution.arguments,
            )
        results = store.results()
        cells = {
            experiment.name: collect(store, experiment, results)
            for experiment in experiments
            if experiment.has_runs
        }
    return done, cells


def _weight_lines(experiment: Experiment) -> Iterator[str]:
    """Describe the privacy weights of the user's own data."""
    from hdpmf.lab.experiments.expansion import wishes_in_words

    for name in experiment.datasets if experiment.has_runs else ():
        if name in experiment.data and experiment.data[name].file is not None:
            words = wishes_in_words(experiment, name)
            yield f"{name}: privacy weights: {words} (data.{name}.weights)"


def done_fields(done: RunCounts) -> dict[str, Any]:
    """Return a summary of runs for JSON."""
    return {
        "ran": done.ran,
        "failures": done.failures,
        "n_ran": done.total,
        "n_reused": done.reused,
        "seconds": round(done.seconds, 2),
    }


def failures(done: RunCounts) -> tuple[list[str], int]:
    """Return notes about runs that failed, and the exit code."""
    if not done.failures:
        return [], 0
    notes = [
        f"failed: {METHODS[method].label}: {message}" for method, message in done.failures.items()
    ]
    failed = f"{done.ran['failed']} of {done.total} runs failed."
    return [*notes, f"{failed} The same command tries them again."], SOME_RUNS_FAILED


def cell_fields(cell: Cell) -> dict[str, Any]:
    """Return a cell for JSON; infinite and unknown numbers are null."""
    return {
        "dataset": cell.dataset,
        "method": cell.method,
        "factors": cell.factors,
        "x": cell.x,
        "status": cell.status,
        **{
            name: {
                "mean": finite(summary.mean),
                "std": finite(summary.std),
                "values": list(map(finite, summary.values)),
            }
            for name, summary in cell.metrics.items()
        },
        "hyperparameters": cell.hyperparameters,
        "epsilon_status": None if cell.claim is None else cell.claim.status,
        "epsilon_view": None if cell.claim is None else cell.claim.view,
        "run_ids": list(cell.run_ids),
    }


def finite(value: float) -> float | None:
    """Return a number that JSON has, or None."""
    return value if math.isfinite(value) else None


def cell_tables(experiment: Experiment, cells: Sequence[Cell]) -> Iterator[Block]:
    """Yield a table per data set and K: methods down, the axis across."""
    from hdpmf.lab.experiments import dataset_title

    measures = (_ERRORS if experiment.errors else {}) | (_LISTS if experiment.lists else {})
    for dataset in experiment.datasets:
        for factors in experiment.factors:
            here = [cell for cell in cells if (cell.dataset, cell.factors) == (dataset, factors)]
            quick = ", quick" if experiment.quick else ""
            title = f"{experiment.title} [{dataset_title(dataset)}, K={factors}{quick}]"
            if experiment.vary is None:
                columns = ["method", *measures.values(), "lr", "reg"]
                yield Table(columns, _rows(here, list(measures)), columns[1:], title)
                continue
            axis = experiment.vary
            columns = ["method", *(f"{axis.parameter}={x:g}" for x in axis.values)]
            for measure in ("mse_all", "ndcg_at_10"):
                if measure in measures:
                    heading = f"{title}: {measures[measure]}"
                    yield Table(columns, _curves(here, measure), columns[1:], heading)


def off_scale(n: float, total: float) -> str:
    """Return the mark on predictions that no rating can be."""
    return (
        f"IMPOSSIBLE PREDICTIONS: {n:,.0f} of {total:,.0f} were off the rating scale; the errors "
        "are of what they were brought back to."
    )


def off_scale_lines(cells: Iterable[Cell]) -> list[str]:
    """Return a mark for each method that predicted what no rating can be."""
    counts: dict[str, tuple[float, float]] = {}
    for cell in cells:
        off, total = (math.fsum(cell.summary(name).values) for name in ("n_off_scale", "n_all"))
        before = counts.get(cell.label, (0.0, 0.0))
        counts[cell.label] = (before[0] + off, before[1] + total)
    return [f"{label}: {off_scale(*count)}" for label, count in counts.items() if count[0]]


def claim_lines(cells: Iterable[Cell]) -> list[str]:
    """Return the status of the methods' epsilons: none is shown without it."""
    groups: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.claim is not None:
            claim = cell.claim
            words = f"epsilon is {claim.status.upper()} against {claim.view}"
            key = "no privacy" if claim.epsilon is None else words
            groups.setdefault(key, {})[cell.label] = None
    lines = [f"{', '.join(labels)}: {words}" for words, labels in groups.items()]
    more = "Privacy: SIMULATED noise, to compare methods. More: hdpmf privacy explain METHOD"
    return [*lines, more] if lines else []


def _curves(cells: Sequence[Cell], measure: str) -> list[list[str]]:
    rows: dict[str, list[str]] = {}
    for cell in cells:
        rows.setdefault(cell.label, [cell.label]).append(_plus_minus(cell, measure))
    return list(rows.values())


def _rows(cells: Sequence[Cell], measures: Sequence[str]) -> list[list[str]]:
    rows = []
    for cell in cells:
        known = cell.hyperparameters
        chosen = [f"{known[name]:g}" if name in known else "" for name in _HYPERPARAMETERS]
        rows.append([cell.label, *(_plus_minus(cell, name) for name in measures), *chosen])
    return rows


def _plus_minus(cell: Cell, metric: str) -> str:
    if cell.status != "done":
        return cell.status
    summary = cell.summary(metric)
    if not summary.values:
        return "none"
    spread = f" ± {summary.std:.4f}" if math.isfinite(summary.std) else ""
    return f"{summary.mean:.4f}{spread}"
