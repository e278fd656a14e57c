"""One CSV per experiment: every cell with its seeds, hyper-parameters and runs, numbers in full."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from hdpmf.experiments import METRICS, Cell
from hdpmf.report.content import Content, list_metrics
from hdpmf.report.honest import NAME, RATERS, Point, points
from hdpmf.report.numbers import METRIC_LABELS, NDCG

MoreColumns = Callable[[Cell], dict[str, object]]
"""Further columns of an experiment's file, the same for every cell."""


def csv_files(content: Content, more: Mapping[str, MoreColumns] | None = None) -> dict[str, bytes]:
    """File names and contents; ``more`` are further columns of some experiments, by name."""
    more = more or {}
    files = {f"{name}.csv": _cells(content, cells, more.get(name)) for name, cells in content.cells.items()}
    if content.datasets:
        files["datasets.csv"] = _datasets(content)
    if shown := points(content):
        files[f"{NAME}.csv"] = _honest(shown)
    if content.tuned:
        files["hyperparameters.csv"] = _grids(content)
    return files


def _cells(content: Content, cells: list[Cell], more: MoreColumns | None) -> bytes:
    experiment = content.experiments[cells[0].experiment] if cells else None
    seeds = () if experiment is None else experiment.seeds
    chosen = list(dict.fromkeys(key for cell in cells for key in cell.hyperparameters))
    ranked = list_metrics(cells) if experiment is not None and experiment.lists else []
    by_seed = [*METRIC_LABELS, *(metric for metric in ranked if metric == NDCG)]
    rows = []
    for cell in cells:
        row: dict[str, object] = {
            "experiment": cell.experiment, "dataset": cell.dataset, "dataset_title": cell.dataset_title,
            "method": cell.method, "label": cell.label,
        }  # fmt: skip
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
            row |= {f"{metric}_seed_{seed}": _seed_value(content, run, metric) for seed, run in runs.items()}
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


def _datasets(content: Content) -> bytes:
    head = ("users", "items", "ratings", "density")
    rows = [(name, facts["title"], *(facts[key] for key in head)) for name, facts in content.datasets.items()]
    return to_csv(("dataset", "title", *head), rows)


def _honest(shown: Iterable[Point]) -> bytes:
    """The figure of accuracy against honest epsilon."""
    rows = []
    for point in shown:
        cell, cost = point.cell, point.cost
        row = {
            "dataset": cell.dataset, "method": cell.method, "label": cell.label, "factors": cell.factors,
            # A level has no epsilon of its own: any nominal one gives the same run.
            "nominal_epsilon": None if point.x is None else cell.x,
            "view": cost.view, "honest_epsilon": cost.epsilon_at_delta, "delta": cost.delta,
            "honest_pure_epsilon": cost.pure, "honest_status": cost.status, "covers": cost.covers,
            "n_raters": RATERS, "status": cell.status, **_summaries(cell, METRIC_LABELS),
        }  # fmt: skip
        rows.append(row)
    return to_csv(list(rows[0]), [list(row.values()) for row in rows])


def _grids(content: Content) -> bytes:
    names = list(dict.fromkeys(key for tuned in content.tuned for row in tuned.grid for key in row.values))
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
                [" ".join(tuned.experiments), *tuned.place, *(row.values.get(name) for name in names), row.status,
                 str(best).lower(), row.mse, row.mae, row.ndcg, *_padded(row.run_ids, folds)]
            )  # fmt: skip
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
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
