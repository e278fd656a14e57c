"""LaTeX tables; they need the packages booktabs and multirow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hdpmf.experiments import Cell, Experiment
from hdpmf.report.content import Content
from hdpmf.report.numbers import METRIC_LABELS, density, four
from hdpmf.report.pieces import slug
from hdpmf.report.table_sections import lowest

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
_HEAD = "% Written by hdpmf; needs \\usepackage{booktabs,multirow}.\n"

Emphasis = Callable[[Cell, str], tuple[bool, int]]
"""Whether a cell's number for a measure is bold, and its stars."""


LOWEST = "Bold is the lowest error of its data set and K."


def latex_files(content: Content) -> dict[str, bytes]:
    """File names and contents: the data sets, and every table with its lowest errors in bold."""
    tables = {"datasets": statistics_table(content)} if content.datasets else {}
    for name in content.cells:
        experiment = content.experiments[name]
        cells = content.error_cells(experiment)
        if experiment.kind == "table" and experiment.errors:
            tables[name] = accuracy_table(experiment, cells, lowest_bold(cells), LOWEST)
    return to_files(tables)


def to_files(tables: Mapping[str, str]) -> dict[str, bytes]:
    """Tables by name as files."""
    return {f"{name}.tex": (_HEAD + text).encode() for name, text in tables.items()}


def lowest_bold(cells: list[Cell]) -> Emphasis:
    """The lowest error of each data set and K."""
    best = lowest(cells)
    return lambda cell, metric: ((metric, cell.dataset, cell.method, cell.factors) in best, 0)


def escape(text: str) -> str:
    """Text that LaTeX prints as it is; control characters fall away."""
    return "".join(_SPECIAL.get(char, char) for char in text if char.isprintable())


def accuracy_table(
    experiment: Experiment,
    cells: list[Cell],
    emphasis: Emphasis,
    rule: str,
    *,
    note: str = "",
    added: bool = False,
) -> str:
    """Methods down, measures and K across.

    The caption explains what is in the table and nothing else: ``rule`` says what is bold, ``note`` ends it. With
    ``added``, methods that the paper does not show have a dagger.
    """
    factors = experiment.factors
    columns = [(metric, k) for metric in METRIC_LABELS for k in factors]
    width = len(factors)
    spans = [f"\\multicolumn{{{width}}}{{c}}{{{label}}}" for label in METRIC_LABELS.values()]
    rules = [f"\\cmidrule(lr){{{3 + i * width}-{2 + (i + 1) * width}}}" for i in range(len(METRIC_LABELS))]
    heads = " & ".join(f"\\multicolumn{{1}}{{c}}{{K={k}}}" for _, k in columns)
    reduced = " (reduced run)" if experiment.quick else ""
    marks = _marks_explained(cells, added=added)
    parts = [f"{escape(experiment.title)}: {repeated('MSE and MAE', experiment)}{reduced}.", rule, marks, note]
    caption = " ".join(filter(None, parts))
    lines = [
        "\\begin{table*}[htb!]", "  \\centering", f"  \\caption{{{caption}}}",
        f"  \\begin{{tabular}}{{c|c|{'l' * len(columns)}}}", "    \\toprule",
        "    \\multicolumn{2}{c}{metrics} & " + " & ".join(spans) + " \\\\",
        "    " + " ".join(rules),
        f"    \\multicolumn{{2}}{{c}}{{dimension}} & {heads} \\\\",
    ]  # fmt: skip
    for dataset in experiment.datasets:
        here = [cell for cell in cells if cell.dataset == dataset]
        methods = list(dict.fromkeys(cell.method for cell in here))
        lines.append("    \\midrule")
        for position, method in enumerate(methods):
            mine = {cell.factors: cell for cell in here if cell.method == method}
            title = f"\\multirow{{{len(methods)}}}{{*}}{{{escape(here[0].dataset_title)}}}" if position == 0 else ""
            numbers = []
            for metric, k in columns:
                strong, stars = emphasis(mine[k], metric)
                numbers.append(_number(mine[k], metric, strong=strong, stars=stars))
            name = _name(next(iter(mine.values())), added=added)
            lines.append(f"    {title} & {name} & {' & '.join(numbers)} \\\\")
    lines += [
        "    \\bottomrule",
        "  \\end{tabular}",
        f"  \\label{{tab:{slug(experiment.name.replace('_', '-'))}}}",
        "\\end{table*}",
        "",
    ]
    return "\n".join(lines)


def repeated(measures: str, experiment: Experiment) -> str:
    """What the numbers of a table are, over the seeds."""
    seeds = len(experiment.seeds)
    return (
        f"{measures} of one evaluation" if seeds == 1 else f"mean and deviation of {measures} over {seeds} evaluations"
    )


def _marks_explained(cells: list[Cell], *, added: bool) -> str:
    """What the marks at names mean, of those that are there."""
    statuses = {cell.claim.status for cell in cells if cell.claim is not None}
    words = {"nominal": "no mark: $\\epsilon$ is nominal", "proved": "$^\\ddagger$ $\\epsilon$ is proved"}
    words["none"] = "$^\\S$ no privacy"
    parts = [text for status, text in words.items() if status in statuses]
    if added and not all(cell.in_paper for cell in cells):
        parts.append("$^\\dagger$ not in the paper")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _name(cell: Cell, *, added: bool) -> str:
    status = "" if cell.claim is None else cell.claim.status
    marks = ("\\dagger" if added and not cell.in_paper else "") + {"proved": "\\ddagger", "none": "\\S"}.get(status, "")
    return escape(cell.label) + (f"$^{{{marks}}}$" if marks else "")


def _number(cell: Cell, metric: str, *, strong: bool, stars: int) -> str:
    summary = cell.metrics[metric]
    if cell.status in ("diverged", "failed"):
        return f"\\textit{{{cell.status}}}"
    if not summary.values:
        return "\\textit{not run}"
    text = four(summary.mean)
    if math.isfinite(summary.std):
        text += f" $\\pm$ {four(summary.std)}"
    if stars:
        text += f"$^{{{'*' * stars}}}$"
    if cell.status == "missing":
        text += f" ({len(summary.values)} of {len(cell.run_ids)} seeds)"
    return f"\\textbf{{{text}}}" if strong else text


def statistics_table(content: Content) -> str:
    """The counts of the data sets."""
    lines = [
        "\\begin{table}[tb!]", "  \\centering", "  \\caption{Statistics of datasets}",
        "  \\begin{tabular}{lllll}", "    \\toprule",
        "    Dataset & \\#users & \\#items & \\#ratings & density \\\\", "    \\midrule",
    ]  # fmt: skip
    for facts in content.datasets.values():
        counts = " & ".join(f"{facts[key]:,}" for key in ("users", "items", "ratings"))
        lines.append(f"    {escape(str(facts['title']))} & {counts} & {density(facts['density'])} \\\\")
    lines += ["    \\bottomrule", "  \\end{tabular}", "  \\label{statistics}", "\\end{table}", ""]
    return "\n".join(lines)
