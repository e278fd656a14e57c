"""What all figures share: one palette, one bare look, and the same bytes for the same numbers."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#25303b", "#6b7785", "#e6e9ed"
GOOD, DOUBTFUL, BAD, NEUTRAL = "#2a9d7c", "#e0962e", "#c2413b", "#9aa5b1"

# No date, no version of matplotlib.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": "hdpmf", "Producer": None},
}


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """An empty figure. Without pyplot: no window system is looked for and no global state is left behind."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), **options)
    FigureCanvasAgg(figure)
    return figure


def bare(axes: Axes) -> None:
    """No frame and no tick marks, a faint grid behind bars that lie."""
    axes.tick_params(axis="both", length=0, labelcolor=INK)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def saved(figure: Figure, kind: str = "png", **options: Any) -> bytes:
    """The figure as a file of this kind."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=_METADATA[kind], **options)
    return buffer.getvalue()
