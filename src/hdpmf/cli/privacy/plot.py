"""The picture of ``hdpmf privacy explain``: how often each observer guesses right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hdpmf.methods import method_named
from hdpmf.methods.words import OBSERVERS, observer
from hdpmf.plots import BAD, DOUBTFUL, FAINT, GOOD, INK, bare, new_figure, saved

if TYPE_CHECKING:
    from hdpmf.cli.privacy.explain import Line

_COLOURS = {"no guarantee": BAD, "nominal": DOUBTFUL, "proved": GOOD}
_MEANING = {
    "no guarantee": "no guarantee",
    "nominal": "nominal: one channel counted, no guarantee",
    "proved": "proved: never more than this",
}


def guess_png(lines: Sequence[Line], title: str) -> bytes:
    """A bar from 50 % (a coin) to how often the observer is right, per observer and user."""
    from matplotlib.patches import Patch

    from hdpmf.cli.privacy.explain import percent

    views = list(dict.fromkeys(line.view for line in lines))
    rows: list[tuple[float, Line]] = []
    position, heads = 0.0, []
    for view in views:
        heads.append((position, view))
        position += 0.95
        for line in (one for one in lines if one.view == view):
            rows.append((position, line))
            position += 0.8
        position += 0.45
    figure = new_figure(9.0, 0.36 * position + 1.7, dpi=150, facecolor="white")
    height = figure.get_size_inches()[1]
    axes = figure.add_axes((0.17, 0.62 / height, 0.73, 1 - 1.75 / height))
    for place, line in rows:
        cost = line.cost
        colour = _COLOURS[cost.status]
        axes.barh(place, cost.guess - 0.5, left=0.5, height=0.6, color=colour)
        said = "no bound" if cost.status == "no guarantee" else percent(cost.guess)
        axes.annotate(said, (max(cost.guess, 0.5) + 0.006, place), va="center", fontsize=9, color=INK,
                      annotation_clip=False)  # fmt: skip
    for place, view in heads:
        shown = observer(view, method_named(lines[0].cost.method).has_h)
        axes.annotate(OBSERVERS[shown], (0.5, place), va="center", fontsize=9.5, color=INK, fontweight="bold")
    axes.set_yticks([place for place, _ in rows], [line.person.name for _, line in rows], fontsize=9.5, color=INK)
    axes.set_xlim(0.5, 1.0)
    axes.set_ylim(position - 0.3, -0.6)
    axes.set_xticks([0.5, 0.6, 0.7, 0.8, 0.9, 1.0], ["50 %\na coin", "60 %", "70 %", "80 %", "90 %", "100 %\ncertain"])
    axes.tick_params(labelsize=9)
    bare(axes)
    top = 1 - 0.16 / height
    figure.text(0.02, top, "One star or five? How often an observer is right", fontsize=14, fontweight="bold",
                color=INK, va="top")  # fmt: skip
    figure.text(0.02, top - 0.34 / height, title, fontsize=9.5, color=FAINT, va="top")
    present = {line.cost.status for line in lines}
    figure.legend(
        handles=[Patch(color=_COLOURS[one], label=_MEANING[one]) for one in _COLOURS if one in present],
        loc="upper left",
        bbox_to_anchor=(0.012, top - 0.56 / height),
        ncols=3,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.2,
    )
    return saved(figure)
