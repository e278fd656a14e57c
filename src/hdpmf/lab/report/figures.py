"""Figures as PNG and PDF, one row, a panel per data set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.accounting import DELTA
from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.plots import figure_bytes, new_figure
from hdpmf.lab.report.content import (
    LABELS,
    METRIC_LABELS,
    NDCG,
    Content,
    axis_name,
    axis_value,
    by_dataset,
    guarantee,
    is_level,
)
from hdpmf.lab.report.tables import HONEST_FIGURE, Point, points, view_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# For methods that bring no colour of their own, in turn.
_FURTHER = ("#6a4fb3", "#7d8c00", "#c23b6b", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
_STYLE: Any = {
    "font.family": "serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "mathtext.fontset": "dejavuserif",
    "pdf.fonttype": 42,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Nobody's matplotlibrc may change what a report looks like.
    "axes.grid": False,
    "figure.constrained_layout.use": True,
    "text.usetex": False,
    "text.parse_math": False,
}


def figure_files(content: Content, experiments: Iterable[Experiment]) -> dict[str, bytes]:
    """Return figures by file name: these experiments, and accuracy against honest epsilon.

    Of lists there is NDCG@10.
    """
    import matplotlib as mpl

    files: dict[str, bytes] = {}
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        drawn = [figure for experiment in experiments for figure in _figures(content, experiment)]
        for stem, figure in [*drawn, *_honest_figures(content)]:
            files |= {
                f"{stem}.{kind}": figure_bytes(figure, kind, dpi=160) for kind in ("png", "pdf")
            }
    return files


def _figures(content: Content, experiment: Experiment) -> Iterator[tuple[str, Figure]]:
    every = content.cells.get(experiment.name, [])
    measured = [*(METRIC_LABELS if experiment.errors else ()), *([NDCG] * experiment.lists)]
    for metric in measured:
        if not any(cell.summary(metric).values for cell in every):
            continue
        cells = every if metric == NDCG else content.error_cells(experiment)
        if experiment.vary is None:
            yield f"{experiment.name}_{metric}", _bars(content, experiment, cells, metric)
            continue
        for k in experiment.factors:
            here = [cell for cell in cells if cell.factors == k]
            yield f"{experiment.name}_k{k}_{metric}", _lines(content, experiment, here, metric)


@dataclass(frozen=True, slots=True)
class Curve:
    """A method in one panel.

    Attributes:
        xs: Places on the axis; none for a level line. What is not there leaves a gap (NaN).
        spread: Half the width of the band; empty for none.
    """

    cell: Cell
    label: str
    xs: list[float]
    means: list[float]
    spread: list[float]


def _or_gap(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) else value


def _lines(content: Content, experiment: Experiment, cells: list[Cell], metric: str) -> Figure:
    """Draw a panel per data set, with a curve and its band per method."""
    curves = []
    for methods in by_dataset(cells).values():
        for row in methods.values():
            words = f" ({guarantee(row[0])})" if metric == NDCG else claim_words(row[0])
            level = metric == NDCG and is_level(experiment, row[0])
            shown = row[:1] if level else row
            summaries = [cell.summary(metric) for cell in shown]
            means = [_or_gap(summary.mean) for summary in summaries]
            spread = [0.0 if math.isnan(one := _or_gap(s.std)) else one for s in summaries]
            xs = [] if level else [_or_gap(cell.x) for cell in shown]
            curves.append(Curve(row[0], row[0].label + words, xs, means, spread))
    figure, panels = _curves(content, experiment.datasets, curves, metric, 2.5)
    name = axis_name(experiment)
    base = r"\epsilon" if name["base"] == "ε" else name["base"]
    for axes in panels:
        _x_axis(axes, experiment)
        if name["low"]:
            axes.set_xlabel(f"${base}_{{{name['low']}}}$", parse_math=True)
        else:
            axes.set_xlabel(name["base"], parse_math=False)
        if not axes.lines:
            axes.annotate("not run", (0.5, 0.5), xycoords="axes fraction", ha="center")
    _legend(figure, panels)
    return figure


def _curves(
    content: Content, datasets: Sequence[str], curves: list[Curve], metric: str, height: float
) -> tuple[Figure, list[Axes]]:
    figure, panels = _canvas(len(datasets), height)
    for letter, dataset, axes in zip(ascii_lowercase, datasets, panels, strict=False):
        here = [curve for curve in curves if curve.cell.dataset == dataset]
        order = list(content.method_labels)
        for curve in sorted(here, key=lambda curve: order.index(curve.cell.method)):
            if all(map(math.isnan, curve.means)):
                continue
            look = _look(content, curve.cell.method, content.experiments[curve.cell.experiment])
            if not curve.xs:
                line = {"color": look["color"], "linewidth": 1.1, "linestyle": ":"}
                axes.axhline(curve.means[0], label=curve.label, **line)
                continue
            axes.plot(curve.xs, curve.means, label=curve.label, linewidth=1.4, markersize=4, **look)
            if curve.spread:
                ends = list(zip(curve.means, curve.spread, strict=True))
                low, high = [m - s for m, s in ends], [m + s for m, s in ends]
                axes.fill_between(curve.xs, low, high, color=look["color"], alpha=0.15, linewidth=0)
        _y_axis(axes, [mean for curve in here for mean in curve.means])
        axes.set_title(f"({letter}) {content.dataset_titles[dataset]}", parse_math=False)
    panels[0].set_ylabel(LABELS[metric])
    return figure, panels


def _canvas(panels: int, height: float, width: float = 3.1) -> tuple[Figure, list[Axes]]:
    """Return panels side by side, wide enough for a legend."""
    figure = new_figure(max(width * panels, 5.4), height)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _honest_figures(content: Content) -> Iterator[tuple[str, Figure]]:
    shown = points(content)
    for k in dict.fromkeys(point.cell.factors for point in shown if point.cell.mse.values):
        here = [point for point in shown if point.cell.factors == k]
        for metric in METRIC_LABELS:
            yield f"{HONEST_FIGURE}_k{k}_{metric}", _honest(content, here, metric)


def _honest(content: Content, shown: list[Point], metric: str) -> Figure:
    """Draw errors against honest epsilon; methods without one are level lines."""
    curves = []
    for methods in by_dataset(shown).values():
        for row in methods.values():
            label = f"{row[0].cell.label} ({view_words(row[0].cost)})"
            xs = [] if row[0].x is None else [_or_gap(point.x) for point in row]
            means = [_or_gap(point.cell.metrics[metric].mean) for point in row]
            curves.append(Curve(row[0].cell, label, xs, means, []))
    figure, panels = _curves(content, list(by_dataset(shown)), curves, metric, 2.7)
    xs = [point.x for point in shown if point.x is not None]
    for axes in panels:
        axes.set_xscale("log")
        axes.set_xlim(min(xs) / 1.6, max(xs) * 1.6)
        axes.set_xlabel(f"honest ε of a rating (δ = {DELTA:g})", parse_math=False)
    _powers_of_ten(panels)
    _legend(figure, panels)
    return figure


def _powers_of_ten(panels: list[Axes]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    for axes in panels:
        axes.minorticks_off()
        axes.xaxis.set_major_locator(LogLocator(numticks=4))
        # Plain digits: powers would need the mathematics that names may not reach.
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
        )


def _bars(content: Content, experiment: Experiment, cells: list[Cell], metric: str) -> Figure:
    """Draw a panel per K, a group of bars per data set."""
    figure, panels = _canvas(len(experiment.factors), 2.5, 5.4)
    methods = [name for name in content.method_labels if any(cell.method == name for cell in cells)]
    wide = 0.84 / max(1, len(methods))
    titles = [content.dataset_titles[name] for name in experiment.datasets]
    for letter, k, axes in zip(ascii_lowercase, experiment.factors, panels, strict=False):
        for position, method in enumerate(methods):
            here = [cell for cell in cells if (cell.method, cell.factors) == (method, k)]
            shift = (position - len(methods) / 2 + 0.5) * wide
            positions = [experiment.datasets.index(cell.dataset) + shift for cell in here]
            summaries = [cell.summary(metric) for cell in here]
            axes.bar(
                positions,
                [one.mean if math.isfinite(one.mean) else 0.0 for one in summaries],
                wide * 0.94,
                yerr=[one.std if math.isfinite(one.std) else 0.0 for one in summaries],
                color=_look(content, method, experiment)["color"],
                label=content.method_labels[method],
                error_kw={"elinewidth": 0.8},
            )
            for x, cell in zip(positions, here, strict=True):
                if not math.isfinite(cell.summary(metric).mean):
                    word = "not run" if cell.status == "missing" else cell.status
                    axes.annotate(word, (x, 0.0), rotation=90, ha="center", va="bottom", fontsize=6)
        axes.set_xticks(range(len(titles)), titles, parse_math=False)
        axes.set_title(f"({letter}) K = {k}")
    panels[0].set_ylabel(LABELS[metric])
    _legend(figure, panels)
    return figure


def _x_axis(axes: Axes, experiment: Experiment) -> None:
    xs = [float(x) for x in experiment.xs if x is not None]
    if min(xs) > 0 and len(xs) > 2 and max(xs) / min(xs) >= 10:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    axes.set_xticks(xs, [axis_value(x, experiment) for x in xs], parse_math=False)


def _y_axis(axes: Axes, means: list[float]) -> None:
    """Use a log scale if errors are far apart."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    known = [mean for mean in means if math.isfinite(mean)]
    if known and 0 < 4 * min(known) < max(known):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, panels: list[Axes]) -> None:
    """Add a legend above all panels, in as many columns as fit; the figure grows by it."""
    entries: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    for columns in range(min(len(entries), 5), 0, -1):
        legend = figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside upper center",
            ncols=columns,
            frameon=False,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        box = legend.get_window_extent()
        if box.width <= 0.98 * figure.bbox.width or columns == 1:
            width, height = figure.get_size_inches()
            figure.set_size_inches(
                max(width, box.width / figure.dpi / 0.98), height + box.height / figure.dpi
            )
            return
        legend.remove()


def claim_words(cell: Cell) -> str:
    """Return the claim of a curve, for the legend."""
    if cell.claim is None:
        return ""
    if cell.claim.epsilon is None:
        return " (no privacy)"
    return f" (ε {'0, ' if cell.claim.epsilon == 0.0 else ''}{cell.claim.status})"


def _look(content: Content, method: str, experiment: Experiment) -> dict[str, Any]:
    """Return a method's colour and marker; methods that are not in the paper are dashed."""
    coloured = {name: known.colour for name, known in METHODS.items() if known.colour}
    others = [name for name in content.method_labels if name not in coloured]
    colour = coloured.get(method) or _FURTHER[others.index(method) % len(_FURTHER)]
    order = [*coloured, *others]
    dashed = experiment.paper_methods and method not in experiment.paper_methods
    marker = _MARKERS[order.index(method) % len(_MARKERS)]
    return {"color": colour, "marker": marker, "linestyle": "--" if dashed else "-"}
