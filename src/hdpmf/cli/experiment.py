"""``hdpmf experiment``: run an experiment that a TOML file describes, and report on it.

``hdpmf paper`` and ``hdpmf tune`` run and print experiments by the functions here.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import Json, completion, run_option, with_option_groups
from hdpmf.cli.output import note, print_json, print_lines, print_table
from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.lab.experiments import Cell, Done, Experiment
    from hdpmf.lab.report import Written


Jobs = Annotated[
    int | None,
    run_option("--jobs", "-j", metavar="N", help="Runs at a time.", show_default="all cores"),
]


@dataclass(frozen=True)
class ExecutionOptions:
    """Who does the runs, and where."""

    jobs: Jobs = None
    backend: Annotated[
        str,
        run_option(
            "--backend",
            metavar="loky|threading|dask|ray",
            help="Who does the runs: processes or threads here, or the cluster that dask or ray "
            "is connected to.",
            autocompletion=completion(("loky", "threading", "dask", "ray")),
        ),
    ] = "loky"
    on: Annotated[
        str,
        run_option(
            "--on",
            metavar="cpu|gpu|auto",
            help="Where factors are trained; auto: on a GPU, if one can be used. There a seed "
            "gives other numbers.",
            autocompletion=completion(("cpu", "gpu", "auto")),
        ),
    ] = "auto"

    @property
    def arguments(self) -> dict[str, Any]:
        """For the functions that run experiments."""
        return {"n_jobs": self.jobs, "backend": self.backend, "on": self.on}

    @property
    def typed(self) -> dict[str, Any]:
        """What people typed, for a command line that does the same again."""
        usual = ExecutionOptions()
        return {
            name: value for name, value in asdict(self).items() if value != getattr(usual, name)
        }


Fresh = Annotated[
    bool | None,
    run_option(
        "--fresh/--resume",
        help="Do everything again, earlier results set aside; or go on from results that "
        "must be there.",
        show_default="go on where there are results",
    ),
]


def begin(out: Path, fresh: bool | None) -> None:
    """Set earlier results aside, or see that there are some, as ``--fresh/--resume`` says."""
    from hdpmf.lab.experiments.store import FILE_NAME, set_aside

    if fresh is False and not (out / FILE_NAME).exists():
        raise ConfigError(f"there is nothing to go on from in {out}; drop --resume to begin")
    if fresh:
        kept = set_aside(out)
        if kept is not None:
            note(f"earlier results are kept in {kept}")


SOME_RUNS_FAILED = 15

_ERRORS = {"mse": "MSE", "mae": "MAE"}

_CHOSEN = ("learning_rate", "reg")

_LISTS = {"ndcg_at_10": "NDCG@10", "recall_at_10": "recall", "coverage_at_10": "coverage"}


@contextmanager
def resume_hint(command: str) -> Iterator[None]:
    """On Ctrl-C, say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"stopped; what was finished is kept. To go on: {command}")
        raise


def command_line(*words: object, **choices: object) -> str:
    """A command as people would type it; options that are None, False or empty are left out."""
    parts = [str(word) for word in words]
    for name, value in choices.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False or value == []:
            continue
        for word in value if isinstance(value, (list, tuple)) else [value]:
            parts += [option] if word is True else [option, str(word)]
    return shlex.join(parts)


def run_and_summarise(
    experiments: Sequence[Experiment],
    out: Path,
    execution: ExecutionOptions,
    *,
    files: Mapping[str, Path] | None = None,
    command: str,
    public_command: str,
) -> tuple[Done, dict[str, list[Cell]]]:
    """Do what is missing and read everything back.

    ``command`` goes on after Ctrl-C; ``public_command``, for the store, is the same without places
    on this machine.
    """
    from hdpmf.common.base.progress import clock
    from hdpmf.lab.experiments import (
        Store,
        collect,
        expected_runs,
        expected_seconds,
        run_experiments,
        watch,
    )
    from hdpmf.private.kernels.gpu.availability import use_gpu

    with Store(out, create=True) as store:
        about = ""
        if not use_gpu(execution.on):  # the estimate knows processors only
            about = (
                f", about {clock(expected_seconds(experiments, execution.jobs))} if none were "
                "done before"
            )
        note(f"{len(expected_runs(experiments))} runs in all{about}")
        for line in dict.fromkeys(
            line for experiment in experiments for line in _weights_said(experiment)
        ):
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


