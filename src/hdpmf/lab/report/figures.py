"""Figures as PNG and PDF, one row, a panel per data set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.accounting import DELTA
from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.plots import figure_bytes, new_figure
from hdpmf.lab.report.charts import axis_name
from hdpmf.lab.report.content import (
    LABELS,
    METRIC_LABELS,
    NDCG,
    Content,
    guarantee,
    is_level,
    ndcg,
    plain,
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
    measured = [
        *(METRIC_LABELS if experiment.errors else ()),
        *([NDCG] if experiment.lists else []),
    ]
    for metric in (
        metric for metric in measured if any(cell.summary(metric).values for cell in every)
    ):
        cells = every if metric == NDCG else content.error_cells(experiment)
        if experiment.vary is None:
            yield f"{experiment.name}_{metric}", _bars(content, experiment, cells, metric)
            continue
        for k in experiment.factors:
            here = [cell for cell in cells if cell.factors == k]
            yield f"{experiment.name}_k{k}_{metric}", _lines(content, experiment, here, metric)


def _canvas(panels: int, height: float, width: float = 3.1) -> tuple[Figure, list[Axes]]:
    """Return panels side by side, wide enough for a legend."""
    figure = new_figure(max(width * panels, 5.4), height)
    axes = figure.subplots(1, panels, squeeze=False)[0]
    return figure, list(axes)


def _lines(content: Content, experiment: Experiment, cells: list[Cell], metric: str) -> Figure:
    datasets = experiment.datasets
    figure, panels = _canvas(len(datasets), 2.5)
    vary = experiment.vary
    name = {"base": "", "low": ""} if vary is None else axis_name(vary.parameter, vary.label)
    for letter, dataset, axes in zip("abcdefghijklmnopqrstuvwxyz", datasets, panels, strict=False):
        here = [cell for cell in cells if cell.dataset == dataset]
        for method in content.method_labels:
            curve = [cell for cell in here if cell.method == method]
            look = _look(content, method, experiment)
            if metric == NDCG and curve and is_level(experiment, curve[0]):
                _level(axes, curve[0], look)
            else:
                _curve(axes, curve, metric, look)
        if not _y_axis(axes, here, metric):
            axes.annotate("not run", (0.5, 0.5), xycoords="axes fraction", ha="center")
        _x_axis(axes, experiment)
        axes.set_title(f"({letter}) {content.dataset_titles[dataset]}", parse_math=False)
        if name["low"]:
            axes.set_xlabel(
                f"${_MATH.get(name['base'], name['base'])}_{{{name['low']}}}$", parse_math=True
            )
        else:
            axes.set_xlabel(name["base"], parse_math=False)
    panels[0].set_ylabel(LABELS[metric])
    _legend(figure, panels)
    return figure


_MATH = {"ε": r"\epsilon"}


def _curve(axes: Axes, cells: list[Cell], metric: str, look: dict[str, Any]) -> None:
    """Draw a line with its band; a missing point leaves a gap."""
    if not cells:
        return
    xs = [math.nan if cell.x is None else cell.x for cell in cells]
    means = [cell.summary(metric).mean for cell in cells]
    means = [mean if math.isfinite(mean) else math.nan for mean in means]
    spread = [std if math.isfinite(std := cell.summary(metric).std) else 0.0 for cell in cells]
    if all(map(math.isnan, means)):
        return
    words = f" ({guarantee(cells[0])})" if metric == NDCG else claim_words(cells[0])
    axes.plot(xs, means, label=cells[0].label + words, linewidth=1.4, markersize=4, **look)
    low = [mean - std for mean, std in zip(means, spread, strict=True)]
    high = [mean + std for mean, std in zip(means, spread, strict=True)]
    axes.fill_between(xs, low, high, color=look["color"], alpha=0.15, linewidth=0)


def _level(axes: Axes, cell: Cell, look: dict[str, Any]) -> None:
    """Draw a method without an epsilon across the whole axis."""
    if math.isfinite(ndcg(cell)):
        label = f"{cell.label} ({guarantee(cell)})"
        axes.axhline(ndcg(cell), label=label, linewidth=1.1, color=look["color"], linestyle=":")


def _honest_figures(content: Content) -> Iterator[tuple[str, Figure]]:
    shown = points(content)
    for k in dict.fromkeys(point.cell.factors for point in shown if point.cell.mse.values):
        here = [point for point in shown if point.cell.factors == k]
        for metric in METRIC_LABELS:
            yield f"{HONEST_FIGURE}_k{k}_{metric}", _honest(content, here, metric)


def _honest(content: Content, shown: list[Point], metric: str) -> Figure:
    """Draw errors against honest epsilon; methods without one are level lines."""
    datasets = [
        name
        for name in content.dataset_titles
        if any(point.cell.dataset == name for point in shown)
    ]
    figure, panels = _canvas(len(datasets), 2.7)
    xs = [point.x for point in shown if point.x is not None]
    for letter, dataset, axes in zip("abcdefghijklmnopqrstuvwxyz", datasets, panels, strict=False):
        here = [point for point in shown if point.cell.dataset == dataset]
        axes.set_xscale("log")
        if xs:
            axes.set_xlim(min(xs) / 1.6, max(xs) * 1.6)
        for method in content.method_labels:
            mine = [point for point in here if point.cell.method == method]
            # What is not there leaves a gap.
            means = [
                mean if math.isfinite(mean := point.cell.metrics[metric].mean) else math.nan
                for point in mine
            ]
            if all(map(math.isnan, means)):
                continue
            look = _look(content, method, content.experiments[mine[0].cell.experiment])
            label = f"{mine[0].cell.label} ({view_words(mine[0].cost)})"
            if mine[0].x is None:
                axes.axhline(
                    means[0], label=label, linewidth=1.1, color=look["color"], linestyle=":"
                )
                continue
            positions = [math.nan if point.x is None else point.x for point in mine]
            axes.plot(positions, means, label=label, linewidth=1.4, markersize=4, **look)
        _y_axis(axes, [point.cell for point in here], metric)
        axes.set_title(f"({letter}) {content.dataset_titles[dataset]}", parse_math=False)
        axes.set_xlabel(f"honest ε of a rating (δ = {DELTA:g})", parse_math=False)
    _powers_of_ten(panels)
    panels[0].set_ylabel(METRIC_LABELS[metric])
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
    for letter, k, axes in zip("abcdefgh", experiment.factors, panels, strict=False):
        for position, method in enumerate(methods):
            here = [cell for cell in cells if (cell.method, cell.factors) == (method, k)]
            shift = (position - len(methods) / 2 + 0.5) * wide
            positions = [experiment.datasets.index(cell.dataset) + shift for cell in here]
            means = [cell.summary(metric).mean for cell in here]
            stds = [cell.summary(metric).std for cell in here]
            axes.bar(
                positions,
                [mean if math.isfinite(mean) else 0.0 for mean in means],
                wide * 0.94,
                yerr=[std if math.isfinite(std) else 0.0 for std in stds],
                color=_look(content, method, experiment)["color"],
                label=content.method_labels[method],
                error_kw={"elinewidth": 0.8},
            )
            for x, mean, cell in zip(positions, means, here, strict=True):
                if not math.isfinite(mean):
                    word = "not run" if cell.status == "missing" else cell.status
                    axes.annotate(word, (x, 0.0), rotation=90, ha="center", va="bottom", fontsize=6)
        titles = [content.dataset_titles[name] for name in experiment.datasets]
        axes.set_xticks(range(len(titles)), titles, parse_math=False)
        axes.set_title(f"({letter}) K = {k}")
    panels[0].set_ylabel(LABELS[metric])
    _legend(figure, panels)
    return figure


def _x_axis(axes: Axes, experiment: Experiment) -> None:
    xs = [float(x) for x in experiment.xs if x is not None]
    percent = experiment.vary is not None and experiment.vary.parameter == "fraction"
    if min(xs) > 0 and len(xs) > 2 and max(xs) / min(xs) >= 10:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    axes.set_xticks(xs, [f"{100 * x:g}%" if percent else plain(x) for x in xs], parse_math=False)


def _y_axis(axes: Axes, cells: list[Cell], metric: str) -> bool:
    """Use a log scale if errors are far apart; return whether there are any."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    means = [mean for cell in cells if math.isfinite(mean := cell.summary(metric).mean)]
    if means and 0 < 4 * min(means) < max(means):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    return bool(means)


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
    return (
        f" (ε 0, {cell.claim.status})" if cell.claim.epsilon == 0.0 else f" (ε {cell.claim.status})"
    )


def _look(content: Content, method: str, experiment: Experiment) -> dict[str, Any]:
    """Return a method's colour and marker; methods that are not in the paper are dashed."""
    coloured = {name: known.colour for name, known in METHODS.items() if known.colour}
    others = [name for name in content.method_labels if name not in coloured]
    colour = coloured.get(method) or _FURTHER[others.index(method) % len(_FURTHER)]
    order = [*coloured, *others]
    dashed = experiment.paper_methods and method not in experiment.paper_methods
    marker = _MARKERS[order.index(method) % len(_MARKERS)]
    return {"color": colour, "marker": marker, "linestyle": "--" if dashed else "-"}
