"""Figures of commands: one palette, one style, and identical bytes for identical numbers."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INK = "#25303b"
FAINT = "#6b7785"
GRID = "#e6e9ed"

GOOD = "#2a9d7c"
DOUBTFUL = "#e0962e"
BAD = "#c2413b"
NEUTRAL = "#9aa5b1"

# No date, no version of matplotlib.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": "hdpmf", "Producer": None},
}


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """Return an empty figure, without pyplot's window system and global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), **options)
    FigureCanvasAgg(figure)
    return figure


def strip_frame(axes: Axes) -> None:
    """Remove frame and tick marks; draw a faint grid behind horizontal bars."""
    axes.tick_params(axis="both", length=0, labelcolor=INK)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


_LEGEND: dict[str, Any] = {"frameon": False, "labelcolor": INK, "handlelength": 1.2}


def add_title(figure: Figure, x: float, y: float, title: str, *, fontsize: float) -> None:
    """Add a bold title."""
    figure.text(x, y, title, fontsize=fontsize, fontweight="bold", color=INK, va="top")


def figure_bytes(figure: Figure, kind: str = "png", **options: Any) -> bytes:
    """Return the figure as a file of this kind."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=_METADATA[kind], **options)
    return buffer.getvalue()


_STATUS_COLOURS = {"proved": GOOD, "author's claim": DOUBTFUL, "nominal": DOUBTFUL, "none": NEUTRAL}

_STATUS_MEANING = {
    "proved": "private: what can be learnt about a rating has a proved bound{}",
    "author's claim": "private, says its author{}: not checked",
    "nominal": "private in name: the paper's number{}, which its proof does not carry",
    "none": "not private",
}

# Bars longer than so many times that of a device that sends nothing are cut: they would hide the
# differences between the others.
_CUT = 2.5


@dataclass(frozen=True, slots=True)
class Bar:
    """A method with its error; ``silent`` if it is a device that sends nothing."""

    label: str
    mse: float
    spread: float
    epsilon: float | None
    status: str
    silent: bool = False


def accuracy_png(bars: Sequence[Bar], subtitle: str) -> bytes:
    """Draw a bar per method, best on top, coloured by the status of its epsilon."""
    from matplotlib.patches import Patch

    rows = sorted(bars, key=lambda row: row.mse, reverse=True)
    baseline = next((row.mse for row in rows if row.silent), math.inf)
    end = min(max(row.mse + row.spread for row in rows), _CUT * baseline)
    present = [name for name in _STATUS_COLOURS if any(row.status == name for row in rows)]
    height = 0.46 * len(rows) + 0.25 * len(present) + 1.95
    figure = new_figure(9.0, height, dpi=150, facecolor="white")
    below = 0.25 * len(present) + 0.75
    axes = figure.add_axes((0.14, below / height, 0.83, 1 - (below + 1.05) / height))
    for position, row in enumerate(rows):
        _bar(axes, position, row, end)
    if math.isfinite(baseline):
        axes.axvline(baseline, color=INK, linewidth=1.1, linestyle=(0, (4, 3)), zorder=0.5)
        axes.annotate(
            "as good as sending nothing at all",
            (baseline, len(rows) - 0.42),
            xytext=(4, 0),
            textcoords="offset points",
            va="bottom",
            fontsize=8.5,
            color=FAINT,
            annotation_clip=False,
        )
    axes.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=11, color=INK)
    axes.set_xlim(0, end * 1.02)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(
        "mean squared error on held-out ratings (shorter is better)", fontsize=10, color=FAINT
    )
    strip_frame(axes)
    add_title(figure, 0.02, 1 - 0.14 / height, "Accuracy by method", fontsize=14.5)
    figure.text(0.02, 1 - 0.47 / height, subtitle, fontsize=9.5, color=FAINT, va="top")
    handles = [Patch(color=_STATUS_COLOURS[name], label=_meaning(name, rows)) for name in present]
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.012, 0.0), fontsize=9.5, **_LEGEND
    )
    return figure_bytes(figure)


def _bar(axes: Axes, position: int, row: Bar, end: float) -> None:
    """Draw a bar with its number inside; one that is too long is cut."""
    cut = row.mse > end
    axes.barh(
        position,
        min(row.mse, end),
        height=0.66,
        color=_STATUS_COLOURS[row.status],
        xerr=None if cut or not row.spread else row.spread,
        error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2.5},
    )
    if cut:
        for shift in (0.0, 0.012):
            left = (0.93 + shift) * end
            xs = (left, left + 0.012 * end)
            ys = (position - 0.4, position + 0.4)
            axes.plot(xs, ys, color="white", linewidth=2.0)
    inside = 0.9 * end if cut else row.mse - row.spread
    axes.annotate(
        f"{row.mse:.2f}",
        (inside, position),
        xytext=(-5, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=10,
        fontweight="bold",
        color=INK,
    )


def _meaning(status: str, rows: Sequence[Bar]) -> str:
    """Return the meaning of a colour, with the budgets of the methods that have it."""
    budgets = {row.epsilon for row in rows if row.status == status and row.epsilon}
    shown = ", ".join(f"{budget:g}" for budget in sorted(budgets))
    return _STATUS_MEANING[status].format(f" (epsilon {shown})" if shown else "")
