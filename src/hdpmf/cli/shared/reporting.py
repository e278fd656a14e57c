"""What ``experiment report`` and ``paper report`` have in common: their options and what they print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.shared.output import note, print_json, print_lines

if TYPE_CHECKING:
    from hdpmf.report import Written

Out = Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write into; made where it is absent.")]
Results = Annotated[
    Path, typer.Option("--results", metavar="FOLDER", help="What 'paper run' or 'experiment run' had as --out.")
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
        note(f"{written.missing} cells are incomplete and marked so; the same 'run' command does what is missing")
    print_lines(*written.findings, f"{len(written.files)} files written; open {page}")
