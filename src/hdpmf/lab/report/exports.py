"""Results as CSV files and LaTeX tables, which need the packages booktabs and multirow."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.experiments.store import METRICS
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    NDCG,
    Content,
    counts,
    four,
    guarantee,
    highest,
    list_experiments,
    list_metrics,
    plain,
    slug,
    table_cells,
    table_point,
)
from hdpmf.lab.report.tables import HONEST_FIGURE, RATERS, Point, lowest, points

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
    for name in content.cells:
        experiment = content.experiments[name]
        cells = content.error_cells(experiment)
        if experiment.kind == "table" and experiment.errors:
            tables[name] = accuracy_latex(experiment, cells, lowest_bold(cells), LOWEST)
    return to_files(tables)


def to_files(tables: Mapping[str, str]) -> dict[str, bytes]:
    """Return tables as files."""
    return {f"{name}.tex": (_HEAD + text).encode() for name, text in tables.items()}


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
    columns = [(metric, k) for metric in METRIC_LABELS for k in experiment.factors]
    width = len(experiment.factors)
    spans = [f"\\multicolumn{{{width}}}{{c}}{{{label}}}" for label in METRIC_LABELS.values()]
    rules = [
        f"\\cmidrule(lr){{{3 + i * width}-{2 + (i + 1) * width}}}"
        for i in range(len(METRIC_LABELS))
    ]
    factors = [f"\\multicolumn{{1}}{{c}}{{K={k}}}" for _, k in columns]
    groups = []
    for dataset in experiment.datasets:
        here = [cell for cell in cells if cell.dataset == dataset]
        rows = []
        for method in dict.fromkeys(cell.method for cell in here):
            mine = {cell.factors: cell for cell in here if cell.method == method}
            numbers = [_error_latex(mine[k], m, *emphasis(mine[k], m)) for m, k in columns]
            rows.append([_method_name(next(iter(mine.values())), added=added), *numbers])
        groups.append(with_title(escape(here[0].dataset_title), rows) if here else [])
    reduced = " (reduced run)" if experiment.quick else ""
    described = f"{escape(experiment.title)}: {describe_seeds('MSE and MAE', experiment)}{reduced}."
    caption = [described, rule, _marks_explained(cells, added=added), note]
    return latex_table(
        f"c|c|{'l' * len(columns)}",
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


def _marks_explained(cells: list[Cell], *, added: bool) -> str:
    statuses = {cell.claim.status for cell in cells if cell.claim is not None}
    words = {
        "nominal": "no mark: $\\epsilon$ is nominal",
        "author's claim": "$^\\P$ $\\epsilon$ is claimed by the method's author",
        "proved": "$^\\ddagger$ $\\epsilon$ is proved",
        "none": "$^\\S$ no privacy",
    }
    parts = [text for status, text in words.items() if status in statuses]
    if added and not all(cell.in_paper for cell in cells):
        parts.append("$^\\dagger$ not in the paper")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _method_name(cell: Cell, *, added: bool) -> str:
    status = "" if cell.claim is None else cell.claim.status
    marks = "\\dagger" if added and not cell.in_paper else ""
    marks += {"proved": "\\ddagger", "none": "\\S", "author's claim": "\\P"}.get(status, "")
    return escape(cell.label) + (f"$^{{{marks}}}$" if marks else "")


def _error_latex(cell: Cell, metric: str, strong: bool, stars: int) -> str:
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


def list_tables(content: Content) -> dict[str, str]:
    """Return a table for every experiment that measures lists, by name."""
    return {
        f"{experiment.name}_lists": _lists_latex(content, experiment)
        for experiment in list_experiments(content)
    }


def _lists_latex(content: Content, experiment: Experiment) -> str:
    several = len(experiment.factors) > 1
    cells = table_cells(content, experiment)
    groups = []
    for dataset, k in itertools.product(experiment.datasets, experiment.factors):
        here = [cell for cell in cells if (cell.dataset, cell.factors) == (dataset, k)]
        best = highest(here)
        rows = []
        for cell in here:
            numbers = [_list_number(cell, m, strong=cell is best) for m in _LIST_COLUMNS]
            rows.append([escape(cell.label), escape(guarantee(cell)), *numbers])
        if rows:
            title = here[0].dataset_title + (f", K={k}" if several else "")
            groups.append(with_title(escape(title), rows))
    x = table_point(experiment)
    varied = ""
    if x is not None and experiment.vary is not None:
        varied = f", {escape(experiment.vary.parameter)} = {plain(x)}"
    described = f"{escape(experiment.title)}{varied}: {describe_seeds('lists of ten', experiment)}"
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


def _list_number(cell: Cell, metric: str, *, strong: bool) -> str:
    summary = cell.summary(metric)
    if not summary.values or not math.isfinite(summary.mean):
        return "--"
    text = four(summary.mean)
    if math.isfinite(summary.std):
        text += f" $\\pm$ {four(summary.std)}"
    return f"\\textbf{{{text}}}" if strong and metric == NDCG else text


MoreColumns = Callable[[Cell], dict[str, object]]
"""Further columns of an experiment's file, the same for every cell."""


