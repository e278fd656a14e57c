"""Interactive figures of a report: their data and the static numbers below each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hdpmf.common.privacy.accounting import DELTA
from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    NDCG,
    NDCG_MARGIN,
    RANKING_LABELS,
    Content,
    anchor,
    four,
    highest,
    is_level,
    list_experiments,
    plain,
    table_cells,
    table_point,
)
from hdpmf.lab.report.honest_epsilon import HONEST_FIGURE, RATERS, Point, points, view_words
from hdpmf.lab.report.markup import (
    GREEK,
    STATUS_WORDS,
    Child,
    Html,
    claim_chip,
    guarantee,
    number,
    scroller,
    section,
    symbol,
    tag,
)

_FIGURES_LEAD = (
    "Lines are means over the seeds, bands one standard deviation. Point, tap or "
    "use the arrow keys for values, "
    "press Enter or click to keep them and follow a number to its runs; the legend "
    "takes methods out and in."
)


def charts_section(
    content: Content, experiments: Iterable[Experiment], captions: Mapping[str, str], *more: Child
) -> Html:
    """The figures of these experiments, each with its caption, by name."""
    figures = [
        _error_figure(
            content, experiment, content.error_cells(experiment), captions.get(experiment.name, "")
        )
        for experiment in experiments
    ]
    return section("figures", "Figures", figures, more, lead=_FIGURES_LEAD)


def _error_figure(
    content: Content, experiment: Experiment, cells: list[Cell], caption: str
) -> Html:
    titles = content.dataset_titles
    reference = (
        f"{experiment.reference[:1].upper()}{experiment.reference[1:]}. "
        if experiment.reference
        else ""
    )
    numbers = [_error_numbers(experiment, cells, k, titles) for k in experiment.factors]
    return chart_frame(
        experiment.name, experiment.title, experiment.title, [reference, caption], numbers
    )


def chart_frame(name: str, title: str, label: str, caption: Child, numbers: list[Html]) -> Html:
    """Where the page's script draws a figure, with its numbers below for those who run no
    script.
    """
    return tag(
        "figure",
        tag("h3", title, tag("span", name, class_="tagname")),
        tag("p", caption, class_="caption"),
        tag("div", class_="legend", role="group", aria_label=f"methods of {label}"),
        tag("div", class_="panels"),
        tag("p", class_="chartnote", role="note"),
        tag(
            "details",
            tag("summary", "All numbers of this figure"),
            numbers,
            open=True,
            class_="numbers",
        ),
        id=name,
        class_="chart",
        data_figure=name,
    )


def numbers_table(
    heads: list[Child],
    rows: Mapping[str, list[Html]],
    titles: Mapping[str, str],
    k: int,
    label: str,
) -> Html:
    """The numbers below a figure at one K: rows by data set, which their titles head."""
    bodies = []
    for dataset in rows:
        caption = tag("th", f"{titles[dataset]}, K = {k}", colspan=len(heads), scope="rowgroup")
        bodies.append(
            tag("tbody", tag("tr", caption, class_="dataset"), rows[dataset], data_dataset=dataset)
        )
    head = tag("thead", tag("tr", heads))
    return scroller(tag("table", head, bodies, class_="wide", data_k=k), f"{label}, K = {k}")


def _error_numbers(
    experiment: Experiment, cells: list[Cell], factors: int, titles: dict[str, str]
) -> Html:
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
            rows.setdefault(dataset, []).append(
                tag("tr", name_cell, [tag("td", both(cell)) for cell in curve])
            )
    if not rows:
        return tag("p", "Not run here.", class_="empty")
    return numbers_table(heads, rows, titles, factors, experiment.title)


def both(cell: Cell) -> list[Html]:
    """Both measures of a cell; the page's script shows the chosen one."""
    return [
        tag(
            "div",
            tag("span", METRIC_LABELS[metric], class_="which"),
            " ",
            number(cell, metric),
            data_metric=metric,
        )
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
                "words": ("ε 0, " if fixed else "ε " if status == "nominal" else "")
                + STATUS_WORDS.get(status, status),
                "why": "" if claim is None else f"{claim.view}; {claim.reason}",
            }
        )
    return {
        "methods": methods,
        "datasets": [
            {"name": name, "title": title} for name, title in content.dataset_titles.items()
        ],
        "figures": [
            figure_data(experiment, content.error_cells(experiment)) for experiment in experiments
        ],
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
            metric: {
                "mean": _finite(cell.summary(metric).mean),
                "std": _finite(cell.summary(metric).std),
            }
            for metric in metrics
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


_LISTS_LEAD = (
    "What a user would be shown: the ten items that come first of all with a "
    "training rating that the user has not "
    "rated. Relevant are test ratings in the top quarter of the scale (4 and 5 "
    "stars); users without one are left out. "
    "Larger is better, but for raters (how many people rated what is listed: the "
    "fewer, the more is new) and Gini (how "
    "unequally items share the places). Mean ± standard deviation over the seeds; "
    "beside NDCG half of its 95 % "
    "interval over users."
)


def lists_section(content: Content) -> Html:
    """The section; every experiment that measures lists has its part."""
    parts: list[Child] = []
    for experiment in list_experiments(content):
        parts.append(tag("h3", experiment.title, tag("span", experiment.name, class_="tagname")))
        parts += [_list_table(content, experiment, k) for k in experiment.factors]
        if experiment.vary is not None:
            parts.append(_list_figure(content, experiment))
    if not parts:
        parts.append(tag("p", "Lists of ten were not measured in these runs.", class_="empty"))
    return section("lists", "Lists of ten", parts, lead=_LISTS_LEAD)


def _list_table(content: Content, experiment: Experiment, k: int) -> Html:
    """Methods down, measures across, at one point of the axis."""
    x = table_point(experiment)
    varied = (
        ""
        if x is None or experiment.vary is None
        else f", {experiment.vary.parameter} = {plain(x)}"
    )
    heads: list[Child] = [
        tag("th", text, scope="col")
        for text in ("Method", "What is guaranteed", "NDCG@10", "± users")
    ]
    heads += [
        tag("th", label, scope="col") for metric, label in RANKING_LABELS.items() if metric != NDCG
    ]
    here = [cell for cell in table_cells(content, experiment) if cell.factors == k]
    rows: dict[str, list[Html]] = {}
    for dataset in experiment.datasets:
        cells = [cell for cell in here if cell.dataset == dataset]
        best = highest(cells)
        if cells:
            rows[dataset] = [_list_row(cell, strong=cell is best) for cell in cells]
    if not rows:
        return tag("p", "Not run here.", class_="empty")
    titles = {name: f"{title}{varied}" for name, title in content.dataset_titles.items()}
    return numbers_table(heads, rows, titles, k, f"lists of {experiment.title}")


def _list_row(cell: Cell, *, strong: bool) -> Html:
    margin = cell.summary(NDCG_MARGIN)
    entries: list[Child] = [
        tag("th", cell.label, scope="row"),
        tag(
            "td",
            tag(
                "span",
                guarantee(cell),
                class_=f"chip {'' if cell.claim is None else cell.claim.status}",
            ),
        ),
        tag("td", number(cell, NDCG, strong=strong)),
        tag("td", four(margin.mean) if margin.values else "–"),
    ]
    for metric in RANKING_LABELS:
        if metric != NDCG:
            summary = cell.summary(metric)
            shown = (
                f"{summary.mean:,.0f}" if metric.startswith("popularity") else four(summary.mean)
            )
            entries.append(tag("td", shown if summary.values else "–", data_list=metric))
    return tag("tr", entries)


def _list_figure(content: Content, experiment: Experiment) -> Html:
    caption = (
        "One curve per method; the legend says what its epsilon is worth, for what "
        "(values, or also whether an item "
        "was rated at all) and against whom. Level lines have no epsilon."
    )
    numbers = [_list_numbers(content, experiment, k) for k in experiment.factors]
    axis = (
        ""
        if experiment.vary is None
        else f" against {experiment.vary.label or experiment.vary.parameter}"
    )
    return chart_frame(
        _list_figure_name(experiment),
        f"NDCG@10{axis}",
        f"lists of {experiment.title}",
        caption,
        numbers,
    )


def _list_numbers(content: Content, experiment: Experiment, k: int) -> Html:
    name = "" if experiment.vary is None else experiment.vary.parameter
    heads: list[Child] = [tag("th", "Method", scope="col")]
    heads += [
        tag("th", f"{name} = {plain(x)}", scope="col") for x in experiment.xs if x is not None
    ]
    rows: dict[str, list[Html]] = {}
    for dataset in experiment.datasets:
        here = [
            c
            for c in content.cells.get(experiment.name, ())
            if (c.dataset, c.factors) == (dataset, k)
        ]
        for method in dict.fromkeys(cell.method for cell in here):
            curve = [cell for cell in here if cell.method == method]
            head = tag(
                "th",
                curve[0].label,
                " ",
                claim_chip(curve[0].claim, with_epsilon=False),
                scope="row",
            )
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
        why = {
            cell.method: "" if cell.claim is None else f"{cell.claim.view}; {cell.claim.reason}"
            for cell in cells
        }
        words = {cell.method: {"words": guarantee(cell), "why": why[cell.method]} for cell in cells}
        figures.append(
            {
                **figure_data(experiment, []),
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


HONEST_TITLE = "Accuracy against honest epsilon"


def honest_section(content: Content, absent: str = "Nothing here varies epsilon.") -> Html:
    """The figure and its numbers; where there are none, the words of ``absent``."""
    shown = points(content)
    if not shown:
        return section("honest", HONEST_TITLE, tag("p", absent, class_="empty"))
    factors = list(dict.fromkeys(point.cell.factors for point in shown))
    lead = (
        "The same runs as in the figure of accuracy against epsilon, moved to what a "
        "rating of weight 1 really costs "
        "against the recommender that the method has: one that sees every message, or, "
        "where the legend says so, only "
        "sums over users."
    )
    caption = (
        f"Honest epsilon at delta {DELTA:g}, by the accountant, for an item with "
        f"{RATERS} raters and all rounds "
        "together. For the paper's methods it counts the rating's own gradients only, "
        "at typical draws of h: the truth "
        "is further right. DPMF's and PDPMF's noise is set by the smallest and the "
        "mean weight of the data set. Level "
        "lines send nothing or protect nothing."
    )
    numbers = [
        _honest_numbers(content, [point for point in shown if point.cell.factors == k], k)
        for k in factors
    ]
    figure = chart_frame(
        HONEST_FIGURE, "One point per method and nominal epsilon", HONEST_TITLE, caption, numbers
    )
    return section("honest", HONEST_TITLE, figure, lead=lead)


def _honest_numbers(content: Content, shown: list[Point], factors: int) -> Html:
    xs = list(dict.fromkeys(point.cell.x for point in shown if point.x is not None))
    heads: list[Child] = [tag("th", "Method", scope="col")]
    heads += [tag("th", f"nominal ε = {plain(x or 0.0)}", scope="col") for x in xs]
    rows: dict[str, list[Html]] = {}
    for dataset in content.dataset_titles:
        here = [point for point in shown if point.cell.dataset == dataset]
        for method in dict.fromkeys(point.cell.method for point in here):
            mine = {point.cell.x: point for point in here if point.cell.method == method}
            first = next(iter(mine.values()))
            name = tag(
                "th",
                first.cell.label,
                " ",
                tag("span", view_words(first.cost), class_="chip"),
                scope="row",
            )
            entries = [
                tag("td", _honest_cost(mine[x]), both(mine[x].cell))
                if x in mine
                else tag("td", "–")
                for x in xs
            ]
            if first.x is None:
                entries = [tag("td", _honest_cost(first), both(first.cell), colspan=len(xs))]
            rows.setdefault(dataset, []).append(tag("tr", name, entries))
    return numbers_table(heads, rows, content.dataset_titles, factors, HONEST_TITLE)


def _honest_cost(point: Point) -> Html:
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
        why = (
            f"{charged.in_numbers()} at nominal epsilon {plain(point.cell.x or 0.0)}; "
            f"{charged.reason}"
        )
        words.setdefault(point.cell.method, {"words": view_words(charged), "why": why})
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
                {**cell_data(point.cell), "x": point.x, "nominal": point.cell.x} for point in shown
            ],
        }
    ]
