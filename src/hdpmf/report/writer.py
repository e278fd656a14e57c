"""Writing a report: the page, the figures, the CSV and the LaTeX files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from hdpmf.errors import StorageError
from hdpmf.experiments import Experiment
from hdpmf.files import atomic_write
from hdpmf.report.chart_sections import chart_data, charts_section
from hdpmf.report.content import Content, read_content
from hdpmf.report.csv_files import csv_files
from hdpmf.report.figures import figure_files
from hdpmf.report.findings import findings
from hdpmf.report.headline import headline
from hdpmf.report.honest import points
from hdpmf.report.honest_section import honest_data, honest_section
from hdpmf.report.latex import latex_files, to_files
from hdpmf.report.list_latex import list_tables
from hdpmf.report.list_sections import list_data, lists_section
from hdpmf.report.lists import list_experiments
from hdpmf.report.numbers import words
from hdpmf.report.overview import overview_figure
from hdpmf.report.page import Page, render
from hdpmf.report.run_sections import environment_section, runs_section, tuning_section
from hdpmf.report.table_sections import claims_section, datasets_section, tables_section


@dataclass(frozen=True, slots=True)
class Written:
    """What a report came to.

    Attributes:
        files: Paths of its files, relative to the folder.
        findings: The headline, in sentences.
        missing: Cells without a complete result.
        problems: What could not be read.
    """

    folder: Path
    files: tuple[str, ...]
    findings: tuple[str, ...]
    missing: int
    problems: tuple[str, ...]


def write_report(results: str | PathLike[str], out: str | PathLike[str]) -> Written:
    """Turn the results in a folder into a report on the experiments in it. The same results give the same bytes.

    Args:
        results: The folder with ``results.sqlite``.
        out: The folder to write into; files there with the same names are replaced.

    Raises:
        ConfigError: There are no results.
        StorageError: Results that cannot be read, or a folder that cannot be written.
    """
    content = read_content(results)
    figures = figure_files(content, _with_runs(content))
    latex = latex_files(content) | to_files(list_tables(content))
    return write_files(out, content, experiment_page(content), csv_files(content), latex, figures)


def experiment_page(content: Content) -> Page:
    """What the page says about any experiments."""
    shown = [experiment for experiment in _with_runs(content) if experiment.errors]
    tables = [experiment for experiment in shown if experiment.vary is None]
    data = chart_data(content, shown)
    data["figures"] = [*list_data(content), *honest_data(content), *data["figures"]]
    sections = {
        "tables": ("Errors", tables_section(content, tables)) if tables else None,
        "lists": ("Lists", lists_section(content)) if list_experiments(content) else None,
        "epsilon": ("What epsilon stands on", claims_section(content)),
        "honest": ("Honest epsilon", honest_section(content)) if points(content) else None,
        "figures": ("Figures", charts_section(content, shown, {})) if shown else None,
        "datasets": ("Data sets", datasets_section(content)),
        "tuning": ("Hyper-parameters", tuning_section(content)) if content.tuned else None,
        "again": ("Run it again", environment_section(content)),
        "runs": ("Runs", runs_section(content)),
    }
    return Page(
        kind="hdpmf experiment report",
        title=words([experiment.title for experiment in content.experiments.values()]),
        overview=overview_figure(content),
        headline=headline(content),
        findings=findings(content),
        sections={anchor: part for anchor, part in sections.items() if part is not None},
        charts=data,
    )


def _with_runs(content: Content) -> list[Experiment]:
    return [experiment for experiment in content.experiments.values() if experiment.has_runs]


def write_files(
    out: str | PathLike[str],
    content: Content,
    page: Page,
    csv: Mapping[str, bytes],
    latex: Mapping[str, bytes],
    figures: Mapping[str, bytes],
) -> Written:
    """Write a page and the files beside it, by their names."""
    folder = Path(out)
    files: dict[str, bytes] = {"index.html": render(content, page).encode()}
    for kind, parts in (("csv", csv), ("latex", latex), ("figures", figures)):
        files |= {f"{kind}/{name}": data for name, data in parts.items()}
    for parent in sorted({str(Path(name).parent) for name in files}):
        try:
            (folder / parent).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot make the folder {folder / parent}: {error.strerror}; choose another one"
            ) from error
    for name, data in files.items():
        atomic_write(folder / name, data)
    missing = sum(cell.status in ("missing", "failed") for cell in content.all_cells)
    return Written(folder, tuple(files), tuple(page.findings), missing, tuple(content.problems))
