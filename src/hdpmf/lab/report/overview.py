"""The overview figure: honest epsilon and accuracy of every method over all data sets, as SVG
without scripts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hdpmf.common.privacy.accounting import DELTA
from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.report.content import Content, counted, plain, table_point, two
from hdpmf.lab.report.honest_epsilon import RATERS, cost_range
from hdpmf.lab.report.markup import Html, tag

_WORDS = {
    "proved": "epsilon is proved",
    "nominal": "epsilon is nominal: no proof",
    "none": "no privacy",
}

_SHAPES = {
    "proved": "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0",
    "nominal": "M0 -7.5L7.5 0L0 7.5L-7.5 0z",
    "none": "M-5 -5h10v10h-10z",
    "unknown": "M0 -7L6.5 5.5H-6.5z",
}

_LETTER, _CAPITAL = 7.7, 10.9  # how wide they are in a label, at most: fonts differ

_BETTER = "better than sending nothing"

_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


@dataclass(frozen=True, slots=True)
class Mark:
    """A method in the figure.

    Attributes:
        costs: Its honest epsilon: the smallest and the largest over the data sets; nothing where it
            is not known.
        low: The smallest error, or ratio of errors.
        middle: The one that the mark stands at.
        high: The largest.
        told: All of it in words.
    """

    method: str
    label: str
    status: str
    costs: tuple[float, ...]
    low: float
    middle: float
    high: float
    told: str

    @property
    def place(self) -> str:
        """On the axis, or in a column beside it."""
        if not self.costs:
            return "unknown"
        return "nothing" if self.costs[1] == 0 else "none" if math.isinf(self.costs[1]) else "axis"

    @property
    def epsilon(self) -> float:
        """Where on the axis it stands."""
        return math.sqrt(self.costs[0] * self.costs[1])


@dataclass(frozen=True, slots=True)
class Scene:
    """What is drawn.

    Attributes:
        line: The error of a device that sends nothing, drawn across; None where there is none.
        axis: What the errors are.
        label: The figure in words, for those who do not see it.
    """

    marks: tuple[Mark, ...]
    line: float | None
    axis: str
    label: str


@dataclass(frozen=True, slots=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def draw(scene: Scene, name: str, width: int, height: int) -> Html:
    """The figure at this size; ``name`` is its class."""
    plot = _Box(46, 30, width - 8, height - 76)
    y, ticks = _error_scale(scene, plot)
    columns = _columns(scene, plot)
    parts: list[Html] = []
    if scene.line is not None:
        top = y(scene.line)
        parts.append(
            tag(
                "rect",
                x=plot.left,
                y=top,
                width=plot.right - plot.left,
                height=plot.bottom - top,
                class_="better",
            )
        )
    for value in ticks:
        parts.append(
            tag("line", x1=plot.left, x2=plot.right, y1=y(value), y2=y(value), class_="grid")
        )
        parts.append(_text(plot.left - 8, y(value) + 4, f"{value:g}", anchor="end"))
    if scene.line is not None:
        parts.append(
            tag(
                "line",
                x1=plot.left,
                x2=plot.right,
                y1=y(scene.line),
                y2=y(scene.line),
                class_="silent",
            )
        )
        parts.append(_text(plot.left + 8, plot.bottom - 8, _BETTER, class_="remark"))
    parts.append(_text(4, 14, scene.axis))
    parts += _axis_parts(columns, plot, narrow=width < 500)
    parts += _marks(scene, columns, y, plot)
    parts += _key(scene, width, height)
    return tag(
        "svg",
        parts,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=scene.label,
        class_=name,
    )


def _error_scale(scene: Scene, plot: _Box) -> tuple[Callable[[float], float], list[float]]:
    """Where an error stands, and the errors that are written at the axis."""
    values = [value for mark in scene.marks for value in (mark.low, mark.high)]
    low, high = math.log(min(values) / 1.12), math.log(max(values) * 1.12)

    def place(value: float) -> float:
        return round(
            plot.bottom - (math.log(value) - low) / (high - low) * (plot.bottom - plot.top), 1
        )

    steps = [step * 10.0**power for power in range(-4, 5) for step in _STEPS]
    ticks = [step for step in steps if low <= math.log(step) <= high]
    if len(ticks) < 3:  # all errors are close together
        size = 10 ** math.floor(math.log10(max(values) - min(values) or max(values)))
        first = math.ceil(math.exp(low) / size)
        ticks = [round(n * size, 9) for n in range(first, math.floor(math.exp(high) / size) + 1)]
    return place, ticks


@dataclass(frozen=True, slots=True)
class _Columns:
    """The axis of epsilon, with a column at its left for those that send nothing, and at its
    right for no privacy.
    """

    starts: dict[str, float]
    ends: dict[str, float]
    low: float
    high: float

    def place(self, mark: Mark) -> float:
        start, end = self.starts[mark.place], self.ends[mark.place]
        return (start + end) / 2 if mark.place != "axis" else self.at(mark.epsilon)

    def at(self, epsilon: float) -> float:
        share = (math.log10(epsilon) - self.low) / (self.high - self.low)
        return round(self.starts["axis"] + share * (self.ends["axis"] - self.starts["axis"]), 1)


def _columns(scene: Scene, plot: _Box) -> _Columns:
    here = {mark.place for mark in scene.marks}
    wide = min(120.0, (plot.right - plot.left) * 0.2)
    left = plot.left + (wide if "nothing" in here else 0.0)
    right = plot.right
    starts, ends = {"nothing": plot.left}, {"nothing": left}
    for name in ("unknown", "none"):
        if name in here:
            starts[name], ends[name] = right - wide, right
            right -= wide
    costs = [math.log10(mark.epsilon) for mark in scene.marks if mark.place == "axis"]
    low, high = min(costs, default=0.0) - 0.45, max(costs, default=0.0) + 0.45
    return _Columns(starts | {"axis": left}, ends | {"axis": right}, low, high)


def _axis_parts(columns: _Columns, plot: _Box, *, narrow: bool) -> Iterator[Html]:
    titles = {"nothing": "sends nothing", "none": "no privacy", "unknown": "not known"}
    for name, start in columns.starts.items():
        end = columns.ends[name]
        if name in titles and end > start:
            at = end if name == "nothing" else start
            yield tag("line", x1=at, x2=at, y1=plot.top, y2=plot.bottom, class_="wall")
            for number, word in enumerate(titles[name].split() if narrow else [titles[name]]):
                yield _text(
                    (start + end) / 2, plot.bottom + 18 + 14 * number, word, anchor="middle"
                )
    step = 2 if narrow and columns.high - columns.low > 3 else 1
    for power in range(math.ceil(columns.low), math.floor(columns.high) + 1, step):
        words = f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"
        yield _text(columns.at(10.0**power), plot.bottom + 18, words, anchor="middle")
    middle = (columns.starts["axis"] + columns.ends["axis"]) / 2
    yield _text(middle, plot.bottom + 36, "honest epsilon (log scale)", anchor="middle")


def _marks(
    scene: Scene, columns: _Columns, y: Callable[[float], float], plot: _Box
) -> Iterator[Html]:
    """The marks with their ranges, and labels that meet nothing."""
    spots = [(mark, columns.place(mark), y(mark.middle)) for mark in scene.marks]
    # Methods of one epsilon would stand in one another's range: move them apart by a few pixels.
    shifted = []
    for number, (mark, x, height) in enumerate(spots):
        before = sum(abs(other - x) < 11 for _, other, _ in spots[:number])
        shifted.append((mark, x + 11 * ((before + 1) // 2) * (-1) ** before, height))
    taken = [_Box(x - 8, height - 8, x + 8, height + 8) for _, x, height in shifted]
    faint = [_Box(x - 2, y(mark.high), x + 2, y(mark.low)) for mark, x, _ in shifted]
    if scene.line is not None:
        faint.append(_Box(plot.left, y(scene.line) - 2, plot.right, y(scene.line) + 2))
        taken.append(
            _Box(plot.left, plot.bottom - 18, plot.left + 8 + _length(_BETTER), plot.bottom)
        )
    for mark, x, height in shifted:
        words, box = _mark_label(mark, x, height, taken, faint, plot)
        taken.append(box)
        bar = None
        if mark.high > mark.low:
            bar = tag("line", x1=x, x2=x, y1=y(mark.high), y2=y(mark.low), class_="range")
        shape = tag(
            "path",
            d=_SHAPES.get(mark.status, _SHAPES["unknown"]),
            transform=f"translate({x} {height})",
        )
        yield tag(
            "g",
            tag("title", mark.told),
            bar,
            shape,
            words,
            class_=f"mark-{mark.status}",
            data_glance=mark.method,
        )


def _mark_label(
    mark: Mark, x: float, height: float, taken: Sequence[_Box], faint: Sequence[_Box], plot: _Box
) -> tuple[Html, _Box]:
    """The name beside its mark: close by where it meets nothing, or else where it covers only
    what is faint.
    """
    long = _length(mark.label)

    def box(side: str, shift: float) -> _Box:
        left = x + 11 if side == "start" else x - 11 - long
        return _Box(left - 1, height + shift - 8, left + long + 3, height + shift + 8)

    def free(side: str, shift: float, *groups: Sequence[_Box]) -> bool:
        place = box(side, shift)
        inside = place.left >= plot.left and place.right <= plot.right + 8
        inside = inside and plot.top - 8 <= place.top and place.bottom <= plot.bottom
        return inside and not any(place.meets(other) for group in groups for other in group)

    sides = ("start", "end")
    close = [
        (side, shift) for shift in (0, -12, 12) for side in sides if free(side, shift, taken, faint)
    ]
    far = sorted((sign * 4.0 * step for step in range(30) for sign in (1, -1)), key=abs)
    other = [(s, d) for d in far for s in sides if free(s, d, taken)]
    side, shift = next(iter(close + other), ("start", 0.0))
    at = x + 11 if side == "start" else x - 11
    return _text(at, height + shift + 4, mark.label, anchor=side, class_="value"), box(side, shift)


def _key(scene: Scene, width: int, height: int) -> Iterator[Html]:
    """What shapes and colours mean."""
    present = {mark.status for mark in scene.marks}
    shown = [status for status in _WORDS if status in present]
    x, row = 12.0, height - 12 if width >= 500 else height - 26
    for status in shown:
        long = 24 + _length(_WORDS[status])
        if x + long > width and x > 12:
            x, row = 12.0, row + 18
        shape = tag("path", d=_SHAPES[status], transform=f"translate({x} {row - 4})")
        yield tag("g", shape, _text(x + 12, row, _WORDS[status]), class_=f"mark-{status}")
        x += long + 10


def _length(words: str) -> float:
    return sum(_CAPITAL if char.isupper() else _LETTER for char in words)


def _text(
    x: float, y: float, words: str, *, anchor: str | None = None, class_: str | None = None
) -> Html:
    return tag("text", words, x=round(x, 1), y=round(y, 1), text_anchor=anchor, class_=class_)


SILENT = "user-mean"
"""The method of a device that sends nothing: what others are measured against."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What the figure shows.

    Attributes:
        experiment: Whose numbers these are.
        factors: K.
        marks: A mark for every method.
        relative_to: What errors are divided by: words, or nothing where they are shown as they are.
        datasets: How many data sets each mark stands for, at most.
    """

    experiment: Experiment
    factors: int
    marks: tuple[Mark, ...]
    relative_to: str
    datasets: int


def shown_cells(content: Content) -> tuple[Experiment, list[Cell]] | None:
    """The experiment that a glance is about, and its finished cells at one K and one epsilon.

    The first table of errors, or else the first figure of them.
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


