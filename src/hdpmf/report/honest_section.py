"""The headline comparison: accuracy against what privacy really costs."""

from __future__ import annotations

from typing import Any

from hdpmf.privacy.accounting import DELTA
from hdpmf.report.chart_sections import both, cell_data, chart_frame, numbers_table
from hdpmf.report.content import Content
from hdpmf.report.honest import NAME, RATERS, Point, points, view_words
from hdpmf.report.markup import Child, Html, tag
from hdpmf.report.numbers import plain
from hdpmf.report.pieces import section

TITLE = "Accuracy against honest epsilon"


def honest_section(content: Content, absent: str = "Nothing here varies epsilon.") -> Html:
    """The figure and its numbers; where there are none, the words of ``absent``."""
    shown = points(content)
    if not shown:
        return section("honest", TITLE, tag("p", absent, class_="empty"))
    factors = list(dict.fromkeys(point.cell.factors for point in shown))
    lead = (
        "The same runs as in the figure of accuracy against epsilon, moved to what a rating of weight 1 really costs "
        "against the recommender that the method has: one that sees every message, or, where the legend says so, only "
        "sums over users."
    )
    caption = (
        f"Honest epsilon at delta {DELTA:g}, by the accountant, for an item with {RATERS} raters and all rounds "
        "together. For the paper's methods it counts the rating's own gradients only, at typical draws of h: the truth "
        "is further right. DPMF's and PDPMF's noise is set by the smallest and the mean weight of the data set. Level "
        "lines send nothing or protect nothing."
    )
    numbers = [_numbers(content, [point for point in shown if point.cell.factors == k], k) for k in factors]
    figure = chart_frame(NAME, "One point per method and nominal epsilon", TITLE, caption, numbers)
    return section("honest", TITLE, figure, lead=lead)


def _numbers(content: Content, shown: list[Point], factors: int) -> Html:
    xs = list(dict.fromkeys(point.cell.x for point in shown if point.x is not None))
    heads: list[Child] = [tag("th", "Method", scope="col")]
    heads += [tag("th", f"nominal ε = {plain(x or 0.0)}", scope="col") for x in xs]
    rows: dict[str, list[Html]] = {}
    for dataset in content.dataset_titles:
        here = [point for point in shown if point.cell.dataset == dataset]
        for method in dict.fromkeys(point.cell.method for point in here):
            mine = {point.cell.x: point for point in here if point.cell.method == method}
            first = next(iter(mine.values()))
            name = tag("th", first.cell.label, " ", tag("span", view_words(first.cost), class_="chip"), scope="row")
            entries = [tag("td", _honest(mine[x]), both(mine[x].cell)) if x in mine else tag("td", "–") for x in xs]
            if first.x is None:
                entries = [tag("td", _honest(first), both(first.cell), colspan=len(xs))]
            rows.setdefault(dataset, []).append(tag("tr", name, entries))
    return numbers_table(heads, rows, content.dataset_titles, factors, TITLE)


def _honest(point: Point) -> Html:
    """The cost, in full in an attribute."""
    text = f"honest ε {point.cost.briefly()}"
    return tag("div", text, class_="theirs", data_honest=repr(point.cost.epsilon_at_delta))


def honest_data(content: Content) -> list[dict[str, Any]]:
    """What the page's script draws; nothing where there are no points."""
    shown = points(content)
    if not shown:
        return []
    words: dict[str, dict[str, str]] = {}
    for point in shown:
        charged = point.cost
        why = f"{charged.in_numbers()} at nominal epsilon {plain(point.cell.x or 0.0)}; {charged.reason}"
        words.setdefault(point.cell.method, {"words": view_words(charged), "why": why})
    with_points = {point.cell.dataset for point in shown}
    return [
        {
            "name": NAME,
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
            "cells": [{**cell_data(point.cell), "x": point.x, "nominal": point.cell.x} for point in shown],
        }
    ]
