"""The demo's figure: accuracy by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hdpmf.plots import DOUBTFUL, FAINT, GOOD, INK, NEUTRAL, bare, new_figure, saved

_COLOURS = {"none": NEUTRAL, "nominal": DOUBTFUL, "proved": GOOD}
_MEANING = {
    "none": "no privacy",
    "nominal": "epsilon {}, nominal: the paper's number, not a guarantee",
    "proved": "epsilon {}, proved",
}


def accuracy_png(results: Sequence[Mapping[str, Any]], subtitle: str) -> bytes:
    """A horizontal bar per method, best on top, coloured by what its epsilon stands on.

    Args:
        results: Rows with ``method``, ``label``, ``mse``, ``mse_sd``, ``epsilon`` and ``epsilon_status``.
        subtitle: What was measured on.
    """
    from matplotlib.patches import Patch

    rows = sorted(results, key=lambda row: float(row["mse"]), reverse=True)
    errors = [float(row["mse"]) for row in rows]
    figure = new_figure(9.0, 0.52 * len(rows) + 1.9, dpi=150, facecolor="white")
    axes = figure.add_axes((0.14, 0.135, 0.83, 0.69))
    positions = range(len(rows))
    axes.barh(
        positions,
        errors,
        height=0.66,
        color=[_COLOURS[row["epsilon_status"]] for row in rows],
        xerr=[float(row["mse_sd"]) for row in rows],
        error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2.5},
    )
    widest = max(errors)
    for position, row, error in zip(positions, rows, errors, strict=True):
        axes.annotate(
            f"{error:.2f}",
            (error + float(row["mse_sd"]) + 0.012 * widest, position),
            va="center",
            fontsize=10,
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
        )
    baseline = next(float(row["mse"]) for row in rows if row["method"] == "user-mean")
    axes.axvline(baseline, color=INK, linewidth=1.1, linestyle=(0, (4, 3)), zorder=0.5)
    axes.annotate(
        "user mean: nothing leaves the device",
        (baseline, len(rows) - 0.42),
        xytext=(4, 0),
        textcoords="offset points",
        va="bottom",
        fontsize=8.5,
        color=FAINT,
        annotation_clip=False,
    )
    axes.set_yticks(list(positions), [str(row["label"]) for row in rows], fontsize=11, color=INK)
    axes.set_xlim(0, widest * 1.1)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("mean squared error on held-out ratings (lower is better)", fontsize=10, color=FAINT)
    bare(axes)
    figure.text(0.02, 0.965, "Accuracy by method", fontsize=14.5, fontweight="bold", color=INK, va="top")
    figure.text(0.02, 0.905, subtitle, fontsize=9.5, color=FAINT, va="top")
    present = {row["epsilon_status"] for row in rows}
    axes.legend(
        handles=[
            Patch(color=_COLOURS[status], label=_meaning(status, rows)) for status in _COLOURS if status in present
        ],
        loc="center right",
        bbox_to_anchor=(1.0, 0.62),
        framealpha=1.0,
        edgecolor="none",
        borderpad=0.8,
        labelspacing=0.8,
        fontsize=9.5,
        labelcolor=INK,
    )
    return saved(figure)


def _meaning(status: str, rows: Sequence[Mapping[str, Any]]) -> str:
    budgets = {row["epsilon"] for row in rows if row["epsilon_status"] == status} - {None}
    return _MEANING[status].format(", ".join(f"{budget:g}" for budget in sorted(budgets)))
