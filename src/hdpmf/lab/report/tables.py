"""Tables of a report: errors, epsilons and their real cost, hyper-parameters, runs, environment."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.accounting import DELTA, Cost, Setting, cost
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.lab.experiments import Cell, Experiment, Result
from hdpmf.lab.experiments.expansion import wishes_in_words, wishes_of
from hdpmf.lab.experiments.store import StoredClaim
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    NDCG,
    Content,
    Section,
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
    drawn = wishes.weights == ("paper",) and not (wishes.user_groups or wishes.item_groups)
    known = drawn and not wishes.changes and "mean_weight" in facts
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


_SHORT_NAMES = {"learning_rate": "lr", "reg": "reg"}


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method in a table of errors, with its cells by K.

    Attributes:
        added: True if the paper does not have this method.
    """

    label: str
    claim: StoredClaim | None
    added: bool
    cells: dict[int, Cell]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The rows of one data set."""

    dataset: str
    title: str
    rows: list[Any]


@dataclass(frozen=True, slots=True)
class ErrorTable:
    """Errors of one experiment: methods down, measures and K across."""

    experiment: Experiment
    factors: list[int]
    groups: list[RowGroup]
    lowest: set[tuple[str, str, str, int]]


def lowest(cells: Iterable[Cell]) -> set[tuple[str, str, str, int]]:
    """Return where a method has the lowest error of all: measure, data set, method and K."""
    best: dict[tuple[str, str, int], Cell] = {}
    for cell in cells:
        for metric in METRIC_LABELS if cell.status == "done" else ():
            key = (metric, cell.dataset, cell.factors)
            if key not in best or cell.metrics[metric].mean < best[key].metrics[metric].mean:
                best[key] = cell
    return {(metric, dataset, cell.method, k) for (metric, dataset, k), cell in best.items()}


def error_table(content: Content, experiment: Experiment) -> ErrorTable:
    """Return the errors of an experiment, data sets one below the other."""
    cells = content.error_cells(experiment)
    groups = []
    for dataset, title in content.dataset_titles.items():
        here = [cell for cell in cells if cell.dataset == dataset]
        rows = []
        for method in dict.fromkeys(cell.method for cell in here):
            mine = {cell.factors: cell for cell in here if cell.method == method}
            claims = (cell.claim for cell in mine.values() if cell.claim is not None)
            added = bool(experiment.paper_methods) and method not in experiment.paper_methods
            rows.append(MethodRow(next(iter(mine.values())).label, next(claims, None), added, mine))
        if rows:
            groups.append(RowGroup(dataset, title, rows))
    factors = list(dict.fromkeys(cell.factors for cell in cells))
    return ErrorTable(experiment, factors, groups, lowest(cells))


def errors_section(content: Content, experiments: Iterable[Experiment]) -> Section:
    """Return the errors of every method, with a table for each of these experiments."""
    tables = [error_table(content, experiment) for experiment in experiments]
    return Section("Errors", "Errors by method", "errors.html", {"tables": tables})


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A method's claim and its honest cost.

    Attributes:
        range: The smallest and the largest honest cost over the data sets; None if unknown.
        persons: For each data set where it is proved: its title, the ratings of the average person,
            and their cost together.
    """

    label: str
    claim: StoredClaim
    range: tuple[Cost, Cost] | None
    persons: list[tuple[str, int, Cost]]


def claims_section(content: Content) -> Section:
    """Return what each method's epsilon is worth."""
    claimed: dict[str, list[Cell]] = {}
    for cell in content.all_cells:
        if cell.claim is not None:
            alike = claimed.setdefault(cell.method, [cell])
            first = alike[0]
            key = (first.experiment, first.factors, first.x)
            if (cell.experiment, cell.factors, cell.x) == key:
                alike.append(cell)
    rows = []
    for method, label in content.method_labels.items():
        cells = claimed.get(method, [])
        claim = cells[0].claim if cells else None
        if claim is not None:
            rows.append(
                ClaimRow(label, claim, cost_range(content, cells), _persons(content, cells))
            )
    facts = {"rows": rows, "raters": RATERS, "delta": DELTA}
    return Section("What epsilon stands on", "What each epsilon stands on", "claims.html", facts)


def _persons(content: Content, cells: Iterable[Cell]) -> list[tuple[str, int, Cost]]:
    found: dict[str, tuple[str, int, Cost]] = {}
    for cell in cells:
        cost = person_cost(content, cell)
        if cost is not None:
            found.setdefault(cell.dataset, (cell.dataset_title, *cost))
    return list(found.values())


