"""The overview figure: honest epsilon and accuracy of every method over all data sets.

It is an SVG without scripts. This module computes positions; ``overview.html`` draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hdpmf.common.privacy.accounting import DELTA
from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.report.content import Content, counted, plain, table_point, two
from hdpmf.lab.report.tables import RATERS, cost_range

SILENT = "user-mean"
"""The method of a device that sends nothing: the baseline of all others."""

SHAPES = {
    "proved": "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0",
    "nominal": "M0 -7.5L7.5 0L0 7.5L-7.5 0z",
    "author's claim": "M-2 -6.5h4v4.5h4.5v4h-4.5v4.5h-4v-4.5h-4.5v-4h4.5z",
    "none": "M-5 -5h10v10h-10z",
    "unknown": "M0 -7L6.5 5.5H-6.5z",
}
"""The SVG path of a mark, by the status of its claim."""

_WORDS = {
    "proved": "epsilon is proved",
    "nominal": "epsilon is nominal: no proof",
    "author's claim": "epsilon is its author's claim",
    "none": "no privacy",
}
_COLUMN_TITLES = {"nothing": "sends nothing", "none": "no privacy", "unknown": "not known"}
_BETTER = "better than sending nothing"
_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)

# Upper bounds of a letter's width in a label: fonts differ.
_LETTER_WIDTH = 7.7
_CAPITAL_WIDTH = 10.9


@dataclass(frozen=True, slots=True)
class Mark:
    """A method in the figure.

    Attributes:
        costs: Smallest and largest honest epsilon over the data sets; empty if unknown.
        middle: The error that the mark stands at.
    """

    method: str
    label: str
    status: str
    costs: tuple[float, ...]
    low: float
    middle: float
    high: float
    description: str

    @property
    def column(self) -> str:
        """``axis``, or the column beside it."""
        if not self.costs:
            return "unknown"
        if self.costs[1] == 0:
            return "nothing"
        return "none" if math.isinf(self.costs[1]) else "axis"

    @property
    def epsilon(self) -> float:
        """Position on the axis."""
        return math.sqrt(self.costs[0] * self.costs[1])


def shown_cells(content: Content) -> tuple[Experiment, list[Cell]] | None:
    """Return the experiment of the overview, and its finished cells at one K and one epsilon.

    It is the first table of errors, or else the first figure of them. None where there are no two
    methods to compare.
    """
    able = [experiment for experiment in content.experiments.values() if experiment.errors]
    for experiment in sorted(able, key=lambda experiment: experiment.vary is not None):
        x = table_point(experiment)
        cells = [c for c in content.error_cells(experiment) if c.status == "done" and c.x == x]
        largest = max((cell.factors for cell in cells), default=0)
        here = [cell for cell in cells if cell.factors == largest]
        if len({cell.method for cell in here}) > 1:
            return experiment, here
    return None


def overview(content: Content) -> dict[str, Any] | None:
    """Return what ``overview.html`` shows; None where there are no two methods to compare."""
    found = shown_cells(content)
    if found is None:
        return None
    experiment, cells = found
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    units, relative_to = _units(cells, datasets)
    marks = _marks(content, cells, units)
    silent = next((mark.middle for mark in marks if mark.method == SILENT), None)
    axis = f"error relative to {relative_to} (MSE, log)" if relative_to else "MSE (log)"
    return {
        "drawings": [
            _draw(marks, silent, axis, "broad", 940, 400),
            _draw(marks, silent, axis, "narrow", 360, 430),
        ],
        "label": "Accuracy and honest epsilon. " + ". ".join(mark.description for mark in marks),
        "caption": _caption(experiment, cells[0].factors, len(datasets)),
    }


def _marks(content: Content, cells: Sequence[Cell], units: dict[str, float]) -> list[Mark]:
    marks = []
    for method in dict.fromkeys(cell.method for cell in cells):
        mine = [cell for cell in cells if cell.method == method]
        ratios = [cell.mse.mean / units[cell.dataset] for cell in mine]
        costs = cost_range(content, mine)
        errors = ", ".join(f"{cell.dataset_title} {two(cell.mse.mean)}" for cell in mine)
        honest = "not known" if costs is None else costs[1].briefly()
        marks.append(
            Mark(
                method=method,
                label=mine[0].label,
                status="unknown" if mine[0].claim is None else mine[0].claim.status,
                costs=() if costs is None else tuple(cost.epsilon_at_delta for cost in costs),
                low=min(ratios),
                middle=math.exp(sum(map(math.log, ratios)) / len(ratios)),
                high=max(ratios),
                description=f"{mine[0].label}: honest epsilon {honest}. MSE: {errors}",
            )
        )
    return marks


def _units(cells: Sequence[Cell], datasets: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return what the errors of each data set are divided by, and its name."""
    if len(datasets) == 1:
        return {datasets[0]: 1.0}, ""
    silent = {cell.dataset: cell.mse.mean for cell in cells if cell.method == SILENT}
    if len(silent) == len(datasets):
        return silent, "sending nothing"
    best = {name: min(cell.mse.mean for cell in cells if cell.dataset == name) for name in datasets}
    return best, "each data set's best"


