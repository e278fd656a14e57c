"""One CSV per experiment: every cell with its seeds, hyper-parameters and runs, numbers in full."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

from hdpmf.experiments import Cell, compare, published, table2
from hdpmf.report.content import Content, list_metrics
from hdpmf.report.findings import mark_of
from hdpmf.report.honest import NAME, RATERS, points
from hdpmf.report.numbers import METRIC_LABELS

_ALL_METRICS = ("mse", "mae", "mse_all", "mae_all")


def csv_files(content: Content) -> dict[str, bytes]:
    """File names and contents."""
    files = {f"{name}.csv": _cells_csv(content, name, cells) for name, cells in content.cells.items()}
    if content.datasets:
        files["table1.csv"] = _table1(content)
    files["table2.csv"] = _csv(
        ("side", "group", "ratio_name", "ratio", "weight_name", "low", "high"),
        [(r.side, r.group, r.ratio_name, r.ratio, r.weight_name, r.low, r.high) for r in table2()],
    )
    if found := _honest(content):
        files[f"{NAME}.csv"] = found
    if content.tuned:
        files["hyperparameters.csv"] = _grids(content)
    return files


def _cells_csv(content: Content, name: str, cells: list[Cell]) -> bytes:
    seeds = content.experiments[name].seeds
    chosen = list(dict.fromkeys(key for cell in cells for key in cell.hyperparameters))
    head = ["experiment", "dataset", "dataset_title", "method", "label", "in_paper", "factors", "x", "status"]
    for metric in _ALL_METRICS:
        head += [f"{metric}_mean", f"{metric}_std"]
    head += [*chosen, "epsilon", "epsilon_status", "epsilon_view"]
    if name == "table3":
        for metric in METRIC_LABELS:
            head += [f"paper_{metric}_mean", f"paper_{metric}_std", f"paper_{metric}_stars", f"{metric}_mark"]
            head += [f"{metric}_p_hdpmf_pdpmf", f"{metric}_stars"]
    ranked = list_metrics(cells)
    for metric in ranked:
        head += [f"{metric}_mean", f"{metric}_std"]
    for metric in METRIC_LABELS:
        head += [f"{metric}_seed_{seed}" for seed in seeds]
    head += [f"run_seed_{seed}" for seed in seeds]
    tests = {metric: compare(cells, "hdpmf", "pdpmf", metric) for metric in METRIC_LABELS}
    rows = []
    for cell in cells:
        row: list[object] = [cell.experiment, cell.dataset, cell.dataset_title, cell.method, cell.label]
        row += [str(cell.in_paper).lower(), cell.factors, cell.x, cell.status]
        for metric in _ALL_METRICS:
            row += [cell.metrics[metric].mean, cell.metrics[metric].std]
        row += [cell.hyperparameters.get(key) for key in chosen]
        claim = cell.claim
        row += [None] * 3 if claim is None else [claim.epsilon, claim.status, claim.view]
        if name == "table3":
            for metric in METRIC_LABELS:
                marked = mark_of(cell, metric)
                row += [None] * 4 if marked is None else [
                    marked.published.mean, marked.published.std, marked.published.stars, marked.mark
                ]  # fmt: skip
                test = tests[metric].get((cell.dataset, cell.factors, cell.x)) if cell.method == "hdpmf" else None
                row += [None, None] if test is None else [test.p, test.stars]
        for metric in ranked:
            summary = cell.metrics.get(metric)
            row += [None, None] if summary is None else [summary.mean, summary.std]
        for metric in METRIC_LABELS:
            row += [_seed_value(content, run, metric) for run in _padded(cell.run_ids, len(seeds))]
        row += list(_padded(cell.run_ids, len(seeds)))
        rows.append(row)
    return _csv(head, rows)


def _padded(ids: Sequence[str], length: int) -> list[str | None]:
    return [ids[i] if i < len(ids) else None for i in range(length)]


def _seed_value(content: Content, run: str | None, metric: str) -> float | None:
    """What a run measured; nothing where it was not done."""
    result = None if run is None else content.results.get(run)
    return None if result is None else result.metric(metric)


def _table1(content: Content) -> bytes:
    printed = {row.dataset: row for row in published.table1()}
    head = ("dataset", "title", "users", "items", "ratings", "density", "paper_users", "paper_items", "paper_ratings",
            "paper_density", "paper_slips")  # fmt: skip
    rows = []
    for name, facts in content.datasets.items():
        row = printed.get(name)
        theirs = (None,) * 5 if row is None else (row.users, row.items, row.ratings, row.density, "; ".join(row.slips))
        rows.append((name, facts["title"], facts["users"], facts["items"], facts["ratings"], facts["density"], *theirs))
    return _csv(head, rows)


def _honest(content: Content) -> bytes:
    """The figure of accuracy against honest epsilon; nothing where there is none."""
    found = points(content)
    if not found:
        return b""
    head = ["dataset", "method", "label", "factors", "nominal_epsilon", "view", "honest_epsilon", "delta"]
    head += ["honest_pure_epsilon", "honest_status", "covers", "n_raters", "status"]
    for metric in METRIC_LABELS:
        head += [f"{metric}_mean", f"{metric}_std"]
    rows = []
    for one in found:
        cell, cost = one.cell, one.cost
        # A level has no epsilon of its own: any nominal one gives the same run.
        row: list[object] = [cell.dataset, cell.method, cell.label, cell.factors, None if one.x is None else cell.x]
        row += [cost.view, cost.epsilon_at_delta, cost.delta, cost.pure, cost.status, cost.covers, RATERS, cell.status]
        for metric in METRIC_LABELS:
            row += [cell.metrics[metric].mean, cell.metrics[metric].std]
        rows.append(row)
    return _csv(head, rows)


def _grids(content: Content) -> bytes:
    names = list(dict.fromkeys(key for one in content.tuned for row in one.grid for key in row.values))
    folds = max(len(row.run_ids) for one in content.tuned for row in one.grid)
    head = ["experiments", "dataset", "method", "factors", *names, "status", "chosen", "mse_mean", "mae_mean"]
    head += [f"run_fold_{fold}" for fold in range(folds)]
    rows = []
    for one in content.tuned:
        for row in one.grid:
            best = one.best is not None and row.values == one.best.values
            rows.append(
                [" ".join(one.experiments), *one.place, *(row.values.get(name) for name in names), row.status,
                 str(best).lower(), row.mse, row.mae, *_padded(row.run_ids, folds)]
            )  # fmt: skip
    return _csv(head, rows)


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
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