def _weights_said(experiment: Experiment) -> Iterator[str]:
    """What the privacy weights of the user's own data are."""
    from hdpmf.lab.experiments import wishes_in_words

    for name in experiment.datasets if experiment.has_runs else ():
        if name in experiment.data and experiment.data[name].file is not None:
            yield (
                f"{name}: privacy weights: {wishes_in_words(experiment, name)} "
                f"(data.{name}.weights)"
            )


def done_fields(done: Done) -> dict[str, Any]:
    """What was run, for JSON."""
    return {
        "ran": done.ran,
        "failures": done.failures,
        "n_ran": done.total,
        "n_reused": done.reused,
        "seconds": round(done.seconds, 2),
    }


def end_with_failures(done: Done) -> None:
    """Where runs failed, say which and end the command with the code for it: the last thing that it
    does.

    What the others gave is in the store and has been shown, so this is no error that stands for the
    whole answer.
    """
    for method, message in done.failures.items():
        note(f"failed: {METHODS[method].label}: {message}")
    if done.failures:
        note(
            f"{done.ran['failed']} of {done.total} runs failed. The same command tries them again."
        )
        raise typer.Exit(SOME_RUNS_FAILED)


def cell_fields(cell: Cell) -> dict[str, Any]:
    """A cell for JSON; what is infinite or unknown is null."""
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
    """A number that JSON has."""
    return value if math.isfinite(value) else None


def print_cells(experiment: Experiment, cells: Sequence[Cell]) -> None:
    """An experiment's cells as a table per data set and K: methods down, the axis across."""
    from hdpmf.lab.experiments import dataset_title

    for dataset in experiment.datasets:
        for factors in experiment.factors:
            here = [cell for cell in cells if (cell.dataset, cell.factors) == (dataset, factors)]
            title = (
                f"{experiment.title} [{dataset_title(dataset)}, "
                f"K={factors}{', quick]' if experiment.quick else ']'}"
            )
            measures = (_ERRORS if experiment.errors else {}) | (_LISTS if experiment.lists else {})
            if experiment.vary is None:
                columns = ("method", *measures.values(), "lr", "reg")
                print_table(columns, _rows(here, list(measures)), numeric=columns[1:], title=title)
                continue
            columns = (
                "method",
                *(f"{experiment.vary.parameter}={x:g}" for x in experiment.vary.values),
            )
            for measure in (name for name in ("mse", "ndcg_at_10") if name in measures):
                print_table(
                    columns,
                    _curves(here, measure),
                    numeric=columns[1:],
                    title=f"{title}: {measures[measure]}",
                )


def print_claims(cells: Iterable[Cell]) -> None:
    """What the methods' epsilons stand on: no epsilon is shown without it."""
    groups: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.claim is not None:
            claim = cell.claim
            words = (
                "no privacy"
                if claim.epsilon is None
                else f"epsilon is {claim.status.upper()} (seen: {claim.view})"
            )
            groups.setdefault(words, {})[cell.label] = None
    print_lines(*(f"{', '.join(labels)}: {words}" for words, labels in groups.items()))


def _curves(cells: Sequence[Cell], measure: str) -> list[tuple[str, ...]]:
    rows: dict[str, list[str]] = {}
    for cell in cells:
        rows.setdefault(cell.label, [cell.label]).append(_plus_minus(cell, measure))
    return [tuple(row) for row in rows.values()]


def _rows(cells: Sequence[Cell], measures: Sequence[str]) -> list[tuple[str, ...]]:
    rows = []
    for cell in cells:
        chosen = [
            f"{cell.hyperparameters[name]:g}" if name in cell.hyperparameters else ""
            for name in _CHOSEN
        ]
        rows.append((cell.label, *(_plus_minus(cell, name) for name in measures), *chosen))
    return rows


