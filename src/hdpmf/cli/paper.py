"""``hdpmf paper``: run the paper's whole evaluation, show its progress, and write the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.experiment import (
    ExecutionOptions,
    Fresh,
    Jobs,
    Out,
    Results,
    begin,
    cell_fields,
    command_line,
    done_fields,
    end_with_failures,
    print_cells,
    print_claims,
    print_written,
    run_and_summarise,
)
from hdpmf.cli.options.common import Json, complete_dataset, data_option, with_option_groups
from hdpmf.cli.output import note, print_json, print_lines, print_table
from hdpmf.errors import DatasetError

if TYPE_CHECKING:
    from hdpmf.lab.experiments import Experiment


def report(out: Out, results: Results = Path("out") / "paper", json: Json = False) -> None:
    """Write a self-contained HTML page, figures (PNG, PDF), CSV and LaTeX tables from results,
    next to the paper's.
    """
    from hdpmf.lab.paper.report import write_paper_report

    written, marks = write_paper_report(results, out)
    print_written(written, results, json=json, marks=marks)


app = typer.Typer(
    help="The paper's whole evaluation: run it, see how far it is, and read the report."
)

_OUT, _QUICK_OUT = Path("out") / "paper", Path("out") / "paper-quick"


@dataclass(frozen=True)
class PaperOptions:
    """Which of the paper's experiments, on what."""

    data: Annotated[
        list[str] | None,
        data_option(
            "--data",
            metavar="NAME",
            help="Only this data set; repeatable.",
            show_default="every one of the paper's that is here",
            autocompletion=complete_dataset,
        ),
    ] = None
    experiment: Annotated[
        list[str] | None,
        typer.Option(
            "--experiment",
            "-e",
            metavar="NAME",
            help="Only this experiment; repeatable.",
            show_default="all",
        ),
    ] = None
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="A reduced version of everything on ML-100K, in under two minutes."
        ),
    ] = False

    def experiments(self) -> list[Experiment]:
        """The experiments asked for, on the data sets asked for, or on those that are here."""
        import msgspec

        from hdpmf.lab import paper
        from hdpmf.lab.experiments import resolve

        experiments = [paper.experiment(name) for name in self.experiment or paper.NAMES]
        if self.quick:
            experiments = [paper.quick(experiment) for experiment in experiments]
        wanted = tuple(dict.fromkeys(self.data)) if self.data else _present(experiments)
        chosen = [
            resolve(msgspec.structs.replace(experiment, datasets=wanted))[0]
            for experiment in experiments
        ]
        if "yelp" in wanted and any("yelp-sample" in experiment.datasets for experiment in chosen):
            note(
                "Yelp's official file is not here; the Yelp sample stands in for it and is "
                "labelled so"
            )
        return chosen


@app.command("run")
@with_option_groups
def run_paper(
    choice: PaperOptions,
    execution: ExecutionOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Results; a stopped command goes on from there.",
            show_default=f"{_OUT}, with --quick {_QUICK_OUT}",
        ),
    ] = None,
    fresh: Fresh = None,
    json: Json = False,
) -> None:
    """Repeat the paper's experiments: hyper-parameters by cross-validation, five seeds, all
    cores, resumable.
    """
    folder = out or (_QUICK_OUT if choice.quick else _OUT)
    experiments = choice.experiments()
    typed = {**asdict(choice), **execution.typed}
    begin(folder, fresh)
    done, cells = run_and_summarise(
        experiments,
        folder,
        execution,
        command=command_line("hdpmf", "paper", "run", out=folder, **typed),
        public_command=command_line("hdpmf", "paper", "run", **typed),
    )
    if json:
        print_json(
            {
                "out": str(folder),
                "quick": choice.quick,
                "experiments": {
                    name: [cell_fields(cell) for cell in found] for name, found in cells.items()
                },
                **done_fields(done),
            }
        )
    else:
        for experiment in experiments:
            if experiment.has_runs:
                print_cells(experiment, cells[experiment.name])
        print_claims(cell for found in cells.values() for cell in found)
        print_lines(
            f"{done.total} runs done now in {done.seconds:.0f} s, {done.reused} reused; "
            f"results in {folder}"
        )
    end_with_failures(done)


@app.command("plan")
@with_option_groups
def plan(choice: PaperOptions, jobs: Jobs = None, json: Json = False) -> None:
    """Say how many runs there would be and about how long they take here, without running
    anything.
    """
    from hdpmf.common.base.progress import clock
    from hdpmf.lab.experiments import dataset_title, expected_runs, expected_seconds
    from hdpmf.lab.experiments.runner import estimated_seconds

    experiments = choice.experiments()
    runs = expected_runs(experiments)
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(run.data.name for run in runs):
        here = [run for run in runs if run.data.name == name]
        rows.append(
            {
                "dataset": name,
                "runs": len(here),
                "core_seconds": round(sum(map(estimated_seconds, here))),
            }
        )
    seconds = expected_seconds(experiments, jobs)
    if json:
        print_json({"datasets": rows, "runs": len(runs), "seconds": round(seconds)})
        return
    print_table(
        ("data set", "runs", "core time"),
        [
            (dataset_title(row["dataset"]), str(row["runs"]), clock(row["core_seconds"]))
            for row in rows
        ],
        numeric=("runs", "core time"),
    )
    print_lines(
        f"{len(runs)} runs, about {clock(seconds)} here; runs that experiments share "
        "are counted once"
    )


@app.command("status")
def status(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder that --out named.")] = _OUT,
    json: Json = False,
) -> None:
    """Say what is done and what is missing."""
    from hdpmf.lab.experiments import Store
    from hdpmf.lab.experiments.progress import experiment_status

    with Store(out) as store:
        results = store.results()
        rows = [
            experiment_status(experiment, results)
            for experiment in store.experiments().values()
            if experiment.has_runs
        ]
    if json:
        print_json({"out": str(out), "experiments": [row.fields() for row in rows]})
        return
    print_table(
        ("experiment", "cross-validation", "evaluation", "diverged", "failed", ""),
        [
            (
                row.name + (" (quick)" if row.quick else ""),
                f"{row.tuning_done}/{row.tuning_runs}",
                f"{row.evaluation_done}/{row.evaluation_runs}",
                str(row.diverged),
                str(row.failed),
                "complete" if row.complete else "",
            )
            for row in rows
        ],
        numeric=("cross-validation", "evaluation", "diverged", "failed"),
    )
    if not all(row.complete for row in rows):
        print_lines("the same 'hdpmf paper run' command does what is missing")


app.command("report")(report)


def _present(experiments: Sequence[Experiment]) -> tuple[str, ...]:
    """Those of the experiments' data sets that are on this machine; what is not is told."""
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
