"""``hdpmf paper report``: results as a page, figures, CSV and LaTeX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared import options
from hdpmf.cli.shared.output import hdpmf_version, note, print_json, print_lines

_RESULTS = Path("out") / "paper"
"""Where ``hdpmf paper run`` puts results unless told otherwise."""


def report(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write into; made where it is absent.")],
    results: Annotated[
        Path,
        typer.Option("--results", metavar="FOLDER", help="What 'paper run' or 'experiment run' had as --out."),
    ] = _RESULTS,
    json: options.Json = False,
) -> None:
    """Write a self-contained HTML page, figures (PNG, PDF), CSV and LaTeX tables from results, next to the paper's."""
    from hdpmf.report import write_report

    written = write_report(results, out)
    if json:
        print_json(
            {
                "out": str(out),
                "results": str(results),
                "page": str(out / "index.html"),
                "files": list(written.files),
                "findings": list(written.findings),
                "marks": written.marks,
                "missing_cells": written.missing,
                "problems": list(written.problems),
                "hdpmf_version": hdpmf_version(),
            }
        )
        return
    for problem in written.problems:
        note(problem)
    if written.missing:
        note(f"{written.missing} cells are incomplete and marked so; the same 'paper run' command does what is missing")
    print_lines(*written.findings, f"{len(written.files)} files written; open {out / 'index.html'}")
