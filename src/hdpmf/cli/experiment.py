"""``hdpmf experiment`` and ``paper``: run experiments of a file, or the paper's; report on them."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options import DATASET_NAMES, argument, command, data_option, option, run_option
from hdpmf.cli.output import Block, Result, Table, note
from hdpmf.common.methods import METHODS
from hdpmf.errors import DatasetError

if TYPE_CHECKING:
    from hdpmf.lab.experiments import Cell, Experiment, RunCounts
    from hdpmf.lab.report import ReportFiles

SOME_RUNS_FAILED = 15
"""Exit code; the results of the other runs are saved and printed."""

_OUT = Path("out") / "experiment"
_ERRORS = {"mse_all": "MSE", "mae_all": "MAE", "mse": "warm MSE", "mae": "warm MAE"}
"""Over all test ratings; warm are those whose user and item were in training."""

_LISTS = {"ndcg_at_10": "NDCG@10", "recall_at_10": "recall", "coverage_at_10": "coverage"}

Jobs = Annotated[
    int | None, run_option("Runs at a time.", "N", "--jobs", "-j", default="all cores")
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
    def typed(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name."""
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
        option("Folder of results; a command goes on from what is there.", "FOLDER", "--out", "-o"),
    ] = _OUT,
) -> Result:
    """Run an experiment: cross-validation, then every method on every seed; resumable."""
    from hdpmf.lab.experiments import read_experiment, resolve

    experiment, files = resolve(read_experiment(file), file.parent)
    words = ("hdpmf", "experiment", "run", file)
    done, by_name = run_and_collect([experiment], out, execution, words, {}, files)
    cells = by_name.get(experiment.name, [])
    fields = {"experiment": experiment.name, "cells": list(map(cell_fields, cells))}
    return run_result(out, done, fields, cell_tables(experiment, cells), cells)


@command
def example(
    name: Annotated[str, argument("One of the paper's experiments.", "NAME")] = "table3",
) -> Result:
    """Print an experiment of the paper as the TOML file that it is, to begin a file with."""
    from hdpmf.lab import paper

    text = paper.source(name)
    others = ", ".join(other for other in paper.NAMES if other != name)
    return Result({"name": name, "toml": text}, text.splitlines(), notes=[f"others: {others}"])


@command
def report(out: ReportFolder, results: Results = _OUT) -> Result:
    """Write an HTML page, CSV and LaTeX tables about experiments."""
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
        **more,
        "missing_cells": written.missing,
    }
    notes = []
    if written.unknown:
        notes.append(
            f"not shown: {', '.join(written.unknown)}, which this hdpmf has not; --plugin FILE "
            "names the file of a method of your own"
        )
    if written.missing:
        notes.append(
            f"{written.missing} cells are incomplete and marked so; the same 'run' command "
            "does what is missing"
        )
    text = [*more.get("findings", ()), f"{len(written.files)} files written; open {page}"]
    return Result(fields, text, notes=notes)


def run_and_collect(
    experiments: Sequence[Experiment],
    out: Path,
    execution: ExecutionOptions,
    words: Sequence[object],
    typed: Mapping[str, Any],
    files: Mapping[str, Path] | None = None,
) -> tuple[RunCounts, dict[str, list[Cell]]]:
    """Do the runs that are missing, and return the cells of each experiment.

    ``files`` are the user's own data, by checksum; ``words`` and ``typed`` options are the command
    that resumes the work after Ctrl-C.
    """
    from hdpmf.common.base.progress import clock
    from hdpmf.common.methods.registry import PLUGINS
    from hdpmf.lab.experiments import Store, collect, expected_runs, run_experiments
    from hdpmf.lab.experiments.expansion import split_in_words, wishes_in_words
    from hdpmf.lab.experiments.runner import expected_seconds
    from hdpmf.private.kernels.gpu.availability import use_gpu

    words = [*words, *itertools.chain.from_iterable(("--plugin", file) for file in PLUGINS)]
    options = {**typed, **execution.typed}
    with Store(out, create=True) as store:
        about = ""
        if not use_gpu(execution.on):  # the estimate knows processors only
            duration = clock(expected_seconds(experiments, execution.jobs))
            about = f", about {duration} if none were done before"
        note(f"{len(expected_runs(experiments))} runs in all{about}")
        for experiment in experiments:
            for name in experiment.datasets:
                note(f"{experiment.name}: {name}: {split_in_words(experiment, name)}")
                if name in experiment.data:
                    weights = wishes_in_words(experiment, name)
                    note(f"{name}: privacy weights: {weights} (data.{name}.weights)")
        try:
            done = run_experiments(
                experiments,
                store,
                files=files or {},
                n_jobs=execution.jobs,
                backend=execution.backend,
                on=execution.on,
                # Results say nothing about the places of files.
                command=_command_line([getattr(word, "name", word) for word in words], options),
                progress=True,
            )
        except KeyboardInterrupt:
            again = _command_line(words, {"out": out, **options})
            note(f"stopped; what was finished is kept. To go on: {again}")
            raise
        results = store.results()
        return done, {one.name: collect(store, one, results) for one in experiments}