def glance(content: Content) -> Glance | None:
    """What there is to show; None where there are no two methods to compare."""
    found = shown_cells(content)
    if found is None:
        return None
    experiment, cells = found
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    units, relative_to = _units(cells, datasets)
    marks = []
    for method in dict.fromkeys(cell.method for cell in cells):
        mine = [cell for cell in cells if cell.method == method]
        ratios = [cell.mse.mean / units[cell.dataset] for cell in mine]
        ends = cost_range(content, mine)
        costs = () if ends is None else (ends[0].epsilon_at_delta, ends[1].epsilon_at_delta)
        status = "unknown" if mine[0].claim is None else mine[0].claim.status
        errors = ", ".join(f"{cell.dataset_title} {two(cell.mse.mean)}" for cell in mine)
        honest = "not known" if ends is None else ends[1].briefly()
        marks.append(
            Mark(
                method=method,
                label=mine[0].label,
                status=status,
                costs=costs,
                low=min(ratios),
                middle=math.exp(sum(map(math.log, ratios)) / len(ratios)),
                high=max(ratios),
                told=f"{mine[0].label}: honest epsilon {honest}. MSE: {errors}",
            )
        )
    return Glance(experiment, cells[0].factors, tuple(marks), relative_to, len(datasets))


def _units(cells: Sequence[Cell], datasets: Sequence[str]) -> tuple[dict[str, float], str]:
    """What the errors of each data set are divided by, and what that is."""
    if len(datasets) == 1:
        return {datasets[0]: 1.0}, ""
    silent = {cell.dataset: cell.mse.mean for cell in cells if cell.method == SILENT}
    if len(silent) == len(datasets):
        return silent, "sending nothing"
    best = {name: min(cell.mse.mean for cell in cells if cell.dataset == name) for name in datasets}
    return best, "each data set's best"


