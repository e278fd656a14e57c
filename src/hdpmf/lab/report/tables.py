"""Tables of a report: what epsilons really cost, and chosen parameters."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.accounting import DELTA, Cost, Setting, cost
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.experiments.expansion import split_in_words, wishes_in_words, wishes_of
from hdpmf.lab.experiments.store import StoredClaim
from hdpmf.lab.report.content import (
    Content,
    TunedGrid,
    counted,
    duration,
    plain,
    words,
)

HONEST_FIGURE = "figure_honest"

RATERS = 100
"""Raters of the item whose rating is charged; a message carries one part in so many of the
noise.
"""

_VIEW_WORDS = {"messages": "all messages seen", "sums-h-known": "sums seen"}


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


def view_words(charged: Cost) -> str:
    """Return what the recommender sees and its cost, short enough for a legend."""
    if charged.epsilon_at_delta == 0:
        return "sends nothing, ε 0"
    if math.isinf(charged.epsilon_at_delta):
        return "no privacy"
    return f"{_VIEW_WORDS[charged.view]}, {charged.status}"


def honest_cost(content: Content, cell: Cell, **of_person: Any) -> Cost | None:
    """Return the cost of a rating of weight 1; None for a method unknown to the accountant."""
    try:
        method = METHODS[cell.method]
        params = _parameters(content, cell)
        setting = Setting.from_params(cell.method, params)
        budget = _noise_budget(setting, params, _weights(content, cell))
        return cost(
            replace(setting, noise_budget=budget),
            "sums-h-known" if method.headline == "sums" else "messages",
            neighbours=method.claim().about,
            n_raters=RATERS,
            delta=DELTA,
            **of_person,
        )
    except (ConfigError, PrivacyError):
        return None  # a method of the user's own: nothing is known about what it sends


def _parameters(content: Content, cell: Cell) -> dict[str, Any]:
    method = METHODS[cell.method]
    for result in content.done(cell.run_ids):
        return method.parameters(**result.run.params)
    experiment = content.experiments[cell.experiment]
    usual = {
        "epsilon": cell.x if experiment.varied == "epsilon" else experiment.epsilon,
        "epochs": experiment.epochs,
        "n_factors": cell.factors,
        "solver": experiment.solver,
    }
    return method.parameters(**method.own(**usual))


def _weights(content: Content, cell: Cell) -> dict[str, float]:
    """Return the mean and the smallest privacy weight in a cell's runs; empty if unknown.

    Data sets are stored with what the paper's groups come to. Those say nothing about other wishes.
    """
    experiment = content.experiments[cell.experiment]
    wishes = wishes_of(experiment, cell.dataset, experiment.privacy, 0)
    for result in content.done(cell.run_ids):
        # A method that does not look at wishes has none in its run.
        wishes = result.run.privacy or wishes
    if wishes.weights == ("uniform",):
        return {"mean_weight": 1.0, "min_weight": 1.0}
    facts = content.datasets.get(cell.dataset, {})
    known = wishes.weights == ("paper",) and not wishes.changes and "mean_weight" in facts
    return {name: float(facts[name]) for name in ("mean_weight", "min_weight")} if known else {}


def _noise_budget(
    setting: Setting, params: Mapping[str, Any], weights: Mapping[str, float]
) -> float | None:
    """Return the budget that sets the noise: DPMF's is the smallest, PDPMF's the mean one.

    None, which is the largest that it can be, where the weights are not known.
    """
    mechanism = METHODS[setting.method].mechanism or ""
    which = {"uniform": "min_weight", "sample": "mean_weight"}.get(mechanism)
    if which is None or which not in weights or params.get("threshold", "mean") != "mean":
        return None
    return setting.epsilon * weights[which]


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
    weight = [weights["mean_weight"]] * ratings
    whole = honest_cost(content, cell, unit="user", weight=weight)
    return None if whole is None else (ratings, whole)


def points(content: Content) -> list[Point]:
    """Return accuracy against honest epsilon, of the first experiment that varies epsilon.

    A method without a place on the axis has one point, a level.
    """
    shown: list[Point] = []
    levels: set[tuple[str, str, int]] = set()
    able = (one for one in content.experiments.values() if one.errors and one.varied == "epsilon")
    experiment = next(able, None)
    for cell in () if experiment is None else content.error_cells(experiment):
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
    costs.sort(key=lambda charged: charged.epsilon_at_delta)
    return (costs[0], costs[-1]) if costs else None


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A method's claim and its honest cost.

    Attributes:
        range: The smallest and the largest honest cost over the data sets; None if unknown.
        persons: By the title of each data set where it is proved: the ratings of the average
            person, and their cost together.
    """

    label: str
    claim: StoredClaim
    range: tuple[Cost, Cost] | None
    persons: dict[str, tuple[int, Cost]]


