"""The HTML report, one file that opens without a network, and the files written beside it."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hdpmf.common.base.files import atomic_write, storage_errors
from hdpmf.lab.experiments import Experiment
from hdpmf.lab.report import content as contents
from hdpmf.lab.report.charts import (
    axis_value,
    chart_data,
    figures_section,
    honest_section,
    lists_section,
)
from hdpmf.lab.report.content import Content, Section, read_content, words
from hdpmf.lab.report.exports import csv_files, latex_files, list_tables, to_files
from hdpmf.lab.report.figures import figure_files
from hdpmf.lab.report.findings import differences_section, findings, headline
from hdpmf.lab.report.overview import SHAPES, overview
from hdpmf.lab.report.tables import (
    claims_section,
    datasets_section,
    environment_section,
    errors_section,
    parameters_in_words,
    points,
    runs_section,
    tuning_section,
    view_words,
)

_PACKAGE = "hdpmf.lab.report"

_KINDS = ("csv", "latex", "figures")


@dataclass(frozen=True, slots=True)
class Page:
    """The contents of a page.

    Attributes:
        overview: The result as one figure; None where there is nothing to compare.
        headline: The result in a few short sentences.
        findings: The same at length, with all numbers.
        charts: Data that the page's script draws (see `chart_data`).
    """

    kind: str
    title: str
    overview: dict[str, Any] | None
    headline: Sequence[str]
    findings: Sequence[str]
    sections: Mapping[str, Section]
    charts: dict[str, Any]
    package: str = _PACKAGE


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """A report that was written.

    Attributes:
        missing: Number of cells without a complete result.
        problems: Experiments that could not be shown, with the reason.
    """

    folder: Path
    files: tuple[str, ...]
    findings: tuple[str, ...]
    missing: int
    problems: tuple[str, ...]


def write_report(results: str | PathLike[str], out: str | PathLike[str]) -> ReportFiles:
    """Write a report on the experiments in a results folder. The same results give the same bytes.

    Args:
        results: The folder with ``results.sqlite``.
        out: The folder to write into; files there with the same names are replaced.

    Raises:
        ConfigError: There are no results, or none that can be shown.
        StorageError: Results that cannot be read, or a folder that cannot be written.
    """
    with contents.recorded_methods(results):
        content = read_content(results)
        make_folders(out)
        figures = figure_files(content, _with_runs(content))
        latex = latex_files(content) | to_files(list_tables(content))
        page = experiment_page(content)
        return write_files(out, content, page, csv_files(content), latex, figures)


def experiment_page(content: Content) -> Page:
    """Return a page about any experiments."""
    shown = [experiment for experiment in _with_runs(content) if experiment.errors]
    tables = [experiment for experiment in shown if experiment.vary is None]
    sections = {
        "tables": errors_section(content, tables) if tables else None,
        "lists": lists_section(content) if contents.list_experiments(content) else None,
        "differences": differences_section(content),
        "epsilon": claims_section(content),
        "honest": honest_section(content) if points(content) else None,
        "figures": figures_section(content, shown, {}) if shown else None,
        "datasets": datasets_section(),
        "tuning": tuning_section(content) if content.tuned else None,
        "again": environment_section(content),
        "runs": runs_section(content),
    }
    return Page(
        kind="hdpmf experiment report",
        title=words([experiment.title for experiment in content.experiments.values()]),
        overview=overview(content),
        headline=headline(content),
        findings=findings(content),
        sections={anchor: part for anchor, part in sections.items() if part is not None},
        charts=chart_data(content, shown),
    )


def _with_runs(content: Content) -> list[Experiment]:
    return [experiment for experiment in content.experiments.values() if experiment.has_runs]


def make_folders(out: str | PathLike[str]) -> None:
    """Make the folders of a report, before the long work of drawing figures.

    Raises:
        StorageError: A folder cannot be made.
    """
    for kind in _KINDS:
        folder = Path(out, kind)
        with storage_errors(f"cannot make the folder {folder}", "; choose another one"):
            folder.mkdir(parents=True, exist_ok=True)


def write_files(
    out: str | PathLike[str],
    content: Content,
    page: Page,
    csv: Mapping[str, bytes],
    latex: Mapping[str, bytes],
    figures: Mapping[str, bytes],
) -> ReportFiles:
    """Write a page and the files beside it, by their names."""
    folder = Path(out)
    make_folders(folder)
    written: dict[str, bytes] = {"index.html": render(content, page).encode()}
    for kind, parts in zip(_KINDS, (csv, latex, figures), strict=True):
        written |= {f"{kind}/{name}": data for name, data in parts.items()}
    for name, data in written.items():
        atomic_write(folder / name, data)
    missing = sum(cell.status in ("missing", "failed") for cell in content.all_cells)
    return ReportFiles(
        folder, tuple(written), tuple(page.findings), missing, tuple(content.problems)
    )


def render(content: Content, page: Page) -> str:
    """Return the page as one HTML file."""
    templates = _environment(page.package)

    def part(template: str, facts: Mapping[str, Any]) -> str:
        return templates.get_template(template).render(facts, content=content)

    return templates.get_template("page.html").render(
        page=page,
        content=content,
        facts=_facts(content),
        notices=_notices(content),
        overview="" if page.overview is None else part("overview.html", page.overview),
        bodies={
            anchor: part(section.template, section.facts)
            for anchor, section in page.sections.items()
        },
        style=_asset("report.css"),
        script="".join(map(_asset, ("scales.js", "charts.js", "report.js"))),
    )


def _facts(content: Content) -> list[str]:
    seconds = sum(command.seconds or 0.0 for command in content.commands)
    return [
        words(list(content.dataset_titles.values())),
        contents.counted(content.n_runs, "run"),
        f"{contents.duration(seconds)} of wall time" if seconds else "",
        content.commands[-1].at[:10] if content.commands else "",
    ]


def _notices(content: Content) -> list[str]:
    notices = []
    if content.quick:
        notices.append(
            "Reduced version (--quick): fewer seeds, epochs and combinations. First impressions, "
            "not results."
        )
    if any(cell.status in ("missing", "failed") for cell in content.all_cells):
        notices.append(
            "Some runs are missing or failed; what is not there is marked and nothing stands in "
            "for it."
        )
    return [*notices, *content.problems]


@cache
def _environment(package: str) -> Environment:
    packages = dict.fromkeys((package, _PACKAGE))
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.tests["finite"] = math.isfinite
    environment.globals.update(
        {
            "metrics": contents.METRIC_LABELS,
            "ranking_labels": contents.RANKING_LABELS,
            "ndcg": contents.NDCG,
            "ndcg_margin": contents.NDCG_MARGIN,
            "zip": zip,
        }
    )
    environment.filters |= {
        name: getattr(contents, name)
        for name in (
            *("anchor", "counted", "counts", "duration", "four", "grid_anchor", "guarantee"),
            *("p_value", "percent", "plain", "slug", "symbol_parts"),
        )
    }
    environment.filters |= {
        "axis_value": axis_value,
        "csp_hash": _csp_hash,
        "enumerated": enumerate,
        "exact": lambda value: repr(float(value)),
        "metric_label": contents.LABELS.get,
        "parameters": parameters_in_words,
        "shape": lambda status: SHAPES.get(status, SHAPES["unknown"]),
        "status_words": lambda status: contents.STATUS_WORDS.get(status, status),
        "unbroken": _unbroken,
        "view_words": view_words,
    }
    return environment


def _asset(name: str) -> str:
    return files(_PACKAGE).joinpath("assets", name).read_text(encoding="utf-8")


def _csp_hash(source: str) -> str:
    """Return the hash by which a Content-Security-Policy allows one inline script or style.

    It allows exactly this script and this style, and nothing that a name in the results might
    bring along.
    """
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _unbroken(sentence: str) -> str:
    """Keep equations on one line."""
    for sign in (" = ", " < "):
        sentence = sentence.replace(sign, sign.replace(" ", "\u00a0"))
    return sentence.replace(" %", "\u00a0%")