def overview_figure(content: Content) -> Html | None:
    """The figure with its caption; None where there is nothing to compare."""
    seen = glance(content)
    if seen is None:
        return None
    silent = next((mark.middle for mark in seen.marks if mark.method == SILENT), None)
    axis = f"error relative to {seen.relative_to} (MSE, log)" if seen.relative_to else "MSE (log)"
    scene = Scene(marks=seen.marks, line=silent, axis=axis, label=_figure_label(seen))
    experiment = seen.experiment
    varied = experiment.vary is not None and experiment.vary.parameter == "epsilon"
    epsilon = table_point(experiment) if varied else experiment.epsilon
    where = f"Every method at its own epsilon of {plain(epsilon or 0.0)}, K = {seen.factors}"
    if seen.datasets > 1:
        where += (
            f": the mean over {counted(seen.datasets, 'data set')} (geometric), and their range"
        )
    caption = (
        f"{where}. Across: the honest epsilon, what the accountant finds for a rating "
        "of weight 1 against the "
        f"recommender (delta {DELTA:g}, an item with {RATERS} raters). Left and low is good."
    )
    return tag(
        "figure",
        draw(scene, "broad", 940, 400),
        draw(scene, "narrow", 360, 430),
        tag("figcaption", caption, class_="caption"),
        id="overview", class_="glance",
    )  # fmt: skip


def _figure_label(seen: Glance) -> str:
    return "Accuracy and honest epsilon. " + ". ".join(mark.told for mark in seen.marks)