def _plus_minus(cell: Cell, metric: str) -> str:
    if cell.status != "done":
        return cell.status
    summary = cell.summary(metric)
    if not summary.values:
        return "none"
    spread = f" ± {summary.std:.4f}" if math.isfinite(summary.std) else ""
    return f"{summary.mean:.4f}{spread}"


Out = Annotated[
    Path, typer.Argument(metavar="OUT", help="Folder to write into; made where it is absent.")
]

Results = Annotated[
    Path,
    typer.Option(
        "--results", metavar="FOLDER", help="What 'paper run' or 'experiment run' had as --out."
    ),
]


def print_written(written: Written, results: Path, *, json: bool, **more: Any) -> None:
    """Say what was written; ``more`` is for JSON only."""
    page = written.folder / "index.html"
    if json:
        print_json(
            {
                "out": str(written.folder),
                "results": str(results),
                "page": str(page),
                "files": list(written.files),
                "findings": list(written.findings),
                **more,
                "missing_cells": written.missing,
                "problems": list(written.problems),
            }
        )
        return
    for problem in written.problems:
        note(problem)
    if written.missing:
        note(
            f"{written.missing} cells are incomplete and marked so; the same 'run' command "
            "does what is missing"
        )
    print_lines(*written.findings, f"{len(written.files)} files written; open {page}")


app = typer.Typer(help="Experiments of your own, described in a TOML file.")

_OUT = Path("out") / "experiment"


@app.command("run")
@with_option_groups
def run_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file.")],
    execution: ExecutionOptions,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Results; a stopped command goes on from there."
        ),
    ] = _OUT,
    fresh: Fresh = None,
    json: Json = False,
) -> None:
    """Run an experiment: cross-validation, then every method on every seed; all cores,
    resumable.
    """
    from hdpmf.lab.experiments import read_experiment, resolve

    experiment, files = resolve(read_experiment(file), file.parent)
    begin(out, fresh)
    done, by_name = run_and_summarise(
        [experiment],
        out,
        execution,
        files=files,
        command=command_line("hdpmf", "experiment", "run", file, out=out, **execution.typed),
        public_command=command_line("hdpmf", "experiment", "run", file.name, **execution.typed),
    )
    cells = by_name.get(experiment.name, [])
    if json:
        print_json(
            {
                "experiment": experiment.name,
                "out": str(out),
                "cells": [cell_fields(cell) for cell in cells],
                **done_fields(done),
            }
        )
    else:
        print_cells(experiment, cells)
        print_claims(cells)
        print_lines(f"{done.total} runs done now, {done.reused} reused; results in {out}")
    end_with_failures(done)


@app.command("report")
def report(out: Out, results: Results = _OUT, json: Json = False) -> None:
    """Write a self-contained HTML page, figures (PNG, PDF), CSV and LaTeX tables about the
    experiments in a folder.
    """
    from hdpmf.lab.report import write_report

    print_written(write_report(results, out), results, json=json)


@app.command("list")
def list_experiments(json: Json = False) -> None:
    """List the paper's experiments; their TOML files are examples to start from."""
    from hdpmf.lab import paper
    from hdpmf.lab.experiments import expected_runs

    rows = [
        {
            "name": name,
            "title": experiment.title,
            "reference": experiment.reference,
            "datasets": list(experiment.datasets),
            "runs": len(expected_runs([experiment])),
        }
        for name, experiment in ((name, paper.experiment(name)) for name in paper.NAMES)
    ]
    if json:
        print_json({"experiments": rows})
        return
    print_table(
        ("name", "title", "where", "runs"),
        [
            (str(row["name"]), str(row["title"]), str(row["reference"]), str(row["runs"]))
            for row in rows
        ],
        numeric=("runs",),
    )
    print_lines("run them with: hdpmf paper run --experiment NAME")
