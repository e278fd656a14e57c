"""Figures of commands: one palette, one style, and identical bytes for identical numbers."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
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


_OBSERVER_COLOURS = {
    "no guarantee": BAD,
    "nominal": DOUBTFUL,
    "author's claim": DOUBTFUL,
    "proved": GOOD,
}

_OBSERVER_MEANING = {
    "no guarantee": "no guarantee",
    "nominal": "nominal: one channel counted, no guarantee",
    "author's claim": "says its author: not checked",
    "proved": "proved: never more than this",
}


@dataclass(frozen=True, slots=True)
class Guess:
    """The rate at which an observer guesses right about one kind of person."""

    person: str
    right: float
    status: str
    said: str


def guess_png(guesses: Mapping[str, Sequence[Guess]], title: str) -> bytes:
    """Draw a bar from 50 % (a coin) to the rate of right guesses, per observer and user."""
    from matplotlib.patches import Patch

    rows: list[tuple[float, Guess]] = []
    position = 0.0
    heads = []
    for observer, of_observer in guesses.items():
        heads.append((position, observer))
        position += 0.95
        for guess in of_observer:
            rows.append((position, guess))
            position += 0.8
        position += 0.45
    figure = new_figure(9.0, 0.36 * position + 1.7, dpi=150, facecolor="white")
    height = figure.get_size_inches()[1]
    axes = figure.add_axes((0.17, 0.62 / height, 0.73, 1 - 1.75 / height))
    for y, guess in rows:
        axes.barh(y, guess.right - 0.5, left=0.5, height=0.6, color=_OBSERVER_COLOURS[guess.status])
        axes.annotate(
            guess.said,
            (max(guess.right, 0.5) + 0.006, y),
            va="center",
            fontsize=9,
            color=INK,
            annotation_clip=False,
        )
    for y, observer in heads:
        axes.annotate(observer, (0.5, y), va="center", fontsize=9.5, color=INK, fontweight="bold")
    axes.set_yticks(
        [y for y, _ in rows], [guess.person for _, guess in rows], fontsize=9.5, color=INK
    )
    axes.set_xlim(0.5, 1.0)
    axes.set_ylim(position - 0.3, -0.6)
    axes.set_xticks(
        [0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
        ["50 %\na coin", "60 %", "70 %", "80 %", "90 %", "100 %\ncertain"],
    )
    axes.tick_params(labelsize=9)
    strip_frame(axes)
    top = 1 - 0.16 / height
    title_words = "One star or five? How often an observer is right"
    add_title(figure, 0.02, top, title_words, fontsize=14)
    figure.text(0.02, top - 0.34 / height, title, fontsize=9.5, color=FAINT, va="top")
    present = {guess.status for _, guess in rows}
    handles = [
        Patch(color=colour, label=_OBSERVER_MEANING[status])
        for status, colour in _OBSERVER_COLOURS.items()
        if status in present
    ]
    corner = (0.012, top - 0.56 / height)
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=corner, ncols=3, fontsize=9, **_LEGEND
    )
    return figure_bytes(figure)
