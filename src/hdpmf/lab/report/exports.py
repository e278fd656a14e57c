"""Results as CSV files and LaTeX tables, which need the packages booktabs and multirow."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from hdpmf.lab.experiments import Cell, Experiment, Summary
from hdpmf.lab.experiments.store import METRICS
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    NDCG,
    Content,
    by_dataset,
    counts,
    four,
    guarantee,
    highest,
    list_metrics,
    lowest,
    slug,
    table_place,
)
from hdpmf.lab.report.tables import HONEST_FIGURE, RATERS, Point, points

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}

_HEAD = "% Written by hdpmf; needs \\usepackage{booktabs,multirow}.\n"

Emphasis = Callable[[Cell, str], tuple[bool, int]]
"""Whether a cell's number for a measure is bold, and its stars."""


LOWEST = "Bold is the lowest error of its data set and K."


def latex_files(content: Content) -> dict[str, bytes]:
    """Return the data sets, and every table with its lowest errors in bold, by file name."""
    tables = {"datasets": statistics_latex(content)} if content.datasets else {}
    for experiment in content.with_runs:
        cells = content.error_cells(experiment)
        if cells and experiment.kind == "table" and experiment.errors:
            tables[experiment.name] = accuracy_latex(experiment, cells, lowest_bold(cells), LOWEST)
    return to_files(content, tables)


def to_files(content: Content, tables: Mapping[str, str]) -> dict[str, bytes]:
    """Return tables, and those of lists, as files."""
    lists = {f"{one.name}_lists": _lists_latex(content, one) for one in content.with_lists}
    return {f"{name}.tex": (_HEAD + text).encode() for name, text in {**tables, **lists}.items()}


def lowest_bold(cells: list[Cell]) -> Emphasis:
    """Emphasize the lowest error of each data set and K."""
    best = lowest(cells)
    return lambda cell, metric: ((metric, cell.dataset, cell.method, cell.factors) in best, 0)


def escape(text: str) -> str:
    """Escape text for LaTeX; control characters are dropped."""
    return "".join(_SPECIAL.get(char, char) for char in text if char.isprintable())


def latex_table(
    columns: str,
    heads: Iterable[str],
    groups: Iterable[Iterable[Sequence[str]]],
    *,
    caption: str,
    label: str,
    environment: str = "table*",
    position: str = "htb!",
) -> str:
    """Return a table: lines of its head, then groups of rows with a rule above each."""
    lines = [
        f"\\begin{{{environment}}}[{position}]",
        "  \\centering",
        f"  \\caption{{{caption}}}",
        f"  \\begin{{tabular}}{{{columns}}}",
        "    \\toprule",
        *(f"    {head}" for head in heads),
    ]
    for rows in groups:
        lines.append("    \\midrule")
        lines += [f"    {' & '.join(row)} \\\\" for row in rows]
    lines += ["    \\bottomrule", "  \\end{tabular}", f"  \\label{{{label}}}"]
    return "\n".join([*lines, f"\\end{{{environment}}}", ""])


