"""Results as CSV files and LaTeX tables. The LaTeX tables need the packages booktabs and
multirow.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from hdpmf.lab.experiments import METRICS, Cell, Experiment
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    NDCG,
    Content,
    density,
    four,
    highest,
    list_experiments,
    list_metrics,
    plain,
    table_cells,
    table_point,
)
from hdpmf.lab.report.honest_epsilon import HONEST_FIGURE, RATERS, Point, points
from hdpmf.lab.report.markup import guarantee, slug
from hdpmf.lab.report.tables import lowest

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
    """File names and contents: the data sets, and every table with its lowest errors in bold."""
    tables = {"datasets": statistics_latex(content)} if content.datasets else {}
    for name in content.cells:
        experiment = content.experiments[name]
        cells = content.error_cells(experiment)
        if experiment.kind == "table" and experiment.errors:
            tables[name] = accuracy_latex(experiment, cells, lowest_bold(cells), LOWEST)
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


def accuracy_latex(
    experiment: Experiment,
    cells: list[Cell],
    emphasis: Emphasis,
    rule: str,
    *,
    note: str = "",
    added: bool = False,
) -> str:
    """Methods down, measures and K across.

    The caption explains what is in the table and nothing else: ``rule`` says what is bold, ``note``
    ends it. With ``added``, methods that the paper does not show have a dagger.
    """
    factors = experiment.factors
    columns = [(metric, k) for metric in METRIC_LABELS for k in factors]
    width = len(factors)
    spans = [f"\\multicolumn{{{width}}}{{c}}{{{label}}}" for label in METRIC_LABELS.values()]
    rules = [
        f"\\cmidrule(lr){{{3 + i * width}-{2 + (i + 1) * width}}}"
        for i in range(len(METRIC_LABELS))
    ]
    heads = " & ".join(f"\\multicolumn{{1}}{{c}}{{K={k}}}" for _, k in columns)
    reduced = " (reduced run)" if experiment.quick else ""
    marks = _marks_explained(cells, added=added)
    parts = [
        f"{escape(experiment.title)}: {repeated('MSE and MAE', experiment)}{reduced}.",
        rule,
        marks,
        note,
    ]
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
            title = (
                f"\\multirow{{{len(methods)}}}{{*}}{{{escape(here[0].dataset_title)}}}"
                if position == 0
                else ""
            )
            numbers = []
            for metric, k in columns:
                strong, stars = emphasis(mine[k], metric)
                numbers.append(_error_latex(mine[k], metric, strong=strong, stars=stars))
            name = _method_name(next(iter(mine.values())), added=added)
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
        f"{measures} of one evaluation"
        if seeds == 1
        else f"mean and deviation of {measures} over {seeds} evaluations"
    )


def _marks_explained(cells: list[Cell], *, added: bool) -> str:
    """What the marks at names mean, of those that are there."""
    statuses = {cell.claim.status for cell in cells if cell.claim is not None}
    words = {
        "nominal": "no mark: $\\epsilon$ is nominal",
        "proved": "$^\\ddagger$ $\\epsilon$ is proved",
    }
    words["none"] = "$^\\S$ no privacy"
    parts = [text for status, text in words.items() if status in statuses]
    if added and not all(cell.in_paper for cell in cells):
        parts.append("$^\\dagger$ not in the paper")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _method_name(cell: Cell, *, added: bool) -> str:
    status = "" if cell.claim is None else cell.claim.status
    marks = ("\\dagger" if added and not cell.in_paper else "") + {
        "proved": "\\ddagger",
        "none": "\\S",
    }.get(status, "")
    return escape(cell.label) + (f"$^{{{marks}}}$" if marks else "")


def _error_latex(cell: Cell, metric: str, *, strong: bool, stars: int) -> str:
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
    """The counts of the data sets."""
    lines = [
        "\\begin{table}[tb!]", "  \\centering", "  \\caption{Statistics of datasets}",
        "  \\begin{tabular}{lllll}", "    \\toprule",
        "    Dataset & \\#users & \\#items & \\#ratings & density \\\\", "    \\midrule",
    ]  # fmt: skip
    for facts in content.datasets.values():
        counts = " & ".join(f"{facts[key]:,}" for key in ("users", "items", "ratings"))
        lines.append(
            f"    {escape(str(facts['title']))} & {counts} & {density(facts['density'])} \\\\"
        )
    lines += ["    \\bottomrule", "  \\end{tabular}", "  \\label{statistics}", "\\end{table}", ""]
    return "\n".join(lines)


_LIST_COLUMNS = {NDCG: "NDCG@10", "recall_at_10": "Recall@10", "coverage_at_10": "Coverage@10"}


def list_tables(content: Content) -> dict[str, str]:
    """By name: the lists of every experiment that measures them, in the order of data sets and
    methods.
    """
    tables = {}
    for experiment in list_experiments(content):
        x = table_point(experiment)
        varied = (
            ""
            if x is None or experiment.vary is None
            else f", {escape(experiment.vary.parameter)} = {plain(x)}"
        )
        best_of = "data set and K" if len(experiment.factors) > 1 else "data set"
        caption = (
            f"{escape(experiment.title)}{varied}: {repeated('lists of ten', experiment)}. "
            "Lists are the ten items "
            "that come first of all with a training rating that the user has not "
            "rated; relevant are test ratings in the top quarter of the scale. Bold is the "
            f"best of its {best_of}."
        )
        lines = [
            "\\begin{table*}[htb!]", "  \\centering", f"  \\caption{{{caption}}}",
            f"  \\begin{{tabular}}{{c|l|l|{'l' * len(_LIST_COLUMNS)}}}", "    \\toprule",
            f"    data & method & guarantee & {' & '.join(_LIST_COLUMNS.values())} \\\\",
        ]  # fmt: skip
        shown = table_cells(content, experiment)
        for dataset in experiment.datasets:
            for k in experiment.factors:
                here = [cell for cell in shown if (cell.dataset, cell.factors) == (dataset, k)]
                best = highest(here)
                if here:
                    lines.append("    \\midrule")
                for position, cell in enumerate(here):
                    title = (
                        f"{cell.dataset_title}, K={k}"
                        if len(experiment.factors) > 1
                        else cell.dataset_title
                    )
                    first = (
                        f"\\multirow{{{len(here)}}}{{*}}{{{escape(title)}}}"
                        if position == 0
                        else ""
                    )
                    numbers = " & ".join(
                        _list_latex(cell, metric, strong=cell is best) for metric in _LIST_COLUMNS
                    )
                    lines.append(
                        f"    {first} & {escape(cell.label)} & {escape(guarantee(cell))} & "
                        f"{numbers} \\\\"
                    )
        lines += [
            "    \\bottomrule",
            "  \\end{tabular}",
            f"  \\label{{tab:{slug(experiment.name)}-lists}}",
        ]
        tables[f"{experiment.name}_lists"] = "\n".join([*lines, "\\end{table*}", ""])
    return tables


def _list_latex(cell: Cell, metric: str, *, strong: bool) -> str:
    summary = cell.summary(metric)
    if not summary.values or not math.isfinite(summary.mean):
        return "--"
    text = four(summary.mean) + (
        f" $\\pm$ {four(summary.std)}" if math.isfinite(summary.std) else ""
    )
    return f"\\textbf{{{text}}}" if strong and metric == NDCG else text


MoreColumns = Callable[[Cell], dict[str, object]]
"""Further columns of an experiment's file, the same for every cell."""


def csv_files(content: Content, more: Mapping[str, MoreColumns] | None = None) -> dict[str, bytes]:
    """File names and contents; ``more`` are further columns of some experiments, by name."""
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
    """What a run measured; nothing where it was not done."""
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
    """The figure of accuracy against honest epsilon."""
    rows = []
    for point in shown:
        cell, cost = point.cell, point.cost
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
    head = [
        "experiments",
        "dataset",
        "method",
        "factors",
        *names,
        "status",
        "chosen",
        "mse_mean",
        "mae_mean",
        "ndcg_at_10_mean",
    ]
    head += [f"run_fold_{fold}" for fold in range(folds)]
    rows = []
    for tuned in content.tuned:
        for row in tuned.grid:
            best = tuned.best is not None and row.values == tuned.best.values
            rows.append(
                [
                    " ".join(tuned.experiments),
                    *tuned.place,
                    *(row.values.get(name) for name in names),
                    row.status,
                    str(best).lower(),
                    row.mse,
                    row.mae,
                    row.ndcg,
                    *_padded(row.run_ids, folds),
                ]
            )
    return to_csv(head, rows)


def to_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A file; numbers are written in full, what is unknown is empty."""
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
    return (
        f"'{text}"
        if isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r")
        else text
    )
