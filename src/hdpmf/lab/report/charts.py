"""Interactive figures of a report: the data that its script draws, and the numbers below each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hdpmf.common.privacy.accounting import DELTA
from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    NDCG,
    RANKING_LABELS,
    STATUS_WORDS,
    Content,
    Section,
    anchor,
    guarantee,
    highest,
    is_level,
    list_experiments,
    list_metrics,
    plain,
    symbol_parts,
    table_cells,
    table_point,
)
from hdpmf.lab.report.tables import HONEST_FIGURE, RATERS, Point, RowGroup, points, view_words

HONEST_TITLE = "Accuracy against honest epsilon"


@dataclass(frozen=True, slots=True)
class CurveRow:
    """A method below a figure.

    Attributes:
        level: True if the figure varies nothing that matters to this method.
        strong: True if its number is the best.
    """

    label: str
    cells: list[Cell]
    level: bool = False
    strong: bool = False


@dataclass(frozen=True, slots=True)
class PointRow:
    """A method below the figure of honest epsilon: its points by nominal epsilon, or its level."""

    label: str
    words: str
    points: Mapping[float | None, Point]
    level: Point | None


@dataclass(frozen=True, slots=True)
class NumbersTable:
    """The numbers of a figure at one K.

    Attributes:
        width: Columns, the method's name included.
        xs: Values of the axis, where the experiment does not say them.
    """

    k: int
    label: str
    width: int
    groups: list[RowGroup]
    xs: list[float] = field(default_factory=list)


def _groups(
    cells: Iterable[Cell], titles: Mapping[str, str], row: Callable[[list[Cell]], CurveRow]
) -> list[RowGroup]:
    """Return rows by data set, with the cells of a method in each."""
    by_dataset: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        by_dataset.setdefault(cell.dataset, {}).setdefault(cell.method, []).append(cell)
    return [
        RowGroup(dataset, titles[dataset], [row(curve) for curve in methods.values()])
        for dataset, methods in by_dataset.items()
    ]


def figures_section(
    content: Content,
    experiments: Iterable[Experiment],
    captions: Mapping[str, str],
    absent: Sequence[str] = (),
) -> Section:
    """Return the figures of these experiments, each with its caption, by name.

    ``captions`` are by name of the experiment, ``absent`` are sentences about figures that are not
    there.
    """
    figures = []
    for experiment in experiments:
        reference = experiment.reference
        opening = f"{reference[:1].upper()}{reference[1:]}. " if reference else ""
        cells = content.error_cells(experiment)
        figures.append(
            {
                "experiment": experiment,
                "caption": opening + captions.get(experiment.name, ""),
                "tables": [
                    _error_numbers(content, experiment, cells, k) for k in experiment.factors
                ],
            }
        )
    return Section("Figures", "Figures", "figures.html", {"figures": figures, "absent": absent})


def _error_numbers(
    content: Content, experiment: Experiment, cells: list[Cell], k: int
) -> NumbersTable:
    here = [cell for cell in cells if cell.factors == k]
    groups = _groups(here, content.dataset_titles, lambda curve: CurveRow(curve[0].label, curve))
    return NumbersTable(k, experiment.title, 1 + len(experiment.xs), groups)


def chart_data(content: Content, experiments: Iterable[Experiment]) -> dict[str, Any]:
    """Return what the page's script draws. Numbers are the store's, in full."""
    claims = {cell.method: cell.claim for cell in content.all_cells if cell.claim is not None}
    methods = []
    for name, label in content.method_labels.items():
        claim = claims.get(name)
        status = "unknown" if claim is None else claim.status
        fixed = claim is not None and claim.epsilon == 0.0
        epsilon = "ε 0, " if fixed else "ε " if status == "nominal" else ""
        methods.append(
            {
                "name": name,
                "label": label,
                "status": status,
                "words": epsilon + STATUS_WORDS.get(status, status),
                "why": "" if claim is None else f"{claim.view}; {claim.reason}",
            }
        )
    figures = [_figure(experiment, content.error_cells(experiment)) for experiment in experiments]
    titles = content.dataset_titles
    return {
        "methods": methods,
        "datasets": [{"name": name, "title": title} for name, title in titles.items()],
        "figures": [*_list_figures(content), *_honest_figures(content), *figures],
    }


def _figure(experiment: Experiment, cells: list[Cell]) -> dict[str, Any]:
    vary = experiment.vary
    xs = [float(x) for x in experiment.xs if x is not None]
    return {
        "name": experiment.name,
        "kind": "bars" if vary is None else "lines",
        "axis": None if vary is None else axis_name(vary.parameter, vary.label),
        "percent": vary is not None and vary.parameter == "fraction",
        "log": min(xs, default=0.0) > 0 and len(xs) > 2 and max(xs) / min(xs) >= 10,
        "xs": xs,
        "factors": list(experiment.factors),
        "datasets": list(experiment.datasets),
        "methods": list(dict.fromkeys(cell.method for cell in cells)),
        "cells": [_cell(cell) for cell in cells],
    }


def axis_name(parameter: str, label: str) -> dict[str, str]:
    """Return the label of an axis, its subscript apart."""
    letter, subscript = symbol_parts(parameter)
    return {"base": letter or label or parameter, "low": subscript}


def axis_value(x: float, experiment: Experiment) -> str:
    """Return a value of the axis as the numbers below a figure show it."""
    percent = experiment.vary is not None and experiment.vary.parameter == "fraction"
    return f"{100 * x:g} %" if percent else plain(x)


def _cell(cell: Cell, metrics: Sequence[str] = tuple(METRIC_LABELS)) -> dict[str, Any]:
    shown = {
        "dataset": cell.dataset,
        "method": cell.method,
        "k": cell.factors,
        "x": cell.x,
        "status": cell.status,
        "n": max(len(cell.summary(metric).values) for metric in metrics),
        "seeds": len(cell.run_ids),
        "runs": anchor(cell),
    }
    for metric in metrics:
        summary = cell.summary(metric)
        shown[metric] = {"mean": _finite(summary.mean), "std": _finite(summary.std)}
    return shown


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def lists_section(content: Content) -> Section:
    """Return tables and figures of lists; every experiment that measures lists has its part."""
    experiments = []
    for experiment in list_experiments(content):
        factors = experiment.factors
        experiments.append(
            {
                "experiment": experiment,
                "figure": _list_figure_name(experiment),
                "tables": [_list_table(content, experiment, k) for k in factors],
                "curves": [_list_curves(content, experiment, k) for k in factors],
            }
        )
    facts = {"experiments": experiments, "measured": _measured(content)}
    return Section("Lists", "Lists of ten", "lists.html", facts)


def _measured(content: Content) -> list[str]:
    shown = list_experiments(content)
    cells = [cell for each in shown for cell in content.cells.get(each.name, ())]
    return [metric for metric in list_metrics(cells) if metric in RANKING_LABELS]


def _list_table(content: Content, experiment: Experiment, k: int) -> NumbersTable:
    """Return methods with all their measures, at one point of the axis."""
    x = table_point(experiment)
    varied = ""
    if x is not None and experiment.vary is not None:
        varied = f", {experiment.vary.parameter} = {plain(x)}"
    cells = [cell for cell in table_cells(content, experiment) if cell.factors == k]
    best = {
        id(highest(cell for cell in cells if cell.dataset == dataset))
        for dataset in experiment.datasets
    }
    titles = {name: f"{title}{varied}" for name, title in content.dataset_titles.items()}
    groups = _groups(
        cells, titles, lambda row: CurveRow(row[0].label, row, strong=id(row[0]) in best)
    )
    # The method, its guarantee and the margin over users besides.
    width = 3 + len(_measured(content))
    return NumbersTable(k, f"lists of {experiment.title}", width, groups)


def _list_curves(content: Content, experiment: Experiment, k: int) -> NumbersTable:
    cells = [c for c in content.cells.get(experiment.name, ()) if c.factors == k]
    groups = _groups(
        cells,
        content.dataset_titles,
        lambda curve: CurveRow(curve[0].label, curve, level=is_level(experiment, curve[0])),
    )
    return NumbersTable(k, experiment.title, 1 + len(experiment.xs), groups)


def _list_figures(content: Content) -> list[dict[str, Any]]:
    figures = []
    for experiment in list_experiments(content):
        if experiment.vary is None:
            continue
        cells = content.cells.get(experiment.name, [])
        shown = []
        for cell in cells:
            level = is_level(experiment, cell)
            if not level or cell.x == float(experiment.vary.values[0]):
                shown.append({**_cell(cell, (NDCG,)), "x": None if level else cell.x})
        words = {}
        for cell in cells:
            why = "" if cell.claim is None else f"{cell.claim.view}; {cell.claim.reason}"
            words[cell.method] = {"words": guarantee(cell), "why": why}
        figures.append(
            {
                **_figure(experiment, []),
                "name": _list_figure_name(experiment),
                "metric": NDCG,
                "methods": list(words),
                "words": words,
                "cells": shown,
            }
        )
    return figures


def _list_figure_name(experiment: Experiment) -> str:
    return f"{experiment.name}-curves"


def honest_section(content: Content, absent: str = "Nothing here varies epsilon.") -> Section:
    """Return the figure of accuracy against honest epsilon; ``absent`` says why it is not there."""
    shown = points(content)
    factors = dict.fromkeys(point.cell.factors for point in shown)
    facts = {
        "absent": absent,
        "delta": DELTA,
        "raters": RATERS,
        "figure": HONEST_FIGURE,
        "title": HONEST_TITLE,
        "tables": [_honest_numbers(content, shown, k) for k in factors],
    }
    return Section("Honest epsilon", HONEST_TITLE, "honest.html", facts)


def _honest_numbers(content: Content, shown: Iterable[Point], k: int) -> NumbersTable:
    here = [point for point in shown if point.cell.factors == k]
    xs = list(dict.fromkeys(point.cell.x or 0.0 for point in here if point.x is not None))
    groups = []
    for dataset, title in content.dataset_titles.items():
        methods: dict[str, dict[float | None, Point]] = {}
        for point in here:
            if point.cell.dataset == dataset:
                methods.setdefault(point.cell.method, {})[point.cell.x] = point
        rows = []
        for mine in methods.values():
            first = next(iter(mine.values()))
            level = first if first.x is None else None
            rows.append(PointRow(first.cell.label, view_words(first.cost), mine, level))
        if rows:
            groups.append(RowGroup(dataset, title, rows))
    return NumbersTable(k, HONEST_TITLE, 1 + len(xs), groups, xs)


def _honest_figures(content: Content) -> list[dict[str, Any]]:
    shown = points(content)
    if not shown:
        return []
    words: dict[str, dict[str, str]] = {}
    for point in shown:
        nominal = plain(point.cell.x or 0.0)
        why = f"{point.cost.in_numbers()} at nominal epsilon {nominal}; {point.cost.reason}"
        words.setdefault(point.cell.method, {"words": view_words(point.cost), "why": why})
    with_points = {point.cell.dataset for point in shown}
    return [
        {
            "name": HONEST_FIGURE,
            "kind": "lines",
            "axis": {"base": "honest ε", "low": ""},
            "percent": False,
            "log": True,
            "free": True,
            "xs": sorted({point.x for point in shown if point.x is not None}),
            "factors": list(dict.fromkeys(point.cell.factors for point in shown)),
            "datasets": [name for name in content.dataset_titles if name in with_points],
            "methods": list(words),
            "words": words,
            "cells": [
                {**_cell(point.cell), "x": point.x, "nominal": point.cell.x} for point in shown
            ],
        }
    ]
