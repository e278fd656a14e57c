"""Everything that a report shows, read from a store once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from hdpmf.errors import ConfigError
from hdpmf.experiments import (
    RANKING,
    Cell,
    Experiment,
    Measured,
    Place,
    Result,
    Store,
    collect,
    dataset_title,
    tuning_tables,
)
from hdpmf.methods import METHODS
from hdpmf.report.numbers import plain


@dataclass(frozen=True, slots=True)
class Command:
    """One command that wrote into the store.

    Attributes:
        line: As typed.
        at: When it began.
        environment: Machine and versions.
        jobs: Runs at a time.
        backend: Where they ran.
        seconds: Wall time; None where the command was killed.
        runs: Runs that it did; None where it was killed.
        reason: How it ended.
    """

    line: str
    at: str
    environment: dict[str, Any]
    jobs: int | None
    backend: str
    seconds: float | None
    runs: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class TunedGrid:
    """A cross-validated grid, with the experiments that use its choice.

    Attributes:
        place: Data set, method and K.
        grid: Every combination.
        best: The chosen one; None while something is missing.
        experiments: Names of the experiments.
        by: What was chosen by: ``mse`` or ``ndcg_at_10``.
    """

    place: Place
    grid: list[Measured]
    best: Measured | None
    experiments: tuple[str, ...]
    by: str = "mse"


@dataclass(slots=True)
class Content:
    """What the store says.

    Attributes:
        experiments: By name, in the order of the report.
        cells: The cells of those that have runs, by name.
        results: Every run, by id.
        tuned: Cross-validated grids, each once.
        datasets: What is known about the data sets.
        commands: Those that wrote into the store, oldest first.
        problems: What could not be read, in words.
    """

    experiments: dict[str, Experiment]
    cells: dict[str, list[Cell]]
    results: dict[str, Result]
    tuned: list[TunedGrid]
    datasets: dict[str, dict[str, Any]]
    commands: list[Command]
    problems: list[str] = field(default_factory=list)

    @property
    def quick(self) -> bool:
        """Whether any of it is the reduced version."""
        return any(self.experiments[name].quick for name in self.cells)

    @property
    def has_paper(self) -> bool:
        """Whether an experiment says which methods a paper shows, so that the others are additions."""
        return any(experiment.paper_methods for experiment in self.experiments.values())

    @property
    def all_cells(self) -> Iterator[Cell]:
        """The cells of all experiments."""
        for cells in self.cells.values():
            yield from cells

    def error_cells(self, experiment: Experiment) -> list[Cell]:
        """The cells of an experiment that errors are shown of: a method that makes only lists predicts no ratings."""
        return [
            cell
            for cell in self.cells.get(experiment.name, ())
            if cell.method not in METHODS or not METHODS[cell.method].lists_only
        ]

    @property
    def n_runs(self) -> int:
        """Runs behind what is shown; a store may hold others, as of a method that has changed since."""
        shown = {run for cell in self.all_cells for run in cell.run_ids}
        shown |= {run for tuned in self.tuned for row in tuned.grid for run in row.run_ids}
        return sum(run in self.results for run in shown)

    @property
    def dataset_titles(self) -> dict[str, str]:
        """Display names by name, in the order of the experiments."""
        names = [name for experiment in self.experiments.values() for name in experiment.datasets]
        return {name: dataset_title(name) for name in dict.fromkeys(names)}

    @property
    def method_labels(self) -> dict[str, str]:
        """Display names by name, in the order of the registry."""
        used = {cell.method: cell.label for cell in self.all_cells}
        return {name: used[name] for name in (*METHODS, *used) if name in used}

    @property
    def factors(self) -> list[int]:
        """Every K, largest first."""
        return sorted({cell.factors for cell in self.all_cells}, reverse=True)


def read_content(folder: str | PathLike[str], first: Iterable[str] = ()) -> Content:
    """Read a results folder.

    The experiments named in ``first`` come before others, in this order.

    Raises:
        ConfigError: There is no store, or nothing in it.
        StorageError: It is damaged.
    """
    with Store(folder) as store:
        started = store.experiments()
        results, datasets = store.results(), store.datasets()
        if not started or not (results or datasets):
            raise ConfigError(
                f"{store.path} has no results yet, so there is nothing to report; run the same command again"
            )
        ordered = dict.fromkeys(name for name in (*first, *started) if name in started)
        content = Content({name: started[name] for name in ordered}, {}, results, [], datasets, _commands(store))
        grids: dict[Any, TunedGrid] = {}
        for name, experiment in content.experiments.items():
            if not experiment.has_runs:
                continue
            try:
                content.cells[name] = collect(store, experiment, results)
                tables = tuning_tables(store, experiment, results)
            except ConfigError as error:
                # A method of the user's whose module is not here, for instance: say so, show the rest.
                content.problems.append(f"{name} cannot be shown: {error}")
                continue
            for place, (grid, best) in tables.items():
                by = experiment.tuning.by
                key = (place, by, tuple(row.run_ids for row in grid))
                known = grids.get(key)
                users = (name,) if known is None else (*known.experiments, name)
                grids[key] = TunedGrid(place, grid, best, users, by)
        content.tuned = list(grids.values())
        return content


def _commands(store: Store) -> list[Command]:
    """The commands with their ends. A start without an end before the next start was killed."""
    marks = sorted([*store.events("start"), *store.events("end")], key=lambda event: event.at)
    commands = []
    for position, event in enumerate(marks):
        if event.kind != "start":
            continue
        after = marks[position + 1] if position + 1 < len(marks) else None
        end = after.data if after is not None and after.kind == "end" else {}
        data = event.data
        commands.append(
            Command(
                line=str(data.get("command", "")),
                at=event.at,
                environment=dict(data.get("environment", {})),
                jobs=data.get("jobs"),
                backend=str(data.get("backend", "")),
                seconds=end.get("seconds"),
                runs=end.get("runs"),
                reason=str(end.get("reason", "killed or still running")),
            )
        )
    return commands


def list_metrics(cells: Iterable[Cell]) -> list[str]:
    """The measures of lists that any of these cells has."""
    measured = {metric for cell in cells for metric in cell.metrics}
    return [metric for metric in RANKING if metric in measured]


def anchor(cell: Cell) -> str:
    """The id of a cell's runs in the page."""
    place = "" if cell.x is None else f"-x{plain(cell.x)}"
    return _slug(f"runs-{cell.experiment}-{cell.dataset}-{cell.method}-k{cell.factors}{place}")


def grid_anchor(tuned: TunedGrid, row: Measured) -> str:
    """The id of a grid cell's runs in the page."""
    values = "-".join(f"{name}-{plain(value)}" for name, value in row.values.items())
    place = tuned.place
    return _slug(f"cv-{tuned.experiments[0]}-{place.dataset}-{place.method}-k{place.factors}-{values}")


def _slug(text: str) -> str:
    # Injective, so that two names never share an anchor.
    return re.sub(r"[^A-Za-z0-9.-]", lambda found: "_" if found[0] == "_" else f"_{ord(found[0]):x}_", text)
