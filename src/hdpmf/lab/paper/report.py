"""The paper's report: page, CSV files and LaTeX tables beside the published numbers."""

from __future__ import annotations

import re
from os import PathLike
from typing import Any

import msgspec

from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.paper import NAMES, published
from hdpmf.lab.paper.findings import count_marks, mark_of, paper_findings, paper_headline
from hdpmf.lab.paper.published import duels, paper_pairs, privacy_groups, reversals, statements
from hdpmf.lab.report.charts import chart_data, figures_section, honest_section, lists_section
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    Content,
    Section,
    list_experiments,
    plain,
    read_content,
)
from hdpmf.lab.report.exports import (
    LOWEST,
    Emphasis,
    accuracy_latex,
    csv_files,
    escape,
    latex_table,
    list_tables,
    lowest_bold,
    statistics_latex,
    to_csv,
    to_files,
    with_title,
)
from hdpmf.lab.report.figures import figure_files
from hdpmf.lab.report.overview import overview
from hdpmf.lab.report.page import Page, ReportFiles, make_folders, write_files
from hdpmf.lab.report.tables import (
    claims_section,
    environment_section,
    error_table,
    runs_section,
    tuning_section,
)

_BOLD = (
    "Bold number means HDPMF outperforms PDPMF on the average. $^{***}$ means HDPMF outperforms "
    "PDPMF at 99\\% confidence level in a two-sided paired t-test, $^{**}$ means 95\\%, $^{*}$ "
    "means 90\\%."
)

_PUBLIC = (
    "HDP-Sum and HDP-Bit use the public genres and years of MovieLens' films; "
    "without them: table\\_no\\_features."
)


def paper_csv(content: Content) -> dict[str, bytes]:
    """Return all experiments, with the paper's numbers in Table III, and Tables I and II."""
    tests = duels(content.cells.get("table3", []))

    def beside(cell: Cell) -> dict[str, object]:
        row: dict[str, object] = {}
        for metric in METRIC_LABELS:
            marked = mark_of(cell, metric)
            for field in ("mean", "std", "stars"):
                row[f"paper_{metric}_{field}"] = (
                    None if marked is None else getattr(marked.published, field)
                )
            row[f"{metric}_mark"] = None if marked is None else marked.mark
            duel = (
                tests.get((metric, cell.dataset, cell.factors)) if cell.method == "hdpmf" else None
            )
            row[f"{metric}_p_hdpmf_pdpmf"] = None if duel is None else duel.test.p
            row[f"{metric}_stars"] = None if duel is None else duel.test.stars
        return row

    files = csv_files(content, {"table3": beside})
    if files.pop("datasets.csv", None) is not None:
        files["table1.csv"] = _table1_csv(content)
    head = ("side", "group", "ratio_name", "ratio", "weight_name", "low", "high")
    files["table2.csv"] = to_csv(
        head, [[getattr(row, name) for name in head] for row in privacy_groups()]
    )
    return files


def _table1_csv(content: Content) -> bytes:
    printed = {row.dataset: row for row in published.table1()}
    fields = ("users", "items", "ratings", "density")
    rows = []
    for name, facts in content.datasets.items():
        paper = printed.get(name)
        theirs = [None if paper is None else getattr(paper, field) for field in fields]
        slips = None if paper is None else "; ".join(paper.slips)
        rows.append((name, facts["title"], *(facts[field] for field in fields), *theirs, slips))
    return to_csv(
        ("dataset", "title", *fields, *(f"paper_{field}" for field in fields), "paper_slips"), rows
    )


def paper_latex(content: Content) -> dict[str, bytes]:
    """Return the tables in the paper's layout."""
    tables = {"table2": _table2_latex()}
    if content.datasets:
        tables["table1"] = statistics_latex(content)
    for name, cells in content.cells.items():
        experiment = content.experiments[name]
        if experiment.kind == "table" and experiment.errors:
            note = _PUBLIC if name == "table3" else ""
            # Only a table with both has something to say about the one against the other.
            emphasis, rule = (
                (_ahead(cells), _BOLD) if duels(cells) else (lowest_bold(cells), LOWEST)
            )
            added = bool(experiment.paper_methods)
            tables[name] = accuracy_latex(experiment, cells, emphasis, rule, note=note, added=added)
    return to_files(tables | list_tables(content))


def _ahead(cells: list[Cell]) -> Emphasis:
    """Emphasize HDPMF where it is ahead of PDPMF."""
    tests = duels(cells)

    def emphasis(cell: Cell, metric: str) -> tuple[bool, int]:
        duel = tests.get((metric, cell.dataset, cell.factors)) if cell.method == "hdpmf" else None
        return (False, 0) if duel is None else (duel.gain > 0, duel.test.stars)

    return emphasis


def _table2_latex() -> str:
    groups = []
    for side in ("user", "item"):
        rows = []
        for row in privacy_groups():
            if row.side != side:
                continue
            weights = plain(row.low)
            if row.low != row.high:
                weights = f"[{weights},{plain(row.high)})"
            ratio = [f"${_formula(row.ratio_name)}$", f"${plain(row.ratio)}$"]
            weight = [f"${_formula(row.weight_name)}$", f"${weights}$"]
            rows.append([escape(row.group[:3]), *ratio, *weight])
        groups.append(with_title(side, rows))
    return latex_table(
        "llllll",
        ["& group & ratio & default & weight & default \\\\"],
        groups,
        caption="Privacy specification parameters and their default values. con, mod, lib mean "
        "conservative, moderate and liberal.",
        label="privacy",
        environment="table",
        position="htbp",
    )


