"""``hdpmf experiment``: run an experiment that a TOML file describes, and report on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import print_json, print_lines, print_table
from hdpmf.cli.shared.reporting import Out, Results, print_written
from hdpmf.cli.shared.running import (
    ExecutionOptions,
    Fresh,
    begin,
    cell_fields,
    command_line,
    done_fields,
    end_with_failures,
    print_cells,
    print_claims,
    run_and_summarise,
)

app = typer.Typer(help="Experiments of your own, described in a TOML file.")

_OUT = Path("out") / "experiment"


@app.command("run")
@grouped
def run_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file.")],
    execution: ExecutionOptions,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Results; a stopped command goes on from there.")
    ] = _OUT,
    fresh: Fresh = None,
    json: Json = False,
) -> None:
    """Run an experiment: cross-validation, then every method on every seed; all cores, resumable."""
    from hdpmf.experiments import read_experiment, resolve

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
    """Write a self-contained HTML page, figures (PNG, PDF), CSV and LaTeX tables about the experiments in a folder."""
    from hdpmf.report import write_report

    print_written(write_report(results, out), results, json=json)


@app.command("list")
def list_experiments(json: Json = False) -> None:
    """List the paper's experiments; their TOML files are examples to start from."""
    from hdpmf import paper
    from hdpmf.experiments import expected_runs

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
        [(str(row["name"]), str(row["title"]), str(row["reference"]), str(row["runs"])) for row in rows],
        numeric=("runs",),
    )
    print_lines("run them with: hdpmf paper run --experiment NAME")
