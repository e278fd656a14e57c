"""Lists as a LaTeX table."""

from __future__ import annotations

import math

from hdpmf.experiments import Cell
from hdpmf.report.content import Content
from hdpmf.report.latex import escape, repeated
from hdpmf.report.lists import highest, list_experiments, table_cells, table_point
from hdpmf.report.numbers import NDCG, four, plain
from hdpmf.report.pieces import guarantee, slug

_COLUMNS = {NDCG: "NDCG@10", "recall_at_10": "Recall@10", "coverage_at_10": "Coverage@10"}


def list_tables(content: Content) -> dict[str, str]:
    """By name: the lists of every experiment that measures them, in the order of data sets and methods."""
    tables = {}
    for experiment in list_experiments(content):
        x = table_point(experiment)
        varied = "" if x is None or experiment.vary is None else f", {escape(experiment.vary.parameter)} = {plain(x)}"
        best_of = "data set and K" if len(experiment.factors) > 1 else "data set"
        caption = (
            f"{escape(experiment.title)}{varied}: {repeated('lists of ten', experiment)}. Lists are the ten items "
            "that come first of all with a training rating that the user has not "
            f"rated; relevant are test ratings in the top quarter of the scale. Bold is the best of its {best_of}."
        )
        lines = [
            "\\begin{table*}[htb!]", "  \\centering", f"  \\caption{{{caption}}}",
            f"  \\begin{{tabular}}{{c|l|l|{'l' * len(_COLUMNS)}}}", "    \\toprule",
            f"    data & method & guarantee & {' & '.join(_COLUMNS.values())} \\\\",
        ]  # fmt: skip
        shown = table_cells(content, experiment)
        for dataset in experiment.datasets:
            for k in experiment.factors:
                here = [cell for cell in shown if (cell.dataset, cell.factors) == (dataset, k)]
                best = highest(here)
                if here:
                    lines.append("    \\midrule")
                for position, cell in enumerate(here):
                    title = f"{cell.dataset_title}, K={k}" if len(experiment.factors) > 1 else cell.dataset_title
                    first = f"\\multirow{{{len(here)}}}{{*}}{{{escape(title)}}}" if position == 0 else ""
                    numbers = " & ".join(_number(cell, metric, strong=cell is best) for metric in _COLUMNS)
                    lines.append(f"    {first} & {escape(cell.label)} & {escape(guarantee(cell))} & {numbers} \\\\")
        lines += ["    \\bottomrule", "  \\end{tabular}", f"  \\label{{tab:{slug(experiment.name)}-lists}}"]
        tables[f"{experiment.name}_lists"] = "\n".join([*lines, "\\end{table*}", ""])
    return tables


def _number(cell: Cell, metric: str, *, strong: bool) -> str:
    summary = cell.summary(metric)
    if not summary.values or not math.isfinite(summary.mean):
        return "--"
    text = four(summary.mean) + (f" $\\pm$ {four(summary.std)}" if math.isfinite(summary.std) else "")
    return f"\\textbf{{{text}}}" if strong and metric == NDCG else text