def _formula(text: str) -> str:
    """Return names such as epsilon_uc as LaTeX formulas."""
    words = text.replace("epsilon", "\\epsilon")
    for low in ("uc", "um", "ul", "ic", "im", "il"):
        words = words.replace(f"_{low}", f"_{{{low}}}")
    return words


_SIGNS = {
    "reproduced": "✓",
    "close": "≈",
    "different": "✗",
    "not comparable": "–",
    "diverged": "∞",
    "failed": "!",
    "incomplete": "…",
    "not run": "○",
}


def table3_section(content: Content) -> Section:
    """Return Table III, our numbers over the paper's."""
    cells = content.cells.get("table3")
    facts: dict[str, Any] = {"errors": None}
    if cells:
        facts = {
            "errors": error_table(content, content.experiments["table3"]),
            "counts": count_marks(content),
            "duels": duels(cells),
            "mark_of": mark_of,
            "signs": _SIGNS,
        }
    title = "Table III: accuracy at the default privacy wishes"
    return Section("Table III", title, "table3.html", facts)


def order_section(content: Content) -> Section:
    """Return where the paper's order of methods holds, and where it does not."""
    facts = {
        "statements": statements(content),
        "reversals": reversals(content),
        "comparable": any(paper_pairs(content)),
        "duels": list(duels(content.cells.get("table3", [])).values()),
    }
    title = "Does the paper's order of methods hold?"
    return Section("Order of methods", title, "order.html", facts)


def facts_section() -> Section:
    """Return Tables I and II."""
    facts = {
        "printed": {row.dataset: msgspec.to_builtins(row) for row in published.table1()},
        "printed_shares": published.table2(),
        "groups": privacy_groups(),
        "names": _split_names,
    }
    title = "Tables I and II: data sets and privacy wishes"
    return Section("Tables I and II", title, "facts.html", facts)


def _split_names(formula: str) -> list[str]:
    return re.findall(r"\w+|\W+", formula)


TITLE = "HDPMF: the paper's evaluation, run again"

_CAPTIONS = {
    "figure_epsilon_uc": "Conservative users draw their weights from this value up: further right, "
    "they ask for less.",
    "figure_f_uc": "Further right, more users are conservative and the guarantees asked for are "
    "stronger overall.",
    "figure_sparsity": "Each user keeps this share of the training ratings; one rating per user is "
    "the test.",
    "figure_ablation": "HDPMF-R predicts without bringing stretched ratings back to scale.",
    "table_no_features": "In Table III and the other figures HDP-Sum and HDP-Bit use what is "
    "public about items, where a data set has it (genres and years of MovieLens' films). Here they "
    "do not.",
    "figure_epsilon": "Nominal and proved budgets share this axis but not their meaning: the "
    "legend says which is which.",
}

_FIGURES = {
    "figure_epsilon_uc": "smallest weight of conservative users",
    "figure_f_uc": "share of conservative users",
    "figure_sparsity": "sparsity",
    "figure_ablation": "ablation",
    "figure_epsilon": "accuracy against epsilon",
}


def write_paper_report(
    results: str | PathLike[str], out: str | PathLike[str]
) -> tuple[ReportFiles, dict[str, int]]:
    """Write the paper's report on a results folder (see `hdpmf.lab.report.write_report`).

    Returns:
        The written report, and how many numbers of Table III got each mark.
    """
    content = read_content(results, NAMES)
    make_folders(out)
    figures = figure_files(content, [*charts(content), *list_experiments(content)])
    written = write_files(
        out, content, paper_page(content), paper_csv(content), paper_latex(content), figures
    )
    return written, count_marks(content)


def paper_page(content: Content) -> Page:
    """Return the page about the paper."""
    shown = charts(content)
    absent = [
        f"Not run here: the figure of {words} ({name})."
        for name, words in _FIGURES.items()
        if name not in content.experiments
    ]
    missing = "Not run here: it takes the runs of figure_epsilon."
    return Page(
        kind="hdpmf reproduction report",
        title=TITLE,
        overview=overview(content),
        headline=paper_headline(content),
        findings=paper_findings(content),
        sections={
            "table3": table3_section(content),
            "lists": lists_section(content),
            "epsilon": claims_section(content),
            "honest": honest_section(content, missing),
            "order": order_section(content),
            "figures": figures_section(content, shown, _CAPTIONS, absent),
            "facts": facts_section(),
            "tuning": tuning_section(content),
            "again": environment_section(content),
            "runs": runs_section(content),
        },
        charts=chart_data(content, shown),
        package="hdpmf.lab.paper",
    )


def charts(content: Content) -> list[Experiment]:
    """Return the experiments with figures of errors; Table III and lists have their sections."""
    experiments = content.experiments.values()
    return [one for one in experiments if one.errors and one.name != "table3"]
