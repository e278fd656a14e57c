"""Lists in the page: a table and a figure of their own."""

from __future__ import annotations

from typing import Any

from hdpmf.experiments import Cell, Experiment
from hdpmf.report.chart_sections import cell_data, chart_frame, figure_data, numbers_table
from hdpmf.report.content import Content
from hdpmf.report.lists import highest, is_level, list_experiments, table_cells, table_point
from hdpmf.report.markup import Child, Html, tag
from hdpmf.report.numbers import NDCG, NDCG_MARGIN, RANKING_LABELS, four, plain
from hdpmf.report.pieces import claim_chip, guarantee, number, section

_LEAD = (
    "What a user would be shown: the ten items that come first of all with a training rating that the user has not "
    "rated. Relevant are test ratings in the top quarter of the scale (4 and 5 stars); users without one are left out. "
    "Larger is better, but for raters (how many people rated what is listed: the fewer, the more is new) and Gini (how "
    "unequally items share the places). Mean ± standard deviation over the seeds; beside NDCG half of its 95 % "
    "interval over users."
)


def lists_section(content: Content) -> Html:
    """The section; every experiment that measures lists has its part."""
    parts: list[Child] = []
    for experiment in list_experiments(content):
        parts.append(tag("h3", experiment.title, tag("span", experiment.name, class_="tagname")))
        parts += [_table(content, experiment, k) for k in experiment.factors]
        if experiment.vary is not None:
            parts.append(_figure(content, experiment))
    if not parts:
        parts.append(tag("p", "Lists of ten were not measured in these runs.", class_="empty"))
    return section("lists", "Lists of ten", parts, lead=_LEAD)


def _table(content: Content, experiment: Experiment, k: int) -> Html:
    """Methods down, measures across, at one point of the axis."""
    x = table_point(experiment)
    varied = "" if x is None or experiment.vary is None else f", {experiment.vary.parameter} = {plain(x)}"
    heads: list[Child] = [
        tag("th", text, scope="col") for text in ("Method", "What is guaranteed", "NDCG@10", "± users")
    ]
    heads += [tag("th", label, scope="col") for metric, label in RANKING_LABELS.items() if metric != NDCG]
    here = [cell for cell in table_cells(content, experiment) if cell.factors == k]
    rows: dict[str, list[Html]] = {}
    for dataset in experiment.datasets:
        cells = [cell for cell in here if cell.dataset == dataset]
        best = highest(cells)
        if cells:
            rows[dataset] = [_row(cell, strong=cell is best) for cell in cells]
    if not rows:
        return tag("p", "Not run here.", class_="empty")
    titles = {name: f"{title}{varied}" for name, title in content.dataset_titles.items()}
    return numbers_table(heads, rows, titles, k, f"lists of {experiment.title}")


def _row(cell: Cell, *, strong: bool) -> Html:
    margin = cell.summary(NDCG_MARGIN)
    entries: list[Child] = [
        tag("th", cell.label, scope="row"),
        tag("td", tag("span", guarantee(cell), class_=f"chip {'' if cell.claim is None else cell.claim.status}")),
        tag("td", number(cell, NDCG, strong=strong)),
        tag("td", four(margin.mean) if margin.values else "–"),
    ]
    for metric in RANKING_LABELS:
        if metric != NDCG:
            summary = cell.summary(metric)
            shown = f"{summary.mean:,.0f}" if metric.startswith("popularity") else four(summary.mean)
            entries.append(tag("td", shown if summary.values else "–", data_list=metric))
    return tag("tr", entries)


def _figure(content: Content, experiment: Experiment) -> Html:
    caption = (
        "One curve per method; the legend says what its epsilon is worth, for what (values, or also whether an item "
        "was rated at all) and against whom. Level lines have no epsilon."
    )
    numbers = [_numbers(content, experiment, k) for k in experiment.factors]
    axis = "" if experiment.vary is None else f" against {experiment.vary.label or experiment.vary.parameter}"
    return chart_frame(_name(experiment), f"NDCG@10{axis}", f"lists of {experiment.title}", caption, numbers)


def _numbers(content: Content, experiment: Experiment, k: int) -> Html:
    name = "" if experiment.vary is None else experiment.vary.parameter
    heads: list[Child] = [tag("th", "Method", scope="col")]
    heads += [tag("th", f"{name} = {plain(x)}", scope="col") for x in experiment.xs if x is not None]
    rows: dict[str, list[Html]] = {}
    for dataset in experiment.datasets:
        here = [c for c in content.cells.get(experiment.name, ()) if (c.dataset, c.factors) == (dataset, k)]
        for method in dict.fromkeys(cell.method for cell in here):
            curve = [cell for cell in here if cell.method == method]
            head = tag("th", curve[0].label, " ", claim_chip(curve[0].claim, with_epsilon=False), scope="row")
            entries = [tag("td", number(cell, NDCG)) for cell in curve]
            if is_level(experiment, curve[0]):
                entries = [tag("td", number(curve[0], NDCG), colspan=len(curve))]
            rows.setdefault(dataset, []).append(tag("tr", head, entries))
    return numbers_table(heads, rows, content.dataset_titles, k, experiment.title)


def list_data(content: Content) -> list[dict[str, Any]]:
    """What the page's script draws."""
    figures = []
    for experiment in list_experiments(content):
        if experiment.vary is None:
            continue
        cells = content.cells.get(experiment.name, [])
        shown: list[dict[str, Any]] = []
        for cell in cells:
            level = is_level(experiment, cell)
            if not level or cell.x == float(experiment.vary.values[0]):
                shown.append({**cell_data(cell, (NDCG,)), "x": None if level else cell.x})
        why = {cell.method: "" if cell.claim is None else f"{cell.claim.view}; {cell.claim.reason}" for cell in cells}
        words = {cell.method: {"words": guarantee(cell), "why": why[cell.method]} for cell in cells}
        figures.append(
            {
                **figure_data(experiment, []),
                "name": _name(experiment),
                "metric": NDCG,
                "methods": list(words),
                "words": words,
                "cells": shown,
            }
        )
    return figures


def _name(experiment: Experiment) -> str:
    return f"{experiment.name}-curves"
