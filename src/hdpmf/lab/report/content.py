"""Content of a report: everything it shows, read once from a results store, and the formats of
its numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError
from hdpmf.lab.experiments import (
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

METRIC_LABELS = {"mse": "MSE", "mae": "MAE"}

NDCG = "ndcg_at_10"

NDCG_MARGIN = "ndcg_margin_at_10"

RANKING_LABELS = {
    NDCG: "NDCG@10",
    "recall_at_10": "Recall",
    "precision_at_10": "Precision",
    "map_at_10": "MAP",
    "mrr_at_10": "MRR",
    "hit_rate_at_10": "Hit rate",
    "coverage_at_10": "Coverage",
    "popularity_at_10": "Raters",
    "gini_at_10": "Gini",
}
"""Of lists of ten, in the order of tables."""

LABELS = METRIC_LABELS | RANKING_LABELS


def plain(value: float) -> str:
    """A parameter: short, exact."""
    return f"{value:.10g}"


def four(value: float) -> str:
    """An error, with the paper's four digits."""
    return f"{value:.4f}" if math.isfinite(value) else "n/a"


def two(value: float) -> str:
    """An error at a glance."""
    return f"{value:.2f}" if math.isfinite(value) else "n/a"


def p_value(p: float) -> str:
    """A p value in words."""
    if math.isnan(p):
        return "no test"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def percent(share: float, digits: int = 1) -> str:
    """A share, signed."""
    return f"{100 * share:+.{digits}f} %".replace("-", "−")


def density(share: float) -> str:
    """A density as the paper prints it."""
    digits, _, power = f"{share:.2e}".partition("e")
    return f"{digits}e{int(power)}"


def duration(seconds: float | None) -> str:
    """A time span."""
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def words(items: Sequence[str]) -> str:
    """A list in a sentence."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def counted(n: int, noun: str) -> str:
    """A count with its noun."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


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
        """Whether an experiment says which methods a paper shows, so that the others are
        additions.
        """
        return any(experiment.paper_methods for experiment in self.experiments.values())

    @property
    def all_cells(self) -> Iterator[Cell]:
        """The cells of all experiments."""
        for cells in self.cells.values():
            yield from cells

    def error_cells(self, experiment: Experiment) -> list[Cell]:
        """The cells of an experiment that errors are shown of: a method that makes only lists
        predicts no ratings.
        """
        return [
            cell
            for cell in self.cells.get(experiment.name, ())
            if cell.method not in METHODS or not METHODS[cell.method].lists_only
        ]

    @property
    def n_runs(self) -> int:
        """Runs behind what is shown; a store may hold others, as of a method that has changed
        since.
        """
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
                f"{store.path} has no results yet, so there is nothing to report; run the same "
                "command again"
            )
        ordered = dict.fromkeys(name for name in (*first, *started) if name in started)
        content = Content(
            {name: started[name] for name in ordered}, {}, results, [], datasets, _commands(store)
        )
        grids: dict[Any, TunedGrid] = {}
        for name, experiment in content.experiments.items():
            if not experiment.has_runs:
                continue
            try:
                content.cells[name] = collect(store, experiment, results)
                tables = tuning_tables(store, experiment, results)
            except ConfigError as error:
                # A method of the user's whose module is not here, for instance: say so, show the
                # rest.
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
    return _slug(
        f"cv-{tuned.experiments[0]}-{place.dataset}-{place.method}-k{place.factors}-{values}"
    )


def _slug(text: str) -> str:
    # Injective, so that two names never share an anchor.
    return re.sub(
        r"[^A-Za-z0-9.-]", lambda found: "_" if found[0] == "_" else f"_{ord(found[0]):x}_", text
    )


def list_experiments(content: Content) -> list[Experiment]:
    """The experiments that show lists."""
    return [experiment for experiment in content.experiments.values() if experiment.lists]


def table_point(experiment: Experiment) -> float | None:
    """Where on the axis the table stands: at the experiment's own epsilon, or else in the
    middle.
    """
    if experiment.vary is None:
        return None
    xs = [float(x) for x in experiment.vary.values]
    own = float(experiment.epsilon)
    return own if experiment.vary.parameter == "epsilon" and own in xs else xs[len(xs) // 2]


def table_cells(content: Content, experiment: Experiment) -> list[Cell]:
    """The cells of the table."""
    x = table_point(experiment)
    return [cell for cell in content.cells.get(experiment.name, ()) if cell.x == x]


def is_level(experiment: Experiment, cell: Cell) -> bool:
    """Whether what the figure varies is nothing to this method, so that its curve would be a
    level line.
    """
    vary = experiment.vary
    if vary is None or vary.parameter != "epsilon" or cell.method not in METHODS:
        return False
    return "epsilon" not in METHODS[cell.method].options


def ndcg(cell: Cell) -> float:
    """Mean NDCG@10; NaN where there is none."""
    return cell.summary(NDCG).mean


def highest(cells: Iterable[Cell]) -> Cell | None:
    """The cell with the best lists."""
    return max((cell for cell in cells if math.isfinite(ndcg(cell))), key=ndcg, default=None)


def list_findings(content: Content) -> list[str]:
    """Who makes the best lists on each data set, with and without a proof, and what the trivial
    lists have.
    """
    sentences = []
    for experiment in list_experiments(content):
        parts = []
        cells = [
            cell
            for cell in table_cells(content, experiment)
            if cell.factors == experiment.factors[0]
        ]
        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            here = [cell for cell in cells if cell.dataset == dataset]
            best = highest(here)
            if best is None:
                continue
            text = f"{best.dataset_title}: {_named(best)}"
            hidden = [cell for cell in here if _hides_presence(cell)]
            others = {
                "best of those with a proof": highest(cell for cell in here if _proved(cell)),
                "best of those that hide presence": highest(hidden),
                "most popular": next(
                    (cell for cell in here if cell.method == "most-popular"), None
                ),
            }
            named = {best.method}
            for words, cell in others.items():
                if cell is not None and cell.method not in named and math.isfinite(ndcg(cell)):
                    named.add(cell.method)
                    text += (
                        f"; {words}: "
                        f"{four(ndcg(cell)) if words == 'most popular' else _named(cell)}"
                    )
            parts.append(text)
        x = table_point(experiment)
        where = (
            ""
            if x is None or experiment.vary is None
            else f" at {experiment.vary.parameter} {plain(x)}"
        )
        if parts:
            sentences.append(f"Best lists (NDCG@10{where}). {'. '.join(parts)}.")
    return sentences


def _named(cell: Cell) -> str:
    return f"{cell.label} {four(ndcg(cell))}"


def _proved(cell: Cell) -> bool:
    return cell.claim is not None and cell.claim.status == "proved"


def _hides_presence(cell: Cell) -> bool:
    return (
        _proved(cell)
        and cell.method in METHODS
        and METHODS[cell.method].claim().presence is not None
    )