def with_title(title: str, rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return rows with a first column that one title fills."""
    first = f"\\multirow{{{len(rows)}}}{{*}}{{{title}}}"
    return [[first if n == 0 else "", *row] for n, row in enumerate(rows)]


def accuracy_latex(
    experiment: Experiment,
    cells: list[Cell],
    emphasis: Emphasis,
    rule: str,
    *,
    note: str = "",
    added: bool = False,
) -> str:
    """Return a table with methods down, measures and K across.

    The caption explains what is in the table and nothing else: ``rule`` says what is bold, ``note``
    ends it. With ``added``, methods that the paper does not show have a dagger.
    """
    width = len(experiment.factors)
    spans = [f"\\multicolumn{{{width}}}{{c}}{{{label}}}" for label in METRIC_LABELS.values()]
    rules = [
        f"\\cmidrule(lr){{{3 + i * width}-{2 + (i + 1) * width}}}"
        for i in range(len(METRIC_LABELS))
    ]
    factors = [
        f"\\multicolumn{{1}}{{c}}{{K={k}}}" for _ in METRIC_LABELS for k in experiment.factors
    ]
    groups = []
    for methods in by_dataset(cells).values():
        rows = []
        for row in methods.values():
            numbers = [
                _error_latex(cell, metric, *emphasis(cell, metric))
                for metric in METRIC_LABELS
                for cell in row
            ]
            rows.append([_method_name(row[0], added=added), *numbers])
        groups.append(with_title(escape(row[0].dataset_title), rows))
    reduced = " (reduced run)" if experiment.quick else ""
    described = f"{escape(experiment.title)}: {describe_seeds('MSE and MAE', experiment)}{reduced}."
    caption = [described, rule, _marks_explained(cells, added=added), note]
    return latex_table(
        f"c|c|{'l' * len(factors)}",
        [
            f"\\multicolumn{{2}}{{c}}{{metrics}} & {' & '.join(spans)} \\\\",
            " ".join(rules),
            f"\\multicolumn{{2}}{{c}}{{dimension}} & {' & '.join(factors)} \\\\",
        ],
        groups,
        caption=" ".join(filter(None, caption)),
        label=f"tab:{slug(experiment.name.replace('_', '-'))}",
    )


def describe_seeds(measures: str, experiment: Experiment) -> str:
    """Describe the numbers of a table."""
    seeds = len(experiment.seeds)
    if seeds == 1:
        return f"{measures} of one evaluation"
    return f"mean and deviation of {measures} over {seeds} evaluations"


_MARKS = {
    "nominal": ("", "no mark: $\\epsilon$ is nominal"),
    "author's claim": ("\\P", "$^\\P$ $\\epsilon$ is claimed by the method's author"),
    "proved": ("\\ddagger", "$^\\ddagger$ $\\epsilon$ is proved"),
    "none": ("\\S", "$^\\S$ no privacy"),
}
"""The mark of a method by the status of its epsilon, and its explanation."""


def _marks_explained(cells: list[Cell], *, added: bool) -> str:
    statuses = {cell.claim.status for cell in cells if cell.claim is not None}
    parts = [text for status, (_, text) in _MARKS.items() if status in statuses]
    if added and not all(cell.in_paper for cell in cells):
        parts.append("$^\\dagger$ not in the paper")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _method_name(cell: Cell, *, added: bool) -> str:
    marks = "\\dagger" if added and not cell.in_paper else ""
    if cell.claim is not None and cell.claim.status in _MARKS:
        marks += _MARKS[cell.claim.status][0]
    return escape(cell.label) + (f"$^{{{marks}}}$" if marks else "")


def _error_latex(cell: Cell, metric: str, strong: bool, stars: int) -> str:
    if cell.status in ("diverged", "failed"):
        return f"\\textit{{{cell.status}}}"
    summary = cell.metrics[metric]
    if not summary.values:
        return "\\textit{not run}"
    text = _with_deviation(summary)
    if stars:
        text += f"$^{{{'*' * stars}}}$"
    if cell.status == "missing":
        text += f" ({len(summary.values)} of {len(cell.run_ids)} seeds)"
    return f"\\textbf{{{text}}}" if strong else text


def _with_deviation(summary: Summary) -> str:
    deviation = f" $\\pm$ {four(summary.std)}" if math.isfinite(summary.std) else ""
    return four(summary.mean) + deviation


def statistics_latex(content: Content) -> str:
    """Return the counts of the data sets."""
    facts = content.datasets.values()
    return latex_table(
        "lllll",
        ["Dataset & \\#users & \\#items & \\#ratings & density \\\\"],
        [[[escape(str(row["title"])), *counts(row)] for row in facts]],
        caption="Statistics of datasets",
        label="statistics",
        environment="table",
        position="tb!",
    )


_LIST_COLUMNS = {NDCG: "NDCG@10", "recall_at_10": "Recall@10", "coverage_at_10": "Coverage@10"}


def _lists_latex(content: Content, experiment: Experiment) -> str:
    several = len(experiment.factors) > 1
    cells = content.table_cells(experiment)
    groups = []
    for dataset, k in itertools.product(experiment.datasets, experiment.factors):
        here = [cell for cell in cells if (cell.dataset, cell.factors) == (dataset, k)]
        best = highest(here)
        rows = [
            [
                escape(cell.label),
                escape(guarantee(cell)),
                *(_list_latex(cell, m, strong=cell is best) for m in _LIST_COLUMNS),
            ]
            for cell in here
        ]
        if rows:
            title = here[0].dataset_title + (f", K={k}" if several else "")
            groups.append(with_title(escape(title), rows))
    described = (
        f"{escape(experiment.title + table_place(experiment))}: "
        f"{describe_seeds('lists of ten', experiment)}"
    )
    caption = (
        f"{described}. Lists are the ten items that come first of all with a training rating that "
        "the user has not rated; relevant are test ratings in the top quarter of the scale. Bold "
        f"is the best of its {'data set and K' if several else 'data set'}."
    )
    return latex_table(
        f"c|l|l|{'l' * len(_LIST_COLUMNS)}",
        [f"data & method & guarantee & {' & '.join(_LIST_COLUMNS.values())} \\\\"],
        groups,
        caption=caption,
        label=f"tab:{slug(experiment.name)}-lists",
    )


def _list_latex(cell: Cell, metric: str, *, strong: bool) -> str:
    summary = cell.summary(metric)
    if not math.isfinite(summary.mean):
        return "--"
    text = _with_deviation(summary)
    return f"\\textbf{{{text}}}" if strong and metric == NDCG else text


MoreColumns = Callable[[Cell], dict[str, object]]
"""Further columns of an experiment's file, the same for every cell."""


def csv_files(content: Content, more: Mapping[str, MoreColumns] | None = None) -> dict[str, bytes]:
    """Return files by name; ``more`` are further columns of some experiments, by name."""
    more = more or {}
    files = {
        f"{name}.csv": _cells_csv(content, content.experiments[name], more.get(name))
        for name in content.cells
    }
    if content.datasets:
        files["datasets.csv"] = _datasets_csv(content)
    if shown := points(content):
        files[f"{HONEST_FIGURE}.csv"] = _honest_csv(shown)
    if content.tuned:
        files["hyperparameters.csv"] = _grids_csv(content)
    return files


def _cells_csv(content: Content, experiment: Experiment, more: MoreColumns | None) -> bytes:
    cells = content.cells[experiment.name]
    paper = any(one.paper_methods for one in content.experiments.values())
    chosen = list(dict.fromkeys(key for cell in cells for key in cell.hyperparameters))
    ranked = list_metrics(cells) if experiment.lists else []
    by_seed = [*METRIC_LABELS, *(metric for metric in ranked if metric == NDCG)]
    rows = []
    for cell in cells:
        row: dict[str, object] = {
            name: getattr(cell, name)
            for name in ("experiment", "dataset", "dataset_title", "method", "label")
        }
        if paper:
            row["in_paper"] = str(cell.in_paper).lower()
        row |= {"factors": cell.factors, "x": cell.x, "status": cell.status}
        row |= _summaries(cell, METRICS) | {key: cell.hyperparameters.get(key) for key in chosen}
        row |= {
            "epsilon": cell.claim and cell.claim.epsilon,
            "epsilon_status": cell.claim and cell.claim.status,
            "epsilon_view": cell.claim and cell.claim.view,
        }
        row |= (more(cell) if more is not None else {}) | _summaries(cell, ranked)
        runs = dict(itertools.zip_longest(experiment.seeds, cell.run_ids))
        for metric in by_seed:
            for seed, run in runs.items():
                result = content.results.get(run or "")
                row[f"{metric}_seed_{seed}"] = None if result is None else result.metric(metric)
        rows.append(row | {f"run_seed_{seed}": run for seed, run in runs.items()})
    return to_csv(rows)


def _summaries(cell: Cell, metrics: Iterable[str]) -> dict[str, object]:
    row: dict[str, object] = {}
    for metric in metrics:
        summary = cell.summary(metric)
        row |= {f"{metric}_mean": summary.mean, f"{metric}_std": summary.std}
    return row


def _datasets_csv(content: Content) -> bytes:
    head = ("title", "users", "items", "ratings", "density")
    return to_csv(
        [
            {"dataset": name, **{key: facts[key] for key in head}}
            for name, facts in content.datasets.items()
        ]
    )


def _honest_csv(shown: Iterable[Point]) -> bytes:
    """Return the numbers of accuracy against honest epsilon."""
    return to_csv(
        [
            {
                "dataset": point.cell.dataset,
                "method": point.cell.method,
                "label": point.cell.label,
                "factors": point.cell.factors,
                # A level has no epsilon of its own: any nominal one gives the same run.
                "nominal_epsilon": None if point.x is None else point.cell.x,
                "view": point.cost.view,
                "honest_epsilon": point.cost.epsilon_at_delta,
                "delta": point.cost.delta,
                "honest_pure_epsilon": point.cost.pure,
                "honest_status": point.cost.status,
                "covers": point.cost.covers,
                "n_raters": RATERS,
                "status": point.cell.status,
                **_summaries(point.cell, METRIC_LABELS),
            }
            for point in shown
        ]
    )


def _grids_csv(content: Content) -> bytes:
    rows = [(tuned, row) for tuned in content.tuned for row in tuned.grid]
    names = list(dict.fromkeys(key for _, row in rows for key in row.values))
    folds = range(max(len(row.run_ids) for _, row in rows))
    return to_csv(
        [
            {
                "experiments": " ".join(tuned.experiments),
                **tuned.configuration._asdict(),
                **{name: row.values.get(name) for name in names},
                "status": row.status,
                "chosen": str(tuned.is_best(row)).lower(),
                "mse_mean": row.mse,
                "mae_mean": row.mae,
                "ndcg_at_10_mean": row.ndcg,
                **{f"run_fold_{n}": run for n, run in itertools.zip_longest(folds, row.run_ids)},
            }
            for tuned, row in rows
        ]
    )


def to_csv(rows: Sequence[Mapping[str, object]]) -> bytes:
    """Return a CSV file with numbers in full; unknown ones are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0] if rows else [])
    writer.writerows([map(_field, row.values()) for row in rows])
    return text.getvalue().encode()


def _field(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    # A spreadsheet would take a name that begins like this for a formula.
    formula = isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{text}" if formula else text
