"""Actual privacy cost of each method's epsilon, by the accountant, for runs in a store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.accounting import DELTA, Cost, Setting, cost
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.lab.experiments import Cell, Experiment, Result, wishes_of
from hdpmf.lab.report.content import Content

HONEST_FIGURE = "figure_honest"

RATERS = 100
"""Raters of the item whose rating is charged; a message carries one part in so many of the
noise.
"""

_VIEW_WORDS = {"messages": "all messages seen", "sums-h-known": "secure sums seen"}


@dataclass(frozen=True, slots=True)
class Point:
    """A measured error with what its privacy costs.

    Attributes:
        cell: The measured numbers; its ``x`` is the nominal epsilon.
        cost: Cost of a rating of weight 1, against the recommender.
        x: The honest epsilon; None if it is 0 or infinite, which have no place on a log axis.
    """

    cell: Cell
    cost: Cost
    x: float | None


def view_of(method: str) -> str:
    """Return what the recommender sees of a method."""
    return "sums-h-known" if METHODS[method].headline == "sums" else "messages"


def view_words(charged: Cost) -> str:
    """Return what the recommender sees and its cost, short enough for a legend."""
    if charged.epsilon_at_delta == 0:
        return "sends nothing, ε 0"
    if math.isinf(charged.epsilon_at_delta):
        return "no privacy"
    return f"{_VIEW_WORDS[charged.view]}, {charged.status}"


def honest_cost(content: Content, cell: Cell) -> Cost | None:
    """Return the cost of a rating of weight 1; None for a method unknown to the accountant."""
    try:
        setting = _setting(content, cell)
        about = METHODS[cell.method].claim().about
        return cost(setting, view_of(cell.method), neighbours=about, n_raters=RATERS, delta=DELTA)
    except (ConfigError, PrivacyError):
        return None  # a method of the user's own: nothing is known about what it sends


def _setting(content: Content, cell: Cell) -> Setting:
    """Return the settings of a cell's runs."""
    method = METHODS[cell.method]
    result = _result(content, cell)
    if result is None:
        experiment = content.experiments[cell.experiment]
        epsilon = cell.x if experiment is epsilon_experiment(content) else experiment.epsilon
        usual = {
            "epochs": experiment.epochs,
            "n_factors": cell.factors,
            "solver": experiment.solver,
        }
        params = method.parameters(**method.own(epsilon=epsilon, **usual))
    else:
        params = method.parameters(**result.run.params)
    setting = Setting.from_params(cell.method, params)
    return replace(setting, noise_budget=_noise_budget(setting, params, _weights(content, cell)))


def _result(content: Content, cell: Cell) -> Result | None:
    return next((content.results[run] for run in cell.run_ids if run in content.results), None)


def _weights(content: Content, cell: Cell) -> dict[str, float]:
    """Return the mean and the smallest privacy weight in a cell's runs; empty if unknown.

    Data sets are stored with what the paper's groups come to. Those say nothing about other wishes.
    """
    result = _result(content, cell)
    experiment = content.experiments[cell.experiment]
    # A method that does not look at wishes has none in its run.
    wishes = None if result is None else result.run.privacy
    if wishes is None:
        wishes = wishes_of(experiment, cell.dataset, experiment.privacy, 0)
    if wishes.weights == ("uniform",):
        return {"mean_weight": 1.0, "min_weight": 1.0}
    facts = content.datasets.get(cell.dataset, {})
    known = wishes.weights == ("paper",) and not wishes.changes and "mean_weight" in facts
    return {name: float(facts[name]) for name in ("mean_weight", "min_weight")} if known else {}


def person_cost(content: Content, cell: Cell) -> tuple[int, Cost] | None:
    """Return the number of ratings of an average person, and their cost together.

    The average person of a data set has as many ratings as there are per user, each of the mean
    weight. None where nothing is proved, or the weights are not known.
    """
    facts = content.datasets.get(cell.dataset, {})
    weights = _weights(content, cell)
    charged = honest_cost(content, cell)
    if charged is None or charged.status != "proved" or not facts or not weights:
        return None
    ratings = max(round(facts["ratings"] / facts["users"]), 1)
    setting = _setting(content, cell)
    weight = [weights["mean_weight"]] * ratings
    about = METHODS[cell.method].claim().about
    whole = cost(
        setting,
        view_of(cell.method),
        unit="user",
        neighbours=about,
        weight=weight,
        n_raters=RATERS,
        delta=DELTA,
    )
    return ratings, whole


def _noise_budget(
    setting: Setting, params: Mapping[str, Any], weights: Mapping[str, float]
) -> float | None:
    """Return the budget that sets the noise: DPMF's is the smallest, PDPMF's the mean one.

    None, which is the largest that it can be, where the weights are not known.
    """
    which = {"uniform": "min_weight", "sample": "mean_weight"}.get(
        METHODS[setting.method].mechanism or ""
    )
    if which is None or which not in weights or params.get("threshold", "mean") != "mean":
        return None
    return setting.epsilon * weights[which]


def epsilon_experiment(content: Content) -> Experiment | None:
    """Return the experiment that the figure shows: the first that varies epsilon."""
    shown = (experiment for experiment in content.experiments.values() if experiment.errors)
    return next((e for e in shown if e.vary is not None and e.vary.parameter == "epsilon"), None)


def points(content: Content) -> list[Point]:
    """Return the points of the figure. A method without a place on the axis has one, a level."""
    experiment = epsilon_experiment(content)
    if experiment is None:
        return []
    shown: list[Point] = []
    levels: set[tuple[str, str, int]] = set()
    for cell in content.error_cells(experiment):
        charged = honest_cost(content, cell)
        if charged is None:
            continue
        x = charged.epsilon_at_delta if 0 < charged.epsilon_at_delta < math.inf else None
        if x is None:
            key = (cell.dataset, cell.method, cell.factors)
            if key in levels or cell.status != "done":
                continue
            levels.add(key)
        shown.append(Point(cell, charged, x))
    return shown if any(point.x is not None for point in shown) else []


def cost_range(content: Content, cells: Iterable[Cell]) -> tuple[Cost, Cost] | None:
    """Return the smallest and the largest honest cost of cells, as data sets differ."""
    costs = [charged for cell in cells if (charged := honest_cost(content, cell)) is not None]
    if not costs:
        return None
    costs.sort(key=lambda charged: charged.epsilon_at_delta)
    return costs[0], costs[-1]
