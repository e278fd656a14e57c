"""The result at a glance: what each method's epsilon honestly is, and how accurate it is, all data sets together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hdpmf.experiments import Cell, Experiment
from hdpmf.privacy.accounting import DELTA
from hdpmf.report.content import Content
from hdpmf.report.honest import RATERS, cost_range
from hdpmf.report.lists import table_point
from hdpmf.report.markup import Html, tag
from hdpmf.report.numbers import counted, plain, two
from hdpmf.report.overview_drawing import Mark, Scene, draw

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
    scene = Scene(marks=seen.marks, line=silent, axis=axis, label=_label(seen))
    experiment = seen.experiment
    varied = experiment.vary is not None and experiment.vary.parameter == "epsilon"
    epsilon = table_point(experiment) if varied else experiment.epsilon
    where = f"Every method at its own epsilon of {plain(epsilon or 0.0)}, K = {seen.factors}"
    if seen.datasets > 1:
        where += f": the mean over {counted(seen.datasets, 'data set')} (geometric), and their range"
    caption = (
        f"{where}. Across: the honest epsilon, what the accountant finds for a rating of weight 1 against the "
        f"recommender (delta {DELTA:g}, an item with {RATERS} raters). Left and low is good."
    )
    return tag(
        "figure",
        draw(scene, "broad", 940, 400),
        draw(scene, "narrow", 360, 430),
        tag("figcaption", caption, class_="caption"),
        id="overview", class_="glance",
    )  # fmt: skip


def _label(seen: Glance) -> str:
    return "Accuracy and honest epsilon. " + ". ".join(mark.told for mark in seen.marks)
