"""The demo's figure: accuracy by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hdpmf.plots import DOUBTFUL, FAINT, GOOD, INK, NEUTRAL, bare, new_figure, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"proved": GOOD, "nominal": DOUBTFUL, "none": NEUTRAL}
_MEANING = {
    "proved": "private: what can be learnt about a rating has a proved bound{}",
    "nominal": "private in name: the paper's number{}, which its proof does not carry",
    "none": "not private",
}
_CUT = 2.5
"""Bars longer than so many times that of a device that sends nothing are cut, so that others can be told apart."""


def accuracy_png(results: Sequence[Mapping[str, Any]], subtitle: str) -> bytes:
    """A horizontal bar per method, best on top, coloured by what its epsilon stands on.

    Args:
        results: Rows with ``method``, ``label``, ``mse``, ``mse_sd``, ``epsilon`` and ``epsilon_status``.
        subtitle: What was measured on.
    """
    from matplotlib.patches import Patch

    rows = sorted(results, key=lambda row: float(row["mse"]), reverse=True)
    baseline = next(float(row["mse"]) for row in rows if row["method"] == "user-mean")
    end = min(max(float(row["mse"]) + float(row["mse_sd"]) for row in rows), _CUT * baseline)
    present = [status for status in _COLOURS if any(row["epsilon_status"] == status for row in rows)]
    height = 0.46 * len(rows) + 0.25 * len(present) + 1.95
    figure = new_figure(9.0, height, dpi=150, facecolor="white")
    below = 0.25 * len(present) + 0.75
    axes = figure.add_axes((0.14, below / height, 0.83, 1 - (below + 1.05) / height))
    for position, row in enumerate(rows):
        _bar(axes, position, row, end)
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
    axes.set_yticks(range(len(rows)), [str(row["label"]) for row in rows], fontsize=11, color=INK)
    axes.set_xlim(0, end * 1.02)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("mean squared error on held-out ratings (shorter is better)", fontsize=10, color=FAINT)
    bare(axes)
    figure.text(0.02, 1 - 0.14 / height, "Accuracy by method", fontsize=14.5, fontweight="bold", color=INK, va="top")
    figure.text(0.02, 1 - 0.47 / height, subtitle, fontsize=9.5, color=FAINT, va="top")
    figure.legend(
        handles=[Patch(color=_COLOURS[status], label=_meaning(status, rows)) for status in present],
        loc="lower left",
        bbox_to_anchor=(0.012, 0.0),
        frameon=False,
        fontsize=9.5,
        labelcolor=INK,
        handlelength=1.2,
    )
    return saved(figure)


def _bar(axes: Axes, position: int, row: Mapping[str, Any], end: float) -> None:
    """A bar with its number inside, where no line runs; one that is too long is cut and says so."""
    error, spread = float(row["mse"]), float(row["mse_sd"])
    cut = error > end
    axes.barh(
        position,
        min(error, end),
        height=0.66,
        color=_COLOURS[row["epsilon_status"]],
        xerr=None if cut else spread,
        error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2.5},
    )
    if cut:
        for shift in (0.0, 0.012):
            place = (0.93 + shift) * end
            xs, ys = (place, place + 0.012 * end), (position - 0.4, position + 0.4)
            axes.plot(xs, ys, color="white", linewidth=2.0)
    inside = 0.9 * end if cut else error - spread
    axes.annotate(
        f"{error:.2f}",
        (inside, position),
        xytext=(-5, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=10,
        fontweight="bold",
        color=INK,
    )


def _meaning(status: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """What a colour means, with the budgets of the methods that have it."""
    budgets = {row["epsilon"] for row in rows if row["epsilon_status"] == status} - {None, 0.0}
    shown = ", ".join(f"{budget:g}" for budget in sorted(budgets))
    return _MEANING[status].format(f" (epsilon {shown})" if shown else "")
