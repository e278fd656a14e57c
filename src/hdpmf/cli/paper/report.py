"""``hdpmf paper report``: results as a page, figures, CSV and LaTeX, next to the paper's."""

from __future__ import annotations

from pathlib import Path

from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.reporting import Out, Results, print_written


def report(out: Out, results: Results = Path("out") / "paper", json: Json = False) -> None:
    """Write a self-contained HTML page, figures (PNG, PDF), CSV and LaTeX tables from results, next to the paper's."""
    from hdpmf.paper.report import write_paper_report

    written, marks = write_paper_report(results, out)
    print_written(written, results, json=json, marks=marks)
