"""How often each observer guesses a rating right: the picture of ``hdpmf privacy explain``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hdpmf.plots import BAD, DOUBTFUL, FAINT, GOOD, INK, bare, new_figure, saved

_COLOURS = {"no guarantee": BAD, "nominal": DOUBTFUL, "proved": GOOD}
_MEANING = {
    "no guarantee": "no guarantee",
    "nominal": "nominal: one channel counted, no guarantee",
    "proved": "proved: never more than this",
}


@dataclass(frozen=True, slots=True)
class Guess:
    """How often an observer is right about one kind of person, what that stands on, and how it is said."""

    person: str
    right: float
    status: str
    said: str


def guess_png(guesses: Mapping[str, Sequence[Guess]], title: str) -> bytes:
    """A bar from 50 % (a coin) to how often the observer is right, per observer and user."""
    from matplotlib.patches import Patch

    rows: list[tuple[float, Guess]] = []
    position, heads = 0.0, []
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
    for place, guess in rows:
        axes.barh(place, guess.right - 0.5, left=0.5, height=0.6, color=_COLOURS[guess.status])
        axes.annotate(guess.said, (max(guess.right, 0.5) + 0.006, place), va="center", fontsize=9, color=INK,
                      annotation_clip=False)  # fmt: skip
    for place, observer in heads:
        axes.annotate(observer, (0.5, place), va="center", fontsize=9.5, color=INK, fontweight="bold")
    axes.set_yticks([place for place, _ in rows], [guess.person for _, guess in rows], fontsize=9.5, color=INK)
    axes.set_xlim(0.5, 1.0)
    axes.set_ylim(position - 0.3, -0.6)
    axes.set_xticks([0.5, 0.6, 0.7, 0.8, 0.9, 1.0], ["50 %\na coin", "60 %", "70 %", "80 %", "90 %", "100 %\ncertain"])
    axes.tick_params(labelsize=9)
    bare(axes)
    top = 1 - 0.16 / height
    figure.text(0.02, top, "One star or five? How often an observer is right", fontsize=14, fontweight="bold",
                color=INK, va="top")  # fmt: skip
    figure.text(0.02, top - 0.34 / height, title, fontsize=9.5, color=FAINT, va="top")
    present = {guess.status for _, guess in rows}
    figure.legend(
        handles=[Patch(color=_COLOURS[status], label=_MEANING[status]) for status in _COLOURS if status in present],
        loc="upper left",
        bbox_to_anchor=(0.012, top - 0.56 / height),
        ncols=3,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.2,
    )
    return saved(figure)
