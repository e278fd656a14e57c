"""``hdpmf paper``: the paper's whole evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.paper.report import report
from hdpmf.cli.shared import options
from hdpmf.cli.shared.output import hdpmf_version, note, print_json, print_lines, print_table
from hdpmf.cli.shared.running import (
    Backend,
    Jobs,
    cell_fields,
    command_line,
    done_fields,
    print_cells,
    print_claims,
    run_and_summarise,
)
from hdpmf.errors import DatasetError

if TYPE_CHECKING:
    from hdpmf.experiments import Experiment

app = typer.Typer(help="The paper's whole evaluation: run it, see how far it is, and read the report.")

_OUT, _QUICK_OUT = Path("out") / "paper", Path("out") / "paper-quick"

_Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="NAME",
        help="Only this data set; repeatable.",
        show_default="every one of the paper's that is here",
        autocompletion=options.complete_dataset,
        rich_help_panel=options.DATA_PANEL,
    ),
]
_Experiments = Annotated[
    list[str] | None,
    typer.Option("--experiment", "-e", metavar="NAME", help="Only this experiment; repeatable.", show_default="all"),
]
_Quick = Annotated[
    bool, typer.Option("--quick", help="A reduced version of everything on ML-100K, in under two minutes.")
]


@app.command("run")
def run_paper(
    data: _Data = None,
    experiment: _Experiments = None,
    quick: _Quick = False,
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
    jobs: Jobs = None,
    backend: Backend = "loky",
    on: options.On = "auto",
    json: options.Json = False,
) -> None:
    """Repeat the paper's experiments: hyper-parameters by cross-validation, five seeds, all cores, resumable."""
    folder = out or (_QUICK_OUT if quick else _OUT)
    experiments = _chosen(experiment, data, quick)
    words = {"data": data or [], "experiment": experiment or [], "quick": quick, "jobs": jobs}
    words["backend"] = None if backend == "loky" else backend
    words["on"] = None if on == "auto" else on
    done, cells = run_and_summarise(
        experiments,
        {},
        folder,
        jobs=jobs,
        backend=backend,
        on=on,
        command=command_line("hdpmf", "paper", "run", out=folder, **words),
        public_command=command_line("hdpmf", "paper", "run", **words),
    )
    if json:
        print_json(
            {
                "out": str(folder),
                "quick": quick,
                "experiments": {name: [cell_fields(cell) for cell in one] for name, one in cells.items()},
                **done_fields(done),
                "hdpmf_version": hdpmf_version(),
            }
        )
        return
    for one in experiments:
        if one.has_runs:
            print_cells(one, cells[one.name])
    print_claims(cell for one in cells.values() for cell in one)
    print_lines(f"{done.total} runs done now in {done.seconds:.0f} s, {done.reused} reused; results in {folder}")


@app.command("plan")
def plan(
    data: _Data = None,
    experiment: _Experiments = None,
    quick: _Quick = False,
    jobs: Jobs = None,
    json: options.Json = False,
) -> None:
    """Say how many runs there would be and about how long they take here, without running anything."""
    from hdpmf.experiments import dataset_title, expected_runs, expected_seconds
    from hdpmf.experiments.schedule import estimated_seconds
    from hdpmf.progress import clock

    experiments = _chosen(experiment, data, quick)
    runs = expected_runs(experiments)
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(run.data.name for run in runs):
        here = [run for run in runs if run.data.name == name]
        rows.append({"dataset": name, "runs": len(here), "core_seconds": round(sum(map(estimated_seconds, here)))})
    seconds = expected_seconds(experiments, jobs)
    if json:
        print_json({"datasets": rows, "runs": len(runs), "seconds": round(seconds)})
        return
    print_table(
        ("data set", "runs", "core time"),
        [(dataset_title(row["dataset"]), str(row["runs"]), clock(row["core_seconds"])) for row in rows],
        numeric=("runs", "core time"),
    )
    print_lines(f"{len(runs)} runs, about {clock(seconds)} here; runs that experiments share are counted once")


@app.command("status")
def status(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder that --out named.")] = _OUT,
    json: options.Json = False,
) -> None:
    """Say what is done and what is missing."""
    from hdpmf.experiments import Store
    from hdpmf.experiments.status import experiment_status

    with Store(out) as store:
        results = store.results()
        rows = [experiment_status(one, results) for one in store.experiments().values() if one.has_runs]
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


def _chosen(names: list[str] | None, datasets: list[str] | None, quick: bool) -> list[Experiment]:
    """The experiments asked for, on the data sets asked for, or on those that are here."""
    import msgspec

    from hdpmf import paper
    from hdpmf.experiments import resolve
    from hdpmf.experiments.expand import available
    from hdpmf.ratings import dataset_info

    experiments = [paper.experiment(name) for name in names or paper.NAMES]
    if quick:
        experiments = [paper.quick(one) for one in experiments]
    if datasets:
        wanted = tuple(dict.fromkeys(datasets))
    else:
        every = dict.fromkeys(name for one in experiments for name in one.datasets)
        wanted = tuple(name for name in every if available(name))
        for name in every:
            if name not in wanted:
                info = dataset_info(name)
                note(f"without {info.title}, which is not on this machine; {info.how_to_get()}")
        if not wanted:
            raise DatasetError("none of the paper's data sets is on this machine; run: hdpmf data get ml-100k")
    chosen = [resolve(msgspec.structs.replace(one, datasets=wanted))[0] for one in experiments]
    if "yelp" in wanted and any("yelp-sample" in one.datasets for one in chosen):
        note("Yelp's official file is not here; the Yelp sample stands in for it and is labelled so")
    return chosen
