"""The paper's own columns and tables as CSV and LaTeX."""

from __future__ import annotations

from hdpmf.experiments import Cell
from hdpmf.paper import published
from hdpmf.paper.findings import mark_of
from hdpmf.paper.ordering import duels
from hdpmf.paper.wishes import table2
from hdpmf.report.content import Content
from hdpmf.report.csv_files import csv_files, to_csv
from hdpmf.report.latex import LOWEST, Emphasis, accuracy_table, escape, lowest_bold, statistics_table, to_files
from hdpmf.report.list_latex import list_tables
from hdpmf.report.numbers import METRIC_LABELS, plain

_BOLD = (
    "Bold number means HDPMF outperforms PDPMF on the average. $^{***}$ means HDPMF outperforms PDPMF at 99\\% "
    "confidence level in a two-sided paired t-test, $^{**}$ means 95\\%, $^{*}$ means 90\\%."
)
_PUBLIC = (
    "HDP-Sum and HDP-Bit use the public genres and years of MovieLens' films; without them: table\\_no\\_features."
)


def paper_csv(content: Content) -> dict[str, bytes]:
    """Every experiment, Table III beside the paper's numbers; Tables I and II."""
    tests = duels(content.cells.get("table3", []))

    def beside(cell: Cell) -> dict[str, object]:
        row: dict[str, object] = {}
        for metric in METRIC_LABELS:
            marked = mark_of(cell, metric)
            for field in ("mean", "std", "stars"):
                row[f"paper_{metric}_{field}"] = None if marked is None else getattr(marked.published, field)
            row[f"{metric}_mark"] = None if marked is None else marked.mark
            duel = tests.get((metric, cell.dataset, cell.factors)) if cell.method == "hdpmf" else None
            row[f"{metric}_p_hdpmf_pdpmf"] = None if duel is None else duel.test.p
            row[f"{metric}_stars"] = None if duel is None else duel.test.stars
        return row

    files = csv_files(content, {"table3": beside})
    if files.pop("datasets.csv", None) is not None:
        files["table1.csv"] = _table1_csv(content)
    head = ("side", "group", "ratio_name", "ratio", "weight_name", "low", "high")
    files["table2.csv"] = to_csv(head, [[getattr(row, name) for name in head] for row in table2()])
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
    return to_csv(("dataset", "title", *fields, *(f"paper_{field}" for field in fields), "paper_slips"), rows)


def paper_latex(content: Content) -> dict[str, bytes]:
    """The tables in the paper's layout."""
    tables = {"table2": _table2_latex()}
    if content.datasets:
        tables["table1"] = statistics_table(content)
    for name, cells in content.cells.items():
        experiment = content.experiments[name]
        if experiment.kind == "table" and experiment.errors:
            note = _PUBLIC if name == "table3" else ""
            # Only a table with both has something to say about the one against the other.
            emphasis, rule = (_ahead(cells), _BOLD) if duels(cells) else (lowest_bold(cells), LOWEST)
            added = bool(experiment.paper_methods)
            tables[name] = accuracy_table(experiment, cells, emphasis, rule, note=note, added=added)
    return to_files(tables | list_tables(content))


def _ahead(cells: list[Cell]) -> Emphasis:
    """HDPMF where it is ahead of PDPMF."""
    tests = duels(cells)

    def emphasis(cell: Cell, metric: str) -> tuple[bool, int]:
        duel = tests.get((metric, cell.dataset, cell.factors)) if cell.method == "hdpmf" else None
        return (False, 0) if duel is None else (duel.gain > 0, duel.test.stars)

    return emphasis


def _table2_latex() -> str:
    lines = [
        "\\begin{table}[htbp]", "  \\centering",
        "  \\caption{Privacy specification parameters and their default values. con, mod, lib mean conservative, "
        "moderate and liberal.}",
        "  \\begin{tabular}{llllll}", "    \\toprule",
        "    & group & ratio & default & weight & default \\\\",
    ]  # fmt: skip
    side = ""
    for row in table2():
        first = ""
        if row.side != side:
            side = row.side
            lines.append("    \\midrule")
            first = f"\\multirow{{3}}{{*}}{{{side}}}"
        weights = plain(row.low) if row.low == row.high else f"[{plain(row.low)},{plain(row.high)})"
        lines.append(
            f"    {first} & {escape(row.group[:3])} & ${_formula(row.ratio_name)}$ & ${plain(row.ratio)}$ & "
            f"${_formula(row.weight_name)}$ & ${weights}$ \\\\"
        )
    lines += ["    \\bottomrule", "  \\end{tabular}", "  \\label{privacy}", "\\end{table}", ""]
    return "\n".join(lines)


def _formula(text: str) -> str:
    """epsilon_uc as LaTeX has it."""
    words = text.replace("epsilon", "\\epsilon")
    for low in ("uc", "um", "ul", "ic", "im", "il"):
        words = words.replace(f"_{low}", f"_{{{low}}}")
    return words
