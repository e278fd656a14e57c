"""Charts of the overview: a column for each of the last runs, from released or public numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpmf.common.methods import RUN_EPSILON
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.protocol import ItemFacts
from hdpmf.untrusted.service.folder import ServiceFolder

SHOWN_RUNS = 8

LIFE_EPSILON = 2.0 * RUN_EPSILON
"""Epsilon that a rating may spend in its life, unless its owner says otherwise."""

WIDTH, HEIGHT = 320.0, 130.0
_TOP, _BOTTOM = 16.0, 112.0  # above a column is its value, below it its day
_GAP = 0.3  # part of a column's place that stays free


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a chart: its rectangle, its value and its label in words."""

    x: float
    y: float
    width: float
    height: float
    value: str
    label: str

    @property
    def middle(self) -> float:
        """The place of its words."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of columns.

    Attributes:
        name: Of its title and its text among the page's sentences.
        columns: The oldest first; empty where there is nothing to show.
        mark: Height of the line of what is needed or allowed; None without one.
        values: For the sentences.
    """

    name: str
    columns: tuple[Column, ...]
    mark: float | None
    values: dict[str, str]

    @property
    def words(self) -> str:
        """All values, for those who do not see the chart."""
        return ", ".join(f"{each.label}: {each.value}" for each in self.columns)


def column_chart(
    name: str,
    points: Sequence[tuple[str, float]],
    *,
    form: str = "{:,.0f}",
    mark: float | None = None,
    **values: str,
) -> Chart:
    """Return the chart of labelled values, with a line at ``mark``."""
    highest = max([value for _, value in points] + ([] if mark is None else [mark]), default=0.0)
    heights = [(_BOTTOM - _TOP) * (value / (highest or 1.0)) for _, value in points]
    place = WIDTH / max(len(points), 4)
    columns = tuple(
        Column(
            x=round(number * place + _GAP / 2 * place, 1),
            y=round(_BOTTOM - heights[number], 1),
            width=round((1 - _GAP) * place, 1),
            height=round(heights[number], 1),
            value=form.format(value),
            label=label,
        )
        for number, (label, value) in enumerate(points)
    )
    line = None
    if mark is not None and points:
        line = round(_BOTTOM - (_BOTTOM - _TOP) * (mark / (highest or 1.0)), 1)
    return Chart(name, columns, line, values)


class RunCharts:
    """The charts of a recommender's last runs."""

    def __init__(self, folder: ServiceFolder) -> None:
        self._folder = folder
        self._deviations: dict[bytes, float | None] = {}  # a run that has ended does not change

    def draw(self, runs: Sequence[dict[str, Any]]) -> list[Chart]:
        """Return all charts.

        Args:
            runs: All of them, the oldest first, as on the page about them.
        """
        last = list(runs[-SHOWN_RUNS:])
        days = [day(run["begun_at"]) for run in last]
        minimum = float(last[-1]["minimum"]) if last else None
        users = [(label, float(run["users"])) for label, run in zip(days, last, strict=True)]
        roster = [(label, float(run["roster"])) for label, run in zip(days, last, strict=True)]
        exact = [
            (label, deviation)
            for label, run in zip(days, last, strict=True)
            if (deviation := self._deviation(bytes.fromhex(run["run"]))) is not None
        ]
        spent = spent_by(runs)[-SHOWN_RUNS:]
        left = [
            (label, max(LIFE_EPSILON - each, 0.0)) for label, each in zip(days, spent, strict=True)
        ]
        needed = "" if minimum is None else f"{minimum:,.0f}"
        return [
            column_chart("reports", users, mark=minimum, minimum=needed),
            column_chart("roster", roster, mark=minimum, minimum=needed),
            column_chart("exactness", exact, form="±{:.2f}"),
            column_chart(
                "budget", left, form="{:.2g}", mark=LIFE_EPSILON, life=f"{LIFE_EPSILON:g}"
            ),
        ]

    def _deviation(self, run: bytes) -> float | None:
        """Return the median deviation of an item's rating in the model of a run."""
        if run not in self._deviations:
            path = self._folder.path / "runs" / run.hex() / "model"
            if not self._folder.summary_path(run).exists() or not path.exists():
                return None
            model = PublicModel.load(path)
            found = None
            if isinstance(model.numbers, ItemFacts):
                per_star = model.scale.width / 4.0
                found = float(np.median(np.sqrt(model.numbers.variance))) * per_star
            self._deviations[run] = found
        return self._deviations[run]


def spent_by(runs: Sequence[dict[str, Any]]) -> list[float]:
    """Return what a rating of weight 1 that was in every run has spent at most, after each run.

    A survey takes a rating once, whatever the number of its runs; training takes it in each. What
    devices have paid for a run that was given up stays paid.
    """
    once: dict[str, float] = {}
    each_time = 0.0
    found = []
    for run in runs:
        epsilon = run["epsilon"] or 0.0
        if run["one_round"]:
            once[run["method"]] = max(once.get(run["method"], 0.0), epsilon)
        else:
            each_time += epsilon
        found.append(each_time + sum(once.values()))
    return found


def day(at: float) -> str:
    """A day in short."""
    return time.strftime("%m-%d", time.gmtime(at))