def _command_line(words: Sequence[object], options: Mapping[str, Any]) -> str:
    """Return a command as typed in a shell, without options that are None, False or empty."""
    parts = list(map(str, words))
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            parts.append(option)
        elif value:
            values = value if isinstance(value, list) else [value]
            parts += [part for one in values for part in (option, str(one))]
    return shlex.join(parts)


def run_result(
    out: Path,
    done: RunCounts,
    fields: Mapping[str, Any],
    tables: Iterable[Block],
    cells: Sequence[Cell],
) -> Result:
    """Return tables of cells with what their numbers are worth, and what was done for them."""
    text = [
        *tables,
        *_off_scale_lines(cells),
        *_claim_lines(cells),
        f"{done.total} runs done now, {done.reused} reused, in {done.seconds:.0f} s; "
        f"results in {out}",
    ]
    notes = [
        f"failed: {METHODS[method].label}: {message}" for method, message in done.failures.items()
    ]
    if notes:
        failed = f"{done.ran['failed']} of {done.total} runs failed."
        notes.append(f"{failed} The same command tries them again.")
    counts = {
        "ran": done.ran,
        "failures": done.failures,
        "n_ran": done.total,
        "n_reused": done.reused,
        "seconds": round(done.seconds, 2),
    }
    return Result(
        {"out": str(out), **fields, **counts},
        text,
        notes=notes,
        exit_code=SOME_RUNS_FAILED if notes else 0,
    )


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
                "mean": _finite(summary.mean),
                "std": _finite(summary.std),
                "values": list(map(_finite, summary.values)),
            }
            for name, summary in cell.metrics.items()
        },
        "hyperparameters": cell.hyperparameters,
        "epsilon_status": None if cell.claim is None else cell.claim.standing,
        "epsilon_view": None if cell.claim is None else cell.claim.view,
        "run_ids": list(cell.run_ids),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def cell_tables(experiment: Experiment, cells: Sequence[Cell]) -> Iterator[Block]:
    """Yield a table per data set and K: methods down, the axis across."""
    measures = (_ERRORS if experiment.errors else {}) | (_LISTS if experiment.lists else {})
    for dataset, k in itertools.product(experiment.datasets, experiment.factors):
        rows: dict[str, list[Cell]] = {}
        for cell in cells:
            if (cell.dataset, cell.factors) == (dataset, k):
                rows.setdefault(cell.label, []).append(cell)
        quick = ", quick" if experiment.quick else ""
        shown = next((row[0].dataset_title for row in rows.values()), dataset)
        title = f"{experiment.title} [{shown}, K={k}{quick}]"
        if experiment.vary is None:
            columns = ["method", *measures.values(), "lr", "reg"]
            lines = [
                [label, *(_plus_minus(cell, name) for name in measures), *_chosen(cell)]
                for label, (cell,) in rows.items()
            ]
            yield Table(columns, lines, columns[1:], title)
            continue
        columns = ["method", *(f"{experiment.varied}={x:g}" for x in experiment.vary.values)]
        for measure in ("mse_all", "ndcg_at_10"):
            if measure in measures:
                lines = [
                    [label, *(_plus_minus(cell, measure) for cell in row)]
                    for label, row in rows.items()
                ]
                yield Table(columns, lines, columns[1:], f"{title}: {measures[measure]}")


def _chosen(cell: Cell) -> list[str]:
    from hdpmf.lab.report.content import plain

    known = cell.hyperparameters
    return [plain(known[name]) if name in known else "" for name in ("learning_rate", "reg")]


def _plus_minus(cell: Cell, metric: str) -> str:
    if cell.status != "done":
        return cell.status
    summary = cell.summary(metric)
    if not summary.values:
        return "none"
    spread = f" ± {summary.std:.4f}" if math.isfinite(summary.std) else ""
    return f"{summary.mean:.4f}{spread}"


def off_scale(n: float, total: float) -> str:
    """Return the mark on predictions that no rating can be."""
    return (
        f"IMPOSSIBLE PREDICTIONS: {n:,.0f} of {total:,.0f} were off the rating scale; the errors "
        "are of what they were brought back to."
    )


def _off_scale_lines(cells: Iterable[Cell]) -> list[str]:
    """Return a mark for each method that predicted what no rating can be."""
    counts: dict[str, tuple[float, float]] = {}
    for cell in cells:
        off, total = (math.fsum(cell.summary(name).values) for name in ("n_off_scale", "n_all"))
        before = counts.get(cell.label, (0.0, 0.0))
        counts[cell.label] = (before[0] + off, before[1] + total)
    return [f"{label}: {off_scale(*count)}" for label, count in counts.items() if count[0]]