def datasets_section() -> Section:
    """Return the counts of the data sets."""
    return Section("Data sets", "Data sets", "datasets.html", {})


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """The choices of one method at one K: a grid, or None, for each data set."""

    label: str
    factors: int
    grids: list[TunedGrid | None]
    tried: str


def tuning_section(content: Content) -> Section:
    """Return the cross-validated grids with their winners."""
    titles = content.dataset_titles
    found: dict[tuple[str, int, tuple[float, ...]], dict[str, TunedGrid]] = {}
    boxes: dict[str, list[TunedGrid]] = {name: [] for name in titles}
    for tuned in content.tuned:
        # Experiments with grids of their own get rows of their own.
        tried = tuple(value for row in tuned.grid for value in row.values.values())
        key = (tuned.configuration.method, tuned.configuration.factors, tried)
        found.setdefault(key, {})[tuned.configuration.dataset] = tuned
        boxes[tuned.configuration.dataset].append(tuned)
    used = [name for name in titles if boxes[name]]
    rows = [
        ChoiceRow(
            content.label_of(method),
            factors,
            [grids.get(name) for name in used],
            _tried(next(iter(grids.values()))),
        )
        for (method, factors, _), grids in found.items()
    ]
    facts = {
        "heads": ["Method", *(titles[name] for name in used), "Tried"],
        "rows": rows,
        "boxes": {name: boxes[name] for name in used},
    }
    return Section("Hyper-parameters", "Chosen hyper-parameters", "tuning.html", facts)


def _tried(tuned: TunedGrid) -> str:
    values: dict[str, list[float]] = defaultdict(list)
    for row in tuned.grid:
        for name, value in row.values.items():
            if value not in values[name]:
                values[name].append(value)
    return "; ".join(
        f"{_SHORT_NAMES.get(name, name)} {', '.join(map(plain, all_))}"
        for name, all_ in values.items()
    )


def parameters_in_words(values: Mapping[str, float]) -> str:
    """Return hyper-parameters on one line."""
    return " ".join(f"{_SHORT_NAMES.get(name, name)} {plain(v)}" for name, v in values.items())


@dataclass(frozen=True, slots=True)
class RunBox:
    """The runs behind the cells of an experiment on one data set."""

    experiment: Experiment
    dataset: str
    metrics: list[str]
    cells: list[Cell]
    count: str


def runs_section(content: Content) -> Section:
    """Return the runs of every number."""
    boxes = []
    for name, cells in content.cells.items():
        experiment = content.experiments[name]
        metrics = [*METRIC_LABELS, *([NDCG] if experiment.lists else [])]
        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            here = [cell for cell in cells if cell.dataset == dataset]
            boxes.append(RunBox(experiment, dataset, metrics, here, _count(content, here)))
    facts = {"boxes": boxes, "ranked_metrics": [*METRIC_LABELS, NDCG]}
    return Section("Runs", "Runs", "runs.html", facts)


def _count(content: Content, cells: list[Cell]) -> str:
    ids = {run for cell in cells for run in cell.run_ids}
    done = [content.results[run] for run in ids if run in content.results]
    seconds = sum(float(result.metrics.get("fit_seconds", 0.0)) for result in done)
    numbers = f"{counted(len(cells), 'number')}, {counted(len(done), 'run')}"
    return f"{numbers}, {duration(seconds)} of fitting"


def environment_section(content: Content) -> Section:
    """Return the commands, settings, machine and versions behind the results."""
    environment = dict(content.commands[-1].environment) if content.commands else {}
    versions = sorted({result.version for result in content.results.values() if result.version})
    if versions:
        environment["hdpmf that ran them"] = ", ".join(versions)
    settings = [
        (experiment, _weights_in_words(content, experiment))
        for experiment in content.experiments.values()
        if experiment.has_runs
    ]
    facts = {"settings": settings, "environment": environment}
    return Section("Run it again", "How to run this again", "again.html", facts)


def _weights_in_words(content: Content, experiment: Experiment) -> str:
    """Return the privacy weights of an experiment, by data set where they differ."""
    weights: dict[str, list[str]] = {}
    for name in experiment.datasets:
        text = wishes_in_words(experiment, name)
        weights.setdefault(text, []).append(content.dataset_titles[name])
    return "; ".join(
        text if len(weights) == 1 else f"{text} ({words(names)})" for text, names in weights.items()
    )