def claim_rows(content: Content) -> list[ClaimRow]:
    """Return what each method's epsilon is worth, at the first place where it was run."""
    claimed: dict[str, list[Cell]] = {}
    for cell in content.all_cells:
        if cell.claim is not None:
            alike = claimed.setdefault(cell.method, [cell])
            first = alike[0]
            key = (first.experiment, first.factors, first.x)
            if (cell.experiment, cell.factors, cell.x) == key and cell is not first:
                alike.append(cell)
    rows = []
    for method, label in content.method_labels.items():
        cells = claimed.get(method, [])
        persons = {cell.dataset_title: person_cost(content, cell) for cell in cells}
        proved = {title: found for title, found in persons.items() if found is not None}
        if cells and cells[0].claim is not None:
            rows.append(ClaimRow(label, cells[0].claim, cost_range(content, cells), proved))
    return rows


_SHORT_NAMES = {"learning_rate": "lr"}


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """The choices of one method at one K: its grids by data set (a seed each), what was tried."""

    label: str
    factors: int
    grids: dict[str, list[TunedGrid]]
    tried: str


def choice_rows(content: Content) -> list[ChoiceRow]:
    """Return the cross-validated grids; experiments with grids of their own have their rows."""
    found: dict[tuple[str, int, str], dict[str, list[TunedGrid]]] = {}
    for tuned in content.tuned:
        dataset, method, factors, _ = tuned.configuration
        names = dict.fromkeys(name for row in tuned.grid for name in row.values)
        values = {name: dict.fromkeys(row.values[name] for row in tuned.grid) for name in names}
        tried = "; ".join(
            f"{_SHORT_NAMES.get(name, name)} {', '.join(map(plain, all_))}"
            for name, all_ in values.items()
        )
        found.setdefault((method, factors, tried), {}).setdefault(dataset, []).append(tuned)
    labels = content.method_labels
    return [
        ChoiceRow(labels.get(method, method), factors, grids, tried)
        for (method, factors, tried), grids in found.items()
    ]


def parameters_in_words(values: Mapping[str, float | tuple[float, ...]]) -> str:
    """Return hyper-parameters on one line."""
    return " ".join(f"{_SHORT_NAMES.get(name, name)} {plain(v)}" for name, v in values.items())


def fitting_in_words(content: Content, cells: list[Cell]) -> str:
    """Return how much was done for these cells."""
    done = content.done({run for cell in cells for run in cell.run_ids})
    seconds = sum(float(result.metrics.get("fit_seconds", 0.0)) for result in done)
    numbers = f"{counted(len(cells), 'number')}, {counted(len(done), 'run')}"
    return f"{numbers}, {duration(seconds)} of fitting"


def environment(content: Content) -> dict[str, Any]:
    """Return the last command's machine and versions, and the versions behind the results."""
    facts = dict(content.commands[-1].environment) if content.commands else {}
    versions = sorted({result.version for result in content.results.values() if result.version})
    return facts | ({"hdpmf that ran them": ", ".join(versions)} if versions else {})


def settings_of_data(content: Content, experiment: Experiment) -> list[tuple[str, str, str]]:
    """Return the splits and the privacy weights of an experiment, with the data sets of each."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name in experiment.datasets:
        said = split_in_words(experiment, name), wishes_in_words(experiment, name)
        alike.setdefault(said, []).append(content.dataset_titles[name])
    return [(words(names), *said) for said, names in alike.items()]
