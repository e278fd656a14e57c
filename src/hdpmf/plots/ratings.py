"""How ratings are spread: the picture of ``hdpmf data info``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdpmf.plots import FAINT, GOOD, INK, bare, new_figure, saved

_BINS = 40
_DAY = 86_400


def spread_png(
    title: str,
    spread: Sequence[tuple[str, int]],
    user_counts: np.ndarray,
    item_counts: np.ndarray,
    timestamps: np.ndarray | None,
) -> bytes:
    """Bars of how often each rating was given, ratings per user and per item, and ratings over time."""
    panels = ["ratings"] * bool(spread) + ["counts"] + ["time"] * (timestamps is not None)
    figure = new_figure(4.2 * len(panels) + 0.6, 3.6, dpi=150, facecolor="white")
    width = 1.0 / len(panels)
    for place, panel in enumerate(panels):
        axes = figure.add_axes((width * place + 0.2 * width, 0.2, 0.74 * width, 0.58))
        bare(axes)
        axes.tick_params(labelsize=8.5, which="both")
        if panel == "ratings":
            axes.bar(range(len(spread)), [count for _, count in spread], color=GOOD)
            axes.set_xticks(range(len(spread)), [label for label, _ in spread], rotation=0 if len(spread) < 7 else 60)
            axes.set_title("how often each rating was given", fontsize=10, color=INK)
        elif panel == "counts":
            for label, counts, colour in (("users", user_counts, GOOD), ("items", item_counts, FAINT)):
                ordered = np.sort(counts[counts > 0])[::-1]
                axes.plot(np.arange(1, len(ordered) + 1), ordered, label=label, color=colour, linewidth=1.8)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.minorticks_off()
            axes.legend(frameon=False, fontsize=9)
            axes.set_title("rows of each, most first", fontsize=10, color=INK)
        elif timestamps is not None:
            days = timestamps.astype("datetime64[s]")
            counts, edges = np.histogram(timestamps, bins=min(_BINS, int(np.ptp(timestamps)) // _DAY + 1))
            axes.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=GOOD)
            axes.set_xticks([edges[0], edges[-1]], [str(days.min())[:10], str(days.max())[:10]])
            axes.get_xticklabels()[0].set_horizontalalignment("left")
            axes.get_xticklabels()[-1].set_horizontalalignment("right")
            axes.set_title("rows over time", fontsize=10, color=INK)
    figure.text(0.02, 0.94, title, fontsize=11.5, fontweight="bold", color=INK, va="top")
    return saved(figure)
