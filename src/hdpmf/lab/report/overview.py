"""The overview figure: honest epsilon and accuracy of every method over all data sets.

It is an SVG without scripts. This module computes positions; ``overview.html`` draws.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.report.content import Content, table_point
from hdpmf.lab.report.tables import cost_range

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
    axis = f"error relative to {relative_to} (warm MSE, log)" if relative_to else "warm MSE (log)"
    return {
        "drawings": [
            _draw(marks, axis, "broad", 940, 400),
            _draw(marks, axis, "narrow", 360, 430),
        ],
        "label": "Accuracy and honest epsilon. " + ". ".join(mark.description for mark in marks),
        "epsilon": table_point(experiment)
        if experiment.varied == "epsilon"
        else experiment.epsilon,
        "factors": cells[0].factors,
        "n_datasets": len(datasets),
    }


def _marks(content: Content, cells: Sequence[Cell], units: dict[str, float]) -> list[Mark]:
    marks = []
    for method in dict.fromkeys(cell.method for cell in cells):
        mine = [cell for cell in cells if cell.method == method]
        ratios = [cell.mse.mean / units[cell.dataset] for cell in mine]
        costs = cost_range(content, mine)
        errors = ", ".join(f"{cell.dataset_title} {cell.mse.mean:.2f}" for cell in mine)
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
                description=f"{mine[0].label}: honest epsilon {honest}. Warm MSE: {errors}",
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


class Box(NamedTuple):
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Return whether two boxes overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


class Text(NamedTuple):
    """A text with its position."""

    words: str
    x: float
    y: float
    anchor: str = ""
    style: str = ""


def _draw(marks: Sequence[Mark], axis: str, name: str, width: int, height: int) -> dict[str, Any]:
    """Return the figure at one size, as the template takes it."""
    plot = Box(46, 30, width - 8, height - 76)
    y, ticks = _error_scale(marks, plot)
    x = _EpsilonScale(marks, plot)
    narrow = width < 500
    silent = next((y(mark.middle) for mark in marks if mark.method == SILENT), None)
    better = [Text(_BETTER, plot.left + 8, plot.bottom - 8, style="remark")]
    return {
        "name": name,
        "width": width,
        "height": height,
        "plot": plot,
        "silent": silent,
        "ticks": [(y(v), Text(f"{v:g}", plot.left - 8, y(v) + 4, "end")) for v in ticks],
        "walls": [x.wall(column) for column in _COLUMN_TITLES if column in x.columns],
        "texts": [*(better if silent else []), Text(axis, 4, 14), *x.titles(plot, narrow)],
        "marks": _place(marks, silent, x, y, plot),
        "key": _key(marks, width, height),
    }


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


class _EpsilonScale:
    """The axis of epsilon, with columns beside it for methods that have no place on it."""

    def __init__(self, marks: Sequence[Mark], plot: Box) -> None:
        wide = min(120.0, (plot.right - plot.left) * 0.2)
        present = {mark.column for mark in marks}
        left, right = plot.left, plot.right
        self.columns: dict[str, tuple[float, float]] = {}
        if "nothing" in present:
            self.columns["nothing"] = left, left + wide
            left += wide
        for name in ("unknown", "none"):
            if name in present:
                self.columns[name] = right - wide, right
                right -= wide
        self.columns["axis"] = left, right
        costs = [math.log10(_middle(mark)) for mark in marks if mark.column == "axis"]
        self.low, self.high = min(costs, default=0.0) - 0.45, max(costs, default=0.0) + 0.45

    def of(self, mark: Mark) -> float:
        """Return the position of a mark."""
        return self.at(_middle(mark)) if mark.column == "axis" else self.middle(mark.column)

    def at(self, epsilon: float) -> float:
        """Return the position of an epsilon."""
        start, end = self.columns["axis"]
        share = (math.log10(epsilon) - self.low) / (self.high - self.low)
        return round(start + share * (end - start), 1)

    def middle(self, column: str) -> float:
        """Return the middle of a column."""
        return sum(self.columns[column]) / 2

    def wall(self, column: str) -> float:
        """Return the line between a column and the axis."""
        return self.columns[column][1 if column == "nothing" else 0]

    def titles(self, plot: Box, narrow: bool) -> Iterator[Text]:
        """Yield what stands below the columns and the axis."""
        for name, title in _COLUMN_TITLES.items():
            for number, words in enumerate(title.split() if narrow else [title]):
                if name in self.columns:
                    height = plot.bottom + 18 + 14 * number
                    yield Text(words, self.middle(name), height, "middle")
        step = 2 if narrow and self.high - self.low > 3 else 1
        for power in range(math.ceil(self.low), math.floor(self.high) + 1, step):
            words = f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"
            yield Text(words, self.at(10.0**power), plot.bottom + 18, "middle")
        middle = self.middle("axis")
        yield Text("honest epsilon (log scale)", middle, plot.bottom + 36, "middle")


def _middle(mark: Mark) -> float:
    return math.sqrt(mark.costs[0] * mark.costs[1])


def _place(
    marks: Sequence[Mark],
    silent: float | None,
    scale: _EpsilonScale,
    y: Callable[[float], float],
    plot: Box,
) -> list[dict[str, Any]]:
    """Place the marks with their ranges, and labels that overlap nothing."""
    # Methods of one epsilon would stand in one another's range: move them apart by a few pixels.
    places: list[tuple[Mark, float, float]] = []
    exact: list[float] = []
    for mark in marks:
        x = scale.of(mark)
        before = sum(abs(other - x) < 11 for other in exact)
        exact.append(x)
        places.append((mark, x + 11 * ((before + 1) // 2) * (-1) ** before, y(mark.middle)))
    taken = [Box(x - 8, height - 8, x + 8, height + 8) for _, x, height in places]
    if silent is not None:
        right = plot.left + 8 + _length(_BETTER)
        taken.append(Box(plot.left, plot.bottom - 18, right, plot.bottom))
        taken.append(Box(plot.left, silent - 2, plot.right, silent + 2))
    placed = []
    for mark, x, height in places:
        label, box = _label(mark, x, height, taken, plot)
        taken.append(box)
        ends = {"top": y(mark.high), "bottom": y(mark.low)}
        placed.append({"mark": mark, "x": x, "y": height, **ends, "label": label})
    return placed


def _label(
    mark: Mark, x: float, height: float, taken: Sequence[Box], plot: Box
) -> tuple[Text, Box]:
    """Place a name beside its mark, as close as it overlaps nothing."""
    length = _length(mark.label)
    candidates = []
    for step, sign, side in itertools.product(range(30), (1, -1), ("start", "end")):
        y = height + sign * 4.0 * step
        left = x + 11 if side == "start" else x - 11 - length
        box = Box(left - 1, y - 8, left + length + 3, y + 8)
        at = x + 11 if side == "start" else x - 11
        candidates.append((Text(mark.label, at, y + 4, side, "value"), box))
    for text, box in candidates:
        inside = box.left >= plot.left and box.right <= plot.right + 8
        inside = inside and plot.top - 8 <= box.top and box.bottom <= plot.bottom
        if inside and not any(box.meets(other) for other in taken):
            return text, box
    return candidates[0]


def _key(marks: Sequence[Mark], width: int, height: int) -> list[dict[str, Any]]:
    x = 12.0
    row = height - 12 if width >= 500 else height - 26
    entries = []
    for status, words in _WORDS.items():
        if any(mark.status == status for mark in marks):
            length = 24 + _length(words)
            if x + length > width and x > 12:
                x = 12.0
                row += 18
            label = Text(words, x + 12, row)
            entries.append({"status": status, "x": x, "y": row - 4, "label": label})
            x += length + 10
    return entries


def _length(words: str) -> float:
    """Return an upper bound of the width of a label: fonts differ."""
    return sum(10.9 if char.isupper() else 7.7 for char in words)
