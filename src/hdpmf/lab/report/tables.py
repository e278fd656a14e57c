"""Tables of a report: errors, epsilons, hyper-parameters, runs and the environment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hdpmf.common.privacy.accounting import DELTA, Cost
from hdpmf.lab.experiments import Cell, Experiment, wishes_in_words
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
from hdpmf.lab.report.honest_epsilon import RATERS, cost_range, person_cost

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
    """Errors of one experiment: methods down, measures and K across.

    Attributes:
        lowest: See `lowest`.
    """

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
