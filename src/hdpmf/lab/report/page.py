"""The HTML report, one file that opens without a network, and the files written beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any

from hdpmf.common.base.files import atomic_write
from hdpmf.errors import StorageError
from hdpmf.lab.experiments import Experiment
from hdpmf.lab.report.charts import (
    chart_data,
    charts_section,
    honest_data,
    honest_section,
    list_data,
    lists_section,
)
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    Content,
    counted,
    duration,
    list_experiments,
    read_content,
    words,
)
from hdpmf.lab.report.exports import csv_files, latex_files, list_tables, to_files
from hdpmf.lab.report.figures import figure_files
from hdpmf.lab.report.findings import findings, headline
from hdpmf.lab.report.honest_epsilon import points
from hdpmf.lab.report.markup import Child, Html, csp_hash, data_block, join, tag, unfolded
from hdpmf.lab.report.overview import overview_figure
from hdpmf.lab.report.tables import (
    claims_section,
    datasets_section,
    environment_section,
    runs_section,
    tables_section,
    tuning_section,
)


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says.

    Attributes:
        kind: What sort of report it is, above the title.
        overview: The result as one figure; None where there is nothing to compare.
        headline: The result in a few short sentences.
        findings: The same at length, with all numbers.
        sections: The parts: name in the navigation, and the part itself, by its anchor.
        charts: What the page's script draws (see `chart_data`).
    """

    kind: str
    title: str
    overview: Html | None
    headline: Sequence[str]
    findings: Sequence[str]
    sections: Mapping[str, tuple[str, Html]]
    charts: dict[str, Any]


def render(content: Content, page: Page) -> str:
    """The page as one file."""
    style = _asset("report.css")
    script = "".join(_asset(name) for name in ("scales.js", "charts.js", "report.js"))
    first, *rest = (part for _, part in page.sections.values())
    main = tag("main", unfolded(first), rest)
    body = [
        _contents(page),
        tag("div", _header(content, page), _controls(content), main, class_="page"),
    ]
    # Hashes let exactly this script and this style in, and nothing that a name in the results might
    # bring along.
    policy = (
        f"default-src 'none'; script-src {csp_hash(script)}; style-src "
        f"{csp_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_asset("page.html")).substitute(
        title=join(page.title),
        policy=join(policy),
        style=style,
        body=join(body),
        data=data_block(page.charts),
        script=script,
    )


def _asset(name: str) -> str:
    return files("hdpmf.lab.report").joinpath("assets", name).read_text(encoding="utf-8")


def _header(content: Content, page: Page) -> Html:
    titles = list(content.dataset_titles.values())
    seconds = sum(command.seconds or 0.0 for command in content.commands)
    last = content.commands[-1].at[:10] if content.commands else ""
    facts = [
        words(titles),
        counted(content.n_runs, "run"),
        f"{duration(seconds)} of wall time" if seconds else "",
        last,
    ]
    notices: list[Child] = []
    if content.quick:
        text = (
            "Reduced version (--quick): fewer seeds, epochs and combinations. First "
            "impressions, not results."
        )
        notices.append(tag("p", text, class_="notice"))
    if any(cell.status in ("missing", "failed") for cell in content.all_cells):
        text = (
            "Some runs are missing or failed; what is not there is marked and nothing "
            "stands in for it."
        )
        notices.append(tag("p", text, class_="notice"))
    notices += [tag("p", text, class_="notice") for text in content.problems]
    told = [tag("li", _unbroken(sentence)) for sentence in page.headline]
    details = [tag("li", _unbroken(sentence)) for sentence in page.findings]
    return tag(
        "header",
        tag("p", page.kind, class_="eyebrow"),
        tag("h1", page.title),
        tag("p", " · ".join(filter(None, facts)), class_="facts-line"),
        notices,
        tag("ul", told, class_="headline") if told else None,
        page.overview,
        tag(
            "details",
            tag("summary", "The findings, with all numbers"),
            tag("ol", details, class_="findings"),
            id="findings",
            open=not told,
        ),
        id="top",
    )


def _contents(page: Page) -> Html:
    """What is where; it stays on the screen."""
    links = [
        tag("li", tag("a", name, href=f"#{anchor}")) for anchor, name in _anchors(page).items()
    ]
    fold = tag("button", "Unfold all", type="button", id="unfold", hidden=True)
    return tag("nav", tag("ul", links), fold, class_="contents", aria_label="sections")


def _anchors(page: Page) -> dict[str, str]:
    return {"top": "Result"} | {anchor: name for anchor, (name, _) in page.sections.items()}


def _unbroken(sentence: str) -> str:
    """Equations stay on one line."""
    return (
        sentence.replace(" = ", "\u00a0=\u00a0")
        .replace(" < ", "\u00a0<\u00a0")
        .replace(" %", "\u00a0%")
    )


def _controls(content: Content) -> Html:
    """Which measure, K and data set the tables and figures show; without JavaScript they show
    all.
    """
    measures = [_radio("metric", name, label) for name, label in METRIC_LABELS.items()]
    sizes = [_radio("k", str(k), f"K = {k}") for k in content.factors]
    options = [tag("option", "All data sets", value="")]
    options += [tag("option", title, value=name) for name, title in content.dataset_titles.items()]
    return tag(
        "div",
        tag("fieldset", tag("legend", "Measure"), measures),
        tag("fieldset", tag("legend", "Factors"), sizes) if sizes else None,
        tag(
            "label", tag("span", "Data set", class_="hidden"), tag("select", options, id="dataset")
        ),
        class_="controls",
        hidden=True,
    )


def _radio(group: str, value: str, label: str) -> Html:
    field = f'<input type="radio" name="{group}" value="{value}">'
    return tag("label", Html(field), tag("span", label))


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
    """Turn the results in a folder into a report on the experiments in it. The same results give
    the same bytes.

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