def _claim_lines(cells: Iterable[Cell]) -> list[str]:
    """Return the status of the methods' epsilons: none is shown without it."""
    groups: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.claim is not None:
            claim = cell.claim
            whose = "" if claim.unit == "rating" else f" per {claim.unit}"
            words = f"epsilon{whose} is {claim.status.upper()} against {claim.view}"
            key = "no privacy" if claim.epsilon is None else words
            groups.setdefault(key, {})[cell.label] = None
    lines = [f"{', '.join(labels)}: {words}" for words, labels in groups.items()]
    more = "Privacy: SIMULATED noise, to compare methods. More: hdpmf privacy explain METHOD"
    return [*lines, more] if lines else []


_PAPER_OUT = Path("out") / "paper"
_QUICK_OUT = Path("out") / "paper-quick"


@dataclass(frozen=True)
class PaperOptions:
    """The paper's experiments to run, and the data sets."""

    data: Annotated[
        list[str] | None,
        data_option(
            "Only this data set; repeatable.",
            "NAME",
            default="every one of the paper's that is here",
            words=DATASET_NAMES,
        ),
    ] = None
    experiment: Annotated[
        list[str] | None,
        option("Only this experiment; repeatable.", "NAME", "--experiment", "-e", default="all"),
    ] = None
    method: Annotated[
        list[str] | None,
        option(
            "Only this method, also one of your own (--plugin FILE); repeatable.",
            "NAME",
            "--method",
            default="all",
        ),
    ] = None
    quick: Annotated[
        bool, option("A reduced version of everything on ML-100K, in under two minutes.")
    ] = False

    def experiments(self) -> list[Experiment]:
        """Return the experiments on the data sets given, or on those that are here."""
        import msgspec

        from hdpmf.lab import paper
        from hdpmf.lab.experiments import resolve

        experiments = [paper.experiment(name) for name in self.experiment or paper.NAMES]
        if self.quick:
            experiments = [paper.quick(experiment) for experiment in experiments]
        if self.method:
            experiments = [*paper.only(experiments, self.method)]
        wanted = tuple(dict.fromkeys(self.data)) if self.data else _present(experiments)
        chosen = [
            resolve(msgspec.structs.replace(experiment, datasets=wanted))[0]
            for experiment in experiments
        ]
        if "yelp" in wanted and any("yelp-sample" in each.datasets for each in chosen):
            note(
                "Yelp's official file is not here; the Yelp sample stands in for it and is "
                "labelled so"
            )
        return chosen


@command
def run_paper(
    choice: PaperOptions,
    execution: ExecutionOptions,
    out: Annotated[
        Path | None,
        option(
            "Folder of results; a command goes on from what is there.",
            "FOLDER",
            "--out",
            "-o",
            default=f"{_PAPER_OUT}, with --quick {_QUICK_OUT}",
        ),
    ] = None,
) -> Result:
    """Repeat the paper's experiments: cross-validation, five seeds, all cores, resumable."""
    folder = out or (_QUICK_OUT if choice.quick else _PAPER_OUT)
    experiments = choice.experiments()
    words = ("hdpmf", "paper", "run")
    done, cells = run_and_collect(experiments, folder, execution, words, asdict(choice))
    fields = {
        "quick": choice.quick,
        "experiments": {name: list(map(cell_fields, found)) for name, found in cells.items()},
    }
    tables = (
        table
        for experiment in experiments
        for table in cell_tables(experiment, cells.get(experiment.name, []))
    )
    return run_result(
        folder, done, fields, tables, [one for found in cells.values() for one in found]
    )


@command
def report_paper(out: ReportFolder, results: Results = _PAPER_OUT) -> Result:
    """Write an HTML page, CSV and LaTeX tables, next to the paper's results."""
    from hdpmf.lab.paper.report import write_paper_report

    written, marks = write_paper_report(results, out)
    return report_result(written, results, findings=list(written.headline), marks=marks)


def _present(experiments: Sequence[Experiment]) -> tuple[str, ...]:
    """Return the experiments' data sets that are on this machine; note the others."""
    from hdpmf.common.data import dataset_info
    from hdpmf.lab.experiments.expansion import available

    every = dict.fromkeys(name for experiment in experiments for name in experiment.datasets)
    present = tuple(name for name in every if available(name))
    for name in every:
        if name not in present:
            info = dataset_info(name)
            note(f"without {info.title}, which is not on this machine; {info.how_to_get()}")
    if not present:
        raise DatasetError(
            "none of the paper's data sets is on this machine; run: hdpmf data get ml-100k"
        )
    return present
