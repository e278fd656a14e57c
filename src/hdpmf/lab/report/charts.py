"""The data that the page's script draws. Numbers are the store's, in full."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    NDCG,
    STATUS_WORDS,
    Content,
    anchor,
    guarantee,
    is_level,
    plain,
    symbol_parts,
)
from hdpmf.lab.report.tables import HONEST_FIGURE, Point, view_words


def chart_data(
    content: Content, experiments: Iterable[Experiment], points: Sequence[Point]
) -> dict[str, Any]:
    """Return methods, data sets and figures: of lists, of honest epsilon, of these experiments."""
    claims = {cell.method: cell.claim for cell in content.all_cells if cell.claim is not None}
    methods = []
    for name, label in content.method_labels.items():
        claim = claims.get(name)
        status = "unknown" if claim is None else claim.status
        fixed = claim is not None and claim.epsilon == 0.0
        epsilon = "ε 0, " if fixed else "ε " if status == "nominal" else ""
        said = {"status": status, "words": epsilon + STATUS_WORDS.get(status, status)}
        methods.append({"name": name, "label": label, **said, "why": _why(claim)})
    lists = [_list_figure(content, one) for one in content.with_lists if one.vary is not None]
    return {
        "methods": methods,
        "datasets": [
            {"name": name, "title": title} for name, title in content.dataset_titles.items()
        ],
        "figures": [
            *lists,
            *([_honest_figure(content, points)] if points else []),
            *(_figure(experiment, content.error_cells(experiment)) for experiment in experiments),
        ],
    }


def _why(claim: Any) -> str:
    return "" if claim is None else f"{claim.view}; {claim.reason}"


def _figure(experiment: Experiment, cells: list[Cell]) -> dict[str, Any]:
    xs = [float(x) for x in experiment.xs if x is not None]
    return {
        "name": experiment.name,
        "kind": "bars" if experiment.vary is None else "lines",
        "axis": None if experiment.vary is None else axis_name(experiment),
        "percent": experiment.varied == "fraction",
        "log": min(xs, default=0.0) > 0 and len(xs) > 2 and max(xs) / min(xs) >= 10,
        "xs": xs,
        "factors": list(experiment.factors),
        "datasets": list(experiment.datasets),
        "methods": list(dict.fromkeys(cell.method for cell in cells)),
        "cells": [_cell(cell) for cell in cells],
    }


def axis_name(experiment: Experiment) -> dict[str, str]:
    """Return the label of the axis, its subscript apart."""
    letter, subscript = symbol_parts(experiment.varied)
    label = "" if experiment.vary is None else experiment.vary.label
    return {"base": letter or label or experiment.varied, "low": subscript}


def _cell(cell: Cell, metrics: Sequence[str] = tuple(METRIC_LABELS)) -> dict[str, Any]:
    summaries = {metric: cell.summary(metric) for metric in metrics}
    return {
        "dataset": cell.dataset,
        "method": cell.method,
        "k": cell.factors,
        "x": cell.x,
        "status": cell.status,
        "n": max(len(summary.values) for summary in summaries.values()),
        "seeds": len(cell.run_ids),
        "runs": anchor(cell),
        **{
            metric: {"mean": _finite(summary.mean), "std": _finite(summary.std)}
            for metric, summary in summaries.items()
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _list_figure(content: Content, experiment: Experiment) -> dict[str, Any]:
    cells = content.cells.get(experiment.name, [])
    shown = []
    for cell in cells:
        level = is_level(experiment, cell)
        if not level or cell.x == experiment.xs[0]:
            shown.append({**_cell(cell, (NDCG,)), "x": None if level else cell.x})
    words = {cell.method: {"words": guarantee(cell), "why": _why(cell.claim)} for cell in cells}
    return {
        **_figure(experiment, []),
        "name": f"{experiment.name}-curves",
        "metric": NDCG,
        "methods": list(words),
        "words": words,
        "cells": shown,
    }


def _honest_figure(content: Content, points: Sequence[Point]) -> dict[str, Any]:
    words: dict[str, dict[str, str]] = {}
    for point in points:
        nominal = plain(point.cell.x or 0.0)
        why = f"{point.cost.in_numbers()} at nominal epsilon {nominal}; {point.cost.reason}"
        words.setdefault(point.cell.method, {"words": view_words(point.cost), "why": why})
    with_points = {point.cell.dataset for point in points}
    return {
        "name": HONEST_FIGURE,
        "kind": "lines",
        "axis": {"base": "honest ε", "low": ""},
        "percent": False,
        "log": True,
        "free": True,
        "xs": sorted({point.x for point in points if point.x is not None}),
        "factors": list(dict.fromkeys(point.cell.factors for point in points)),
        "datasets": [name for name in content.dataset_titles if name in with_points],
        "methods": list(words),
        "words": words,
        "cells": [{**_cell(point.cell), "x": point.x, "nominal": point.cell.x} for point in points],
    }
