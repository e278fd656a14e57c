"""Errors of several models, as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hdpmf.plots import DOUBTFUL, FAINT, GOOD, INK, NEUTRAL, bare, new_figure, saved

_COLOURS = {
    "none": (NEUTRAL, "no privacy"),
    "nominal": (DOUBTFUL, "epsilon nominal"),
    "proved": (GOOD, "epsilon proved"),
}


def comparison_png(rows: Sequence[Mapping[str, Any]], title: str) -> bytes:
    """A bar per model, the best on top, coloured by what its epsilon is worth.

    Args:
        rows: With ``model``, ``mse`` and ``epsilon_is``, the best first.
        title: What was measured on.
    """
    from matplotlib.patches import Patch

    figure = new_figure(7.5, 0.4 * len(rows) + 1.4, dpi=150, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    errors = [float(row["mse"]) for row in rows]
    axes.barh(
        [row["model"] for row in rows], errors, height=0.66, color=[_COLOURS[row["epsilon_is"]][0] for row in rows]
    )
    for place, error in enumerate(errors):
        axes.annotate(f" {error:.3f}", (error, place), va="center", color=INK, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    bare(axes)
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel("mean squared error on test ratings", color=FAINT)
    used = {row["epsilon_is"] for row in rows}
    patches = [Patch(color=colour, label=words) for name, (colour, words) in _COLOURS.items() if name in used]
    figure.legend(handles=patches, loc="outside lower right", ncols=len(patches), frameon=False, fontsize=8)
    return saved(figure)
