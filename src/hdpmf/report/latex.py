"""LaTeX tables in the paper's layout; they need the packages booktabs and multirow."""

from __future__ import annotations

import math

from hdpmf.experiments import Cell, compare, table2
from hdpmf.report.content import Content, list_metrics
from hdpmf.report.numbers import METRIC_LABELS, RANKING_LABELS, density, four, plain
from hdpmf.report.pieces import slug

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
_LISTS = (
    " NDCG, recall and coverage (averages) are of the ten items that a user would be shown first: all items with a "
    "training rating that the user has not rated, by predicted rating; relevant are test ratings in the top quarter of "
    "the scale; coverage is the share of items in anybody's ten; -- where a method predicts the same for every item "
    "or nothing was measured."
)
_PUBLIC = (
    " HDP-Sum and HDP-Bit use the public genres and years of MovieLens' films; without them: table\\_no\\_features."
)
_HEAD = "% Written by hdpmf paper report; needs \\usepackage{booktabs,multirow}.\n"


def latex_files(content: Content) -> dict[str, bytes]:
    """File names and contents."""
    files = {"table2.tex": _table2()}
    if content.datasets:
        files["table1.tex"] = _table1(content)
    for name, cells in content.cells.items():
        if content.experiments[name].kind == "table":
            files[f"{name}.tex"] = accuracy_table(content, name, cells)
    return {name: (_HEAD + text).encode() for name, text in files.items()}


def escape(text: str) -> str:
    """Text that LaTeX prints as it is; control characters fall away."""
    return "".join(_SPECIAL.get(char, char) for char in text if char.isprintable())


def accuracy_table(content: Content, name: str, cells: list[Cell]) -> str:
    """A table like the paper's Table III, with every method that was run."""
    experiment = content.experiments[name]
    factors = experiment.factors
    lists = list_metrics(cells)
    labels = {**METRIC_LABELS, **{metric: RANKING_LABELS[metric] for metric in lists}}
    columns = [(metric, k) for metric in labels for k in factors]
    tests = {metric: compare(cells, "hdpmf", "pdpmf", metric) for metric in METRIC_LABELS}
    width = len(factors)
    spans = [f"\\multicolumn{{{width}}}{{c}}{{{label}}}" for label in labels.values()]
    rules = [f"\\cmidrule(lr){{{3 + i * width}-{2 + (i + 1) * width}}}" for i in range(len(labels))]
    heads = " & ".join(f"\\multicolumn{{1}}{{c}}{{K={k}}}" for _, k in columns)
    seeds = len(experiment.seeds)
    caption = (
        f"Average and standard deviation of MSE and MAE on {seeds} repeated evaluations"
        + (" (reduced run)" if experiment.quick else "")
        + ". Bold number means HDPMF outperforms PDPMF on the average. $^{***}$ means HDPMF outperforms PDPMF at 99\\% "
        "confidence level in a two-sided paired t-test, $^{**}$ means 95\\%, $^{*}$ means 90\\%. $^\\dagger$ not in "
        "the paper. $\\epsilon$ is nominal, except $^\\ddagger$ proved, $^\\S$ no privacy at all."
        + (_PUBLIC if name == "table3" else "")
        + (_LISTS if lists else "")
    )
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
                if metric in lists:
                    numbers.append(_of_lists(mine[k], metric))
                    continue
                test = tests[metric].get((dataset, k, None)) if method == "hdpmf" else None
                ahead = test is not None and test.difference < 0
                numbers.append(_number(mine[k], metric, strong=ahead, stars=0 if test is None else test.stars))
            lines.append(f"    {title} & {_name(next(iter(mine.values())))} & {' & '.join(numbers)} \\\\")
    lines += [
        "    \\bottomrule",
        "  \\end{tabular}",
        f"  \\label{{tab:{slug(name.replace('_', '-'))}}}",
        "\\end{table*}",
        "",
    ]
    return "\n".join(lines)


def _name(cell: Cell) -> str:
    status = "" if cell.claim is None else cell.claim.status
    marks = ("" if cell.in_paper else "\\dagger") + {"proved": "\\ddagger", "none": "\\S"}.get(status, "")
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


def _of_lists(cell: Cell, metric: str) -> str:
    """Without its deviation, for which a page is not wide enough; it is in the CSV file."""
    summary = cell.metrics.get(metric)
    return "--" if summary is None or not math.isfinite(summary.mean) else four(summary.mean)


def _table1(content: Content) -> str:
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


def _table2() -> str:
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
