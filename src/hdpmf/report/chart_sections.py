"""The interactive figures: their data, and the static numbers below each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hdpmf.experiments import Cell, Experiment
from hdpmf.report.content import Content, anchor
from hdpmf.report.markup import Child, Html, tag
from hdpmf.report.numbers import METRIC_LABELS, plain
from hdpmf.report.pieces import GREEK, STATUS_WORDS, claim_chip, number, scroller, section, symbol

_LEAD = (
    "Lines are means over the seeds, bands one standard deviation. Point, tap or use the arrow keys for values, "
    "press Enter or click to keep them and follow a number to its runs; the legend takes methods out and in."
)


def charts_section(
    content: Content, experiments: Iterable[Experiment], captions: Mapping[str, str], *more: Child
) -> Html:
    """The figures of these experiments, each with its caption, by name."""
    figures = [
        _figure(content, experiment, content.error_cells(experiment), captions.get(experiment.name, ""))
        for experiment in experiments
    ]
    return section("figures", "Figures", figures, more, lead=_LEAD)


def _figure(content: Content, experiment: Experiment, cells: list[Cell], caption: str) -> Html:
    titles = content.dataset_titles
    reference = f"{experiment.reference[:1].upper()}{experiment.reference[1:]}. " if experiment.reference else ""
    numbers = [_numbers(experiment, cells, k, titles) for k in experiment.factors]
    return chart_frame(experiment.name, experiment.title, experiment.title, [reference, caption], numbers)


def chart_frame(name: str, title: str, label: str, caption: Child, numbers: list[Html]) -> Html:
    """Where the page's script draws a figure, with its numbers below for those who run no script."""
    return tag(
        "figure",
        tag("h3", title, tag("span", name, class_="tagname")),
        tag("p", caption, class_="caption"),
        tag("div", class_="legend", role="group", aria_label=f"methods of {label}"),
        tag("div", class_="panels"),
        tag("p", class_="chartnote", role="note"),
        tag("details", tag("summary", "All numbers of this figure"), numbers, open=True, class_="numbers"),
        id=name, class_="chart", data_figure=name,
    )  # fmt: skip


def numbers_table(
    heads: list[Child], rows: Mapping[str, list[Html]], titles: Mapping[str, str], k: int, label: str
) -> Html:
    """The numbers below a figure at one K: rows by data set, which their titles head."""
    bodies = []
    for dataset in rows:
        caption = tag("th", f"{titles[dataset]}, K = {k}", colspan=len(heads), scope="rowgroup")
        bodies.append(tag("tbody", tag("tr", caption, class_="dataset"), rows[dataset], data_dataset=dataset))
    head = tag("thead", tag("tr", heads))
    return scroller(tag("table", head, bodies, class_="wide", data_k=k), f"{label}, K = {k}")


def _numbers(experiment: Experiment, cells: list[Cell], factors: int, titles: dict[str, str]) -> Html:
    heads: list[Child] = [tag("th", "Method", scope="col")]
    for x in experiment.xs:
        if x is None:
            heads.append(tag("th", f"K = {factors}", scope="col"))
        else:
            name = experiment.vary.parameter if experiment.vary else ""
            shown = f"{100 * x:g} %" if name == "fraction" else plain(x)
            heads.append(tag("th", tag("span", symbol(name), " = "), shown, scope="col"))
    rows: dict[str, list[Html]] = {}
    for dataset in experiment.datasets:
        here = [cell for cell in cells if (cell.dataset, cell.factors) == (dataset, factors)]
        for method in dict.fromkeys(cell.method for cell in here):
            curve = [cell for cell in here if cell.method == method]
            chip = claim_chip(curve[0].claim, with_epsilon=False)
            name_cell = tag("th", curve[0].label, " ", chip, scope="row")
            rows.setdefault(dataset, []).append(tag("tr", name_cell, [tag("td", both(cell)) for cell in curve]))
    if not rows:
        return tag("p", "Not run here.", class_="empty")
    return numbers_table(heads, rows, titles, factors, experiment.title)


def both(cell: Cell) -> list[Html]:
    """Both measures of a cell; the page's script shows the chosen one."""
    return [
        tag("div", tag("span", METRIC_LABELS[metric], class_="which"), " ", number(cell, metric), data_metric=metric)
        for metric in METRIC_LABELS
    ]


def chart_data(content: Content, experiments: Iterable[Experiment]) -> dict[str, Any]:
    """What the page's script draws. Numbers are the store's, in full."""
    claims = {cell.method: cell.claim for cell in content.all_cells if cell.claim is not None}
    methods = []
    for name, label in content.method_labels.items():
        claim = claims.get(name)
        status = "unknown" if claim is None else claim.status
        fixed = claim is not None and claim.epsilon == 0.0
        methods.append(
            {
                "name": name,
                "label": label,
                "status": status,
                "words": ("ε 0, " if fixed else "ε " if status == "nominal" else "") + STATUS_WORDS.get(status, status),
                "why": "" if claim is None else f"{claim.view}; {claim.reason}",
            }
        )
    return {
        "methods": methods,
        "datasets": [{"name": name, "title": title} for name, title in content.dataset_titles.items()],
        "figures": [figure_data(experiment, content.error_cells(experiment)) for experiment in experiments],
    }


def figure_data(experiment: Experiment, cells: list[Cell]) -> dict[str, Any]:
    """A figure of an experiment, for the page's script."""
    vary = experiment.vary
    xs = [float(x) for x in experiment.xs if x is not None]
    spread = min(xs, default=0.0) > 0 and len(xs) > 2 and max(xs) / min(xs) >= 10
    return {
        "name": experiment.name,
        "kind": "bars" if vary is None else "lines",
        "axis": None if vary is None else axis_name(vary.parameter, vary.label),
        "percent": vary is not None and vary.parameter == "fraction",
        "log": spread,
        "xs": xs,
        "factors": list(experiment.factors),
        "datasets": list(experiment.datasets),
        "methods": list(dict.fromkeys(cell.method for cell in cells)),
        "cells": [cell_data(cell) for cell in cells],
    }


def axis_name(parameter: str, label: str) -> dict[str, str]:
    """The label of an axis, its subscript apart."""
    base, _, low = parameter.partition("_")
    if base in ("epsilon", "f") and (not low or low.isalpha()):
        return {"base": GREEK.get(base, base), "low": low}
    return {"base": label or parameter, "low": ""}


def cell_data(cell: Cell, metrics: Iterable[str] = tuple(METRIC_LABELS)) -> dict[str, Any]:
    """A point or a bar, for the page's script."""
    return {
        "dataset": cell.dataset,
        "method": cell.method,
        "k": cell.factors,
        "x": cell.x,
        "status": cell.status,
        "n": len(cell.mse.values),
        "seeds": len(cell.run_ids),
        "runs": anchor(cell),
        **{
            metric: {"mean": _finite(cell.summary(metric).mean), "std": _finite(cell.summary(metric).std)}
            for metric in metrics
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