def _caption(experiment: Experiment, factors: int, n_datasets: int) -> str:
    varied = experiment.vary is not None and experiment.vary.parameter == "epsilon"
    epsilon = table_point(experiment) if varied else experiment.epsilon
    where = f"Every method at its own epsilon of {plain(epsilon or 0.0)}, K = {factors}"
    if n_datasets > 1:
        where += f": the mean over {counted(n_datasets, 'data set')} (geometric), and their range"
    return (
        f"{where}. Across: the honest epsilon, what the accountant finds for a rating of weight 1 "
        f"against the recommender (delta {DELTA:g}, an item with {RATERS} raters). Left and low "
        "is good."
    )


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Return whether two boxes overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


@dataclass(frozen=True, slots=True)
class Text:
    """A text with its position."""

    words: str
    x: float
    y: float
    anchor: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class PlacedMark:
    """A mark with its position, the ends of its range, and its label."""

    mark: Mark
    x: float
    y: float
    top: float
    bottom: float
    label: Text


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One entry of the key."""

    status: str
    x: float
    y: float
    label: Text


@dataclass(frozen=True, slots=True)
class Drawing:
    """The figure at one size.

    Attributes:
        name: The class of its element.
        silent: Height of the line of a device that sends nothing; None where there is none.
        ticks: Heights and labels of the error axis.
        walls: Positions of the lines between columns and the axis of epsilon.
    """

    name: str
    width: int
    height: int
    plot: Box
    silent: float | None
    ticks: list[tuple[float, Text]]
    walls: list[float]
    texts: list[Text]
    marks: list[PlacedMark]
    key: list[KeyEntry]


def _text(words: str, x: float, y: float, anchor: str = "", style: str = "") -> Text:
    return Text(words, round(x, 1), round(y, 1), anchor, style)


def _draw(
    marks: Sequence[Mark], silent: float | None, axis: str, name: str, width: int, height: int
) -> Drawing:
    plot = Box(46, 30, width - 8, height - 76)
    y, ticks = _error_scale(marks, plot)
    columns = _columns(marks, plot)
    walls, titles = _axis(columns, plot, narrow=width < 500)
    texts = [_text(axis, 4, 14), *titles]
    if silent is not None:
        texts.insert(0, _text(_BETTER, plot.left + 8, plot.bottom - 8, style="remark"))
    return Drawing(
        name=name,
        width=width,
        height=height,
        plot=plot,
        silent=None if silent is None else y(silent),
        ticks=[(y(v), _text(f"{v:g}", plot.left - 8, y(v) + 4, "end")) for v in ticks],
        walls=walls,
        texts=texts,
        marks=_place(marks, silent, columns, y, plot),
        key=_key(marks, width, height),
    )


def _error_scale(marks: Sequence[Mark], plot: Box) -> tuple[Callable[[float], float], list[float]]:
    """Return the height of an error, and the errors that are written at the axis."""
    values = [value for mark in marks for value in (mark.low, mark.high)]
    low = math.log(min(values) / 1.12)
    high = math.log(max(values) * 1.12)

    def coordinate(value: float) -> float:
        share = (math.log(value) - low) / (high - low)
        return round(plot.bottom - share * (plot.bottom - plot.top), 1)

    steps = [step * 10.0**power for power in range(-4, 5) for step in _STEPS]
    ticks = [step for step in steps if low <= math.log(step) <= high]
    if len(ticks) < 3:  # all errors are close together
        size = 10 ** math.floor(math.log10(max(values) - min(values) or max(values)))
        first = math.ceil(math.exp(low) / size)
        ticks = [round(n * size, 9) for n in range(first, math.floor(math.exp(high) / size) + 1)]
    return coordinate, ticks


@dataclass(frozen=True, slots=True)
class _Columns:
    """The axis of epsilon, with columns beside it for methods that have no place on it."""

    starts: dict[str, float]
    ends: dict[str, float]
    low: float
    high: float

    def coordinate(self, mark: Mark) -> float:
        if mark.column == "axis":
            return self.at(mark.epsilon)
        return (self.starts[mark.column] + self.ends[mark.column]) / 2

    def at(self, epsilon: float) -> float:
        share = (math.log10(epsilon) - self.low) / (self.high - self.low)
        start = self.starts["axis"]
        return round(start + share * (self.ends["axis"] - start), 1)


def _columns(marks: Sequence[Mark], plot: Box) -> _Columns:
    present = {mark.column for mark in marks}
    wide = min(120.0, (plot.right - plot.left) * 0.2)
    left = plot.left + (wide if "nothing" in present else 0.0)
    right = plot.right
    starts = {"nothing": plot.left, "axis": left}
    ends = {"nothing": left}
    for name in ("unknown", "none"):
        if name in present:
            starts[name] = right - wide
            ends[name] = right
            right -= wide
    ends["axis"] = right
    costs = [math.log10(mark.epsilon) for mark in marks if mark.column == "axis"]
    return _Columns(starts, ends, min(costs, default=0.0) - 0.45, max(costs, default=0.0) + 0.45)


def _axis(columns: _Columns, plot: Box, *, narrow: bool) -> tuple[list[float], list[Text]]:
    walls = []
    texts = []
    for name, title in _COLUMN_TITLES.items():
        start = columns.starts.get(name, 0.0)
        end = columns.ends.get(name, 0.0)
        if end > start:
            walls.append(end if name == "nothing" else start)
            for number, words in enumerate(title.split() if narrow else [title]):
                height = plot.bottom + 18 + 14 * number
                texts.append(_text(words, (start + end) / 2, height, "middle"))
    step = 2 if narrow and columns.high - columns.low > 3 else 1
    for power in range(math.ceil(columns.low), math.floor(columns.high) + 1, step):
        words = f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"
        texts.append(_text(words, columns.at(10.0**power), plot.bottom + 18, "middle"))
    middle = (columns.starts["axis"] + columns.ends["axis"]) / 2
    texts.append(_text("honest epsilon (log scale)", middle, plot.bottom + 36, "middle"))
    return walls, texts


def _place(
    marks: Sequence[Mark],
    silent: float | None,
    columns: _Columns,
    y: Callable[[float], float],
    plot: Box,
) -> list[PlacedMark]:
    """Place the marks with their ranges, and labels that overlap nothing."""
    spots = [(mark, columns.coordinate(mark), y(mark.middle)) for mark in marks]
    # Methods of one epsilon would stand in one another's range: move them apart by a few pixels.
    shifted = []
    for number, (mark, x, height) in enumerate(spots):
        before = sum(abs(other - x) < 11 for _, other, _ in spots[:number])
        shifted.append((mark, x + 11 * ((before + 1) // 2) * (-1) ** before, height))
    taken = [Box(x - 8, height - 8, x + 8, height + 8) for _, x, height in shifted]
    faint = [Box(x - 2, y(mark.high), x + 2, y(mark.low)) for mark, x, _ in shifted]
    if silent is not None:
        faint.append(Box(plot.left, y(silent) - 2, plot.right, y(silent) + 2))
        right = plot.left + 8 + _length(_BETTER)
        taken.append(Box(plot.left, plot.bottom - 18, right, plot.bottom))
    placed = []
    for mark, x, height in shifted:
        label, box = _label(mark, x, height, taken, faint, plot)
        taken.append(box)
        placed.append(PlacedMark(mark, x, height, y(mark.high), y(mark.low), label))
    return placed


def _label(
    mark: Mark, x: float, height: float, taken: Sequence[Box], faint: Sequence[Box], plot: Box
) -> tuple[Text, Box]:
    """Place a name beside its mark: close by where it overlaps nothing, or only what is faint."""
    length = _length(mark.label)

    def box(side: str, shift: float) -> Box:
        left = x + 11 if side == "start" else x - 11 - length
        return Box(left - 1, height + shift - 8, left + length + 3, height + shift + 8)

    def free(side: str, shift: float, *groups: Sequence[Box]) -> bool:
        at = box(side, shift)
        inside = at.left >= plot.left and at.right <= plot.right + 8
        inside = inside and plot.top - 8 <= at.top and at.bottom <= plot.bottom
        return inside and not any(at.meets(other) for group in groups for other in group)

    sides = ("start", "end")
    far = sorted((sign * 4.0 * step for step in range(30) for sign in (1, -1)), key=abs)
    close = [(s, d) for d in (0, -12, 12) for s in sides if free(s, d, taken, faint)]
    other = [(s, d) for d in far for s in sides if free(s, d, taken)]
    side, shift = next(iter(close + other), ("start", 0.0))
    at = x + 11 if side == "start" else x - 11
    return _text(mark.label, at, height + shift + 4, side, "value"), box(side, shift)


def _key(marks: Sequence[Mark], width: int, height: int) -> list[KeyEntry]:
    present = {mark.status for mark in marks}
    x = 12.0
    row = height - 12 if width >= 500 else height - 26
    entries = []
    for status, words in _WORDS.items():
        if status not in present:
            continue
        length = 24 + _length(words)
        if x + length > width and x > 12:
            x = 12.0
            row += 18
        entries.append(KeyEntry(status, x, row - 4, _text(words, x + 12, row)))
        x += length + 10
    return entries


def _length(words: str) -> float:
    return sum(_CAPITAL_WIDTH if char.isupper() else _LETTER_WIDTH for char in words)
