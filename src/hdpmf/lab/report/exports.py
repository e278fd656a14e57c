"""Results as CSV files and LaTeX tables, which need the packages booktabs and multirow."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.experiments.store import METRICS
from hdpmf.lab.report.content import METRIC_LABELS, NDCG, Content, list_metrics, lowest
from hdpmf.lab.report.tables import HONEST_FIGURE, RATERS, Point, points
from hdpmf.lab.report.templating import PACKAGE, latex_environment

Emphasis = Callable[[Cell, str], tuple[bool, int]]
"""Whether a cell's number for a measure is bold, and its stars."""

LOWEST = "Bold is the lowest error of its data set and K."


def latex_files(content: Content) -> dict[str, bytes]:
    """Return the data sets, and every table with its lowest errors in bold, by file name."""
    files = {"datasets.tex": latex("datasets.tex", content=content)} if content.datasets else {}
    for experiment in error_tables(content):
        cells = content.error_cells(experiment)
        files[f"{experiment.name}.tex"] = accuracy_latex(
            experiment, cells, lowest_bold(cells), LOWEST
        )
    return files | list_files(content)


def error_tables(content: Content) -> list[Experiment]:
    """Return the experiments that have a table of errors."""
    return [one for one in content.experiments.values() if one.vary is None and one.errors]


def list_files(content: Content) -> dict[str, bytes]:
    """Return the tables of lists, by file name."""
    return {
        f"{one.name}_lists.tex": latex("lists.tex", content=content, experiment=one)
        for one in content.with_lists
    }


def lowest_bold(cells: list[Cell]) -> Emphasis:
    """Emphasize the lowest error of each data set and K."""
    best = lowest(cells)
    return lambda cell, metric: ((metric, cell.dataset, cell.method, cell.factors) in best, 0)


def accuracy_latex(
    experiment: Experiment, cells: list[Cell], emphasis: Emphasis, rule: str, note: str = ""
) -> bytes:
    """Return a table with methods down, measures and K across.

    The caption explains what is in the table and nothing else: ``rule`` says what is bold, ``note``
    ends it. Where a paper has methods, the others have a dagger.
    """
    return latex(
        "accuracy.tex",
        experiment=experiment,
        cells=cells,
        emphasis=emphasis,
        rule=rule,
        note=note,
        in_paper=bool(experiment.paper_methods),
    )


def latex(template: str, package: str = PACKAGE, **facts: Any) -> bytes:
    """Return a table in LaTeX."""
    return latex_environment(package).get_template(template).render(facts).encode()


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
