"""The HTML report, one file that opens without a network, and the files written beside it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from hdpmf.common.base.files import atomic_write, storage_errors
from hdpmf.common.methods import METHODS
from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.report import tables
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    NDCG,
    STATUS_WORDS,
    Content,
    anchor,
    axis_name,
    guarantee,
    is_level,
    plain,
    read_content,
    words,
)
from hdpmf.lab.report.exports import PACKAGE, asset, csv_files, environment, latex_files, raw_files
from hdpmf.lab.report.overview import overview
from hdpmf.lab.report.tables import HONEST_FIGURE, Point, view_words

_KINDS = ("csv", "latex", "raw")


class Section(NamedTuple):
    """A section of the page, which unfolds below its title."""

    name: str
    title: str
    template: str


LISTS = Section("Lists", "Lists of ten", "lists.html")
CLAIMS = Section("What epsilon stands on", "What each epsilon stands on", "claims.html")
HONEST = Section("Honest epsilon", "Accuracy against honest epsilon", "honest.html")
FIGURES = Section("Figures", "Figures", "figures.html")
TUNING = Section("Hyper-parameters", "Chosen hyper-parameters", "tuning.html")
AGAIN = Section("Run it again", "How to run this again", "again.html")
RUNS = Section("Runs", "Runs", "runs.html")
_ERRORS = Section("Errors", "Errors by method", "errors.html")
_DATASETS = Section("Data sets", "Data sets", "datasets.html")


@dataclass(frozen=True, slots=True)
class Page:
    """The contents of a page.

    Attributes:
        sections: By their anchors.
        figures: Experiments whose errors are drawn.
        facts: Further variables of the templates.
        headline: The result in a few short sentences.
    """

    kind: str
    title: str
    sections: Mapping[str, Section]
    figures: Sequence[Experiment]
    facts: Mapping[str, Any]
    headline: Sequence[str] = ()
    package: str = PACKAGE


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """A report that was written.

    Attributes:
        missing: Number of cells without a complete result.
        unknown: Methods with results that are not known here, so that nothing shows them.
    """

    folder: Path
    files: tuple[str, ...]
    headline: tuple[str, ...]
    missing: int
    unknown: tuple[str, ...]


def write_report(results: str | PathLike[str], out: str | PathLike[str]) -> ReportFiles:
    """Write a report on the experiments in a results folder. The same results give the same bytes.

    Args:
        results: The folder with ``results.sqlite``.
        out: The folder to write into; files there with the same names are replaced.

    Raises:
        ConfigError: There are no results, or of a method that is unknown here.
        StorageError: Results that cannot be read, or a folder that cannot be written.
    """
    content = read_content(results)
    page = experiment_page(content)
    return write_files(out, content, page, csv_files(content), latex_files(content))


def experiment_page(content: Content) -> Page:
    """Return a page about any experiments."""
    figures = [experiment for experiment in content.experiments.values() if experiment.errors]
    plain_tables = [experiment for experiment in figures if experiment.vary is None]
    sections = {
        "tables": _ERRORS if plain_tables else None,
        "lists": LISTS if content.with_lists else None,
        "epsilon": CLAIMS,
        "honest": HONEST if tables.points(content) else None,
        "figures": FIGURES if figures else None,
        "datasets": _DATASETS,
        "tuning": TUNING if content.tuned else None,
        "again": AGAIN,
        "runs": RUNS,
    }
    return Page(
        kind="hdpmf experiment report",
        title=words([experiment.title for experiment in content.experiments.values()]),
        sections={anchor: section for anchor, section in sections.items() if section is not None},
        figures=figures,
        facts={"plain_tables": plain_tables},
    )


def write_files(
    out: str | PathLike[str],
    content: Content,
    page: Page,
    csv: Mapping[str, bytes],
    latex: Mapping[str, bytes],
) -> ReportFiles:
    """Write a page and the files beside it, by their names.

    Raises:
        StorageError: A folder cannot be made.
    """
    folder = Path(out)
    for kind in _KINDS:
        with storage_errors(f"cannot make the folder {folder / kind}", "; choose another one"):
            (folder / kind).mkdir(parents=True, exist_ok=True)
    written: dict[str, bytes] = {"index.html": render(content, page).encode()}
    for kind, parts in zip(_KINDS, (csv, latex, raw_files(content)), strict=True):
        written |= {f"{kind}/{name}": data for name, data in parts.items()}
    for name, data in written.items():
        atomic_write(folder / name, data)
    unknown = sorted({result.run.method for result in content.results.values()} - METHODS.keys())
    said = tuple(page.headline), content.n_incomplete, tuple(unknown)
    return ReportFiles(folder, tuple(written), *said)


def render(content: Content, page: Page) -> str:
    """Return the page as one HTML file."""
    points = tables.points(content)
    template = environment(page.package).get_template("page.html")
    return template.render(
        page=page,
        content=content,
        overview=overview(content),
        points=points,
        charts=chart_data(content, page.figures, points),
        style=asset("report.css"),
        script="".join(map(asset, ("scales.js", "charts.js", "report.js"))),
        **page.facts,
    )


def chart_data(
    content: Content, experiments: Iterable[Experiment], points: Sequence[Point]
) -> dict[str, Any]:
    """Return methods, data sets and figures: of lists, of honest epsilon, of these experiments."""
    claims = {cell.method: cell.claim for cell in content.all_cells if cell.claim is not None}
    methods = []
    for name, label in content.method_labels.items():
        claim = claims.get(name)
        status = "unknown" if claim is None else claim.status
        fixed = claim is not None and claim.epsilon == 0.0
        epsilon = "ε 0, " if fixed else "ε " if status == "nominal" else ""
        said = {"status": status, "words": epsilon + STATUS_WORDS.get(status, status)}
        methods.append({"name": name, "label": label, **said, "why": _why(claim)})
    lists = [_list_figure(content, one) for one in content.with_lists if one.vary is not None]
    return {
        "methods": methods,
        "datasets": [
            {"name": name, "title": title} for name, title in content.dataset_titles.items()
        ],
        "figures": [
            *lists,
            *([_honest_figure(content, points)] if points else []),
            *(_figure(experiment, content.error_cells(experiment)) for experiment in experiments),
        ],
    }


def _why(claim: Any) -> str:
    return "" if claim is None else f"{claim.view}; {claim.reason}"


def _figure(experiment: Experiment, cells: list[Cell]) -> dict[str, Any]:
    xs = [float(x) for x in experiment.xs if x is not None]
    return {
        "name": experiment.name,
        "kind": "bars" if experiment.vary is None else "lines",
        "axis": None if experiment.vary is None else axis_name(experiment),
        "percent": experiment.varied == "fraction",
        "log": min(xs, default=0.0) > 0 and len(xs) > 2 and max(xs) / min(xs) >= 10,
        "xs": xs,
        "factors": list(experiment.factors),
        "datasets": list(experiment.datasets),
        "methods": list(dict.fromkeys(cell.method for cell in cells)),
        "cells": [_cell(cell) for cell in cells],
    }


def _cell(cell: Cell, metrics: Sequence[str] = tuple(METRIC_LABELS)) -> dict[str, Any]:
    summaries = {metric: cell.summary(metric) for metric in metrics}
    return {
        "dataset": cell.dataset,
        "method": cell.method,
        "k": cell.factors,
        "x": cell.x,
        "status": cell.status,
        "n": max(len(summary.values) for summary in summaries.values()),
        "seeds": len(cell.run_ids),
        "runs": anchor(cell),
        **{
            metric: {"mean": _finite(summary.mean), "std": _finite(summary.std)}
            for metric, summary in summaries.items()
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _list_figure(content: Content, experiment: Experiment) -> dict[str, Any]:
    cells = content.cells.get(experiment.name, [])
    shown = []
    for cell in cells:
        level = is_level(experiment, cell)
        if not level or cell.x == experiment.xs[0]:
            shown.append({**_cell(cell, (NDCG,)), "x": None if level else cell.x})
    words = {cell.method: {"words": guarantee(cell), "why": _why(cell.claim)} for cell in cells}
    return {
        **_figure(experiment, []),
        "name": f"{experiment.name}-curves",
        "metric": NDCG,
        "methods": list(words),
        "words": words,
        "cells": shown,
    }


def _honest_figure(content: Content, points: Sequence[Point]) -> dict[str, Any]:
    words: dict[str, dict[str, str]] = {}
    for point in points:
        nominal = plain(point.cell.x or 0.0)
        why = f"{point.cost.in_numbers()} at nominal epsilon {nominal}; {point.cost.reason}"
        words.setdefault(point.cell.method, {"words": view_words(point.cost), "why": why})
    with_points = {point.cell.dataset for point in points}
    return {
        "name": HONEST_FIGURE,
        "kind": "lines",
        "axis": {"base": "honest ε", "low": ""},
        "percent": False,
        "log": True,
        "free": True,
        "xs": sorted({point.x for point in points if point.x is not None}),
        "factors": list(dict.fromkeys(point.cell.factors for point in points)),
        "datasets": [name for name in content.dataset_titles if name in with_points],
        "methods": list(words),
        "words": words,
        "cells": [{**_cell(point.cell), "x": point.x, "nominal": point.cell.x} for point in points],
    }