def csv_files(content: Content, more: Mapping[str, MoreColumns] | None = None) -> dict[str, bytes]:
    """Return files by name; ``more`` are further columns of some experiments, by name."""
    more = more or {}
    files = {
        f"{name}.csv": _cells_csv(content, cells, more.get(name))
        for name, cells in content.cells.items()
    }
    if content.datasets:
        files["datasets.csv"] = _datasets_csv(content)
    if shown := points(content):
        files[f"{HONEST_FIGURE}.csv"] = _honest_csv(shown)
    if content.tuned:
        files["hyperparameters.csv"] = _grids_csv(content)
    return files


def _cells_csv(content: Content, cells: list[Cell], more: MoreColumns | None) -> bytes:
    experiment = content.experiments[cells[0].experiment] if cells else None
    seeds = () if experiment is None else experiment.seeds
    chosen = list(dict.fromkeys(key for cell in cells for key in cell.hyperparameters))
    ranked = list_metrics(cells) if experiment is not None and experiment.lists else []
    by_seed = [*METRIC_LABELS, *(metric for metric in ranked if metric == NDCG)]
    rows = []
    for cell in cells:
        row: dict[str, object] = {
            "experiment": cell.experiment,
            "dataset": cell.dataset,
            "dataset_title": cell.dataset_title,
            "method": cell.method,
            "label": cell.label,
        }
        if content.has_paper:
            row["in_paper"] = str(cell.in_paper).lower()
        row |= {"factors": cell.factors, "x": cell.x, "status": cell.status}
        row |= _summaries(cell, METRICS) | {key: cell.hyperparameters.get(key) for key in chosen}
        for field in ("epsilon", "status", "view"):
            name = "epsilon" if field == "epsilon" else f"epsilon_{field}"
            row[name] = None if cell.claim is None else getattr(cell.claim, field)
        if more is not None:
            row |= more(cell)
        row |= _summaries(cell, ranked)
        runs = dict(zip(seeds, _padded(cell.run_ids, len(seeds)), strict=True))
        for metric in by_seed:
            row |= {
                f"{metric}_seed_{seed}": _seed_value(content, run, metric)
                for seed, run in runs.items()
            }
        row |= {f"run_seed_{seed}": run for seed, run in runs.items()}
        rows.append(row)
    return to_csv(list(rows[0]) if rows else [], [list(row.values()) for row in rows])


def _summaries(cell: Cell, metrics: Iterable[str]) -> dict[str, object]:
    row: dict[str, object] = {}
    for metric in metrics:
        summary = cell.metrics.get(metric)
        row[f"{metric}_mean"] = None if summary is None else summary.mean
        row[f"{metric}_std"] = None if summary is None else summary.std
    return row


def _padded(ids: Sequence[str], length: int) -> list[str | None]:
    return [ids[i] if i < len(ids) else None for i in range(length)]


def _seed_value(content: Content, run: str | None, metric: str) -> float | None:
    """Return a run's metric; None if it was not done."""
    result = None if run is None else content.results.get(run)
    return None if result is None else result.metric(metric)


def _datasets_csv(content: Content) -> bytes:
    head = ("users", "items", "ratings", "density")
    rows = [
        (name, facts["title"], *(facts[key] for key in head))
        for name, facts in content.datasets.items()
    ]
    return to_csv(("dataset", "title", *head), rows)


def _honest_csv(shown: Iterable[Point]) -> bytes:
    """Return the numbers of accuracy against honest epsilon."""
    rows = []
    for point in shown:
        cell = point.cell
        cost = point.cost
        row = {
            "dataset": cell.dataset,
            "method": cell.method,
            "label": cell.label,
            "factors": cell.factors,
            # A level has no epsilon of its own: any nominal one gives the same run.
            "nominal_epsilon": None if point.x is None else cell.x,
            "view": cost.view,
            "honest_epsilon": cost.epsilon_at_delta,
            "delta": cost.delta,
            "honest_pure_epsilon": cost.pure,
            "honest_status": cost.status,
            "covers": cost.covers,
            "n_raters": RATERS,
            "status": cell.status,
            **_summaries(cell, METRIC_LABELS),
        }
        rows.append(row)
    return to_csv(list(rows[0]), [list(row.values()) for row in rows])


def _grids_csv(content: Content) -> bytes:
    names = list(
        dict.fromkeys(key for tuned in content.tuned for row in tuned.grid for key in row.values)
    )
    folds = max(len(row.run_ids) for tuned in content.tuned for row in tuned.grid)
    head = ["experiments", "dataset", "method", "factors", *names, "status", "chosen"]
    head += ["mse_mean", "mae_mean", "ndcg_at_10_mean"]
    head += [f"run_fold_{fold}" for fold in range(folds)]
    rows = []
    for tuned in content.tuned:
        for row in tuned.grid:
            rows.append(
                [
                    " ".join(tuned.experiments),
                    *tuned.configuration,
                    *(row.values.get(name) for name in names),
                    row.status,
                    str(tuned.is_best(row)).lower(),
                    row.mse,
                    row.mae,
                    row.ndcg,
                    *_padded(row.run_ids, folds),
                ]
            )
    return to_csv(head, rows)


def to_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return a CSV file with numbers in full; unknown ones are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_field(value) for value in row])
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
