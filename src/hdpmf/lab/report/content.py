"""Content of a report: everything it shows, read once from a results store, and its formats."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError
from hdpmf.lab.experiments import Cell, Experiment, Result, Store, collect, dataset_title
from hdpmf.lab.experiments.expansion import (
    Configuration,
    GridPoint,
    best_of_grid,
    configurations,
    grid_points,
)
from hdpmf.lab.experiments.summary import RANKING, Tests, user_tests

METRIC_LABELS = {"mse": "warm MSE", "mae": "warm MAE"}
"""The paper's measure: over test ratings whose user and item were in training."""

ALL_LABELS = {"mse_all": "MSE", "mae_all": "MAE"}
"""Over all test ratings."""

NDCG = "ndcg_at_10"

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

STATUS_WORDS = {"none": "no privacy", "nominal": "nominal", "proved": "proved"}


def plain(value: float | Sequence[float]) -> str:
    """Format a parameter, short and exact; of several seeds, one after another."""
    return f"{value:.10g}" if isinstance(value, float | int) else "/".join(map(plain, value))


def four(value: float) -> str:
    """Format an error with the paper's four digits."""
    return f"{value:.4f}" if math.isfinite(value) else "n/a"


def p_value(p: float) -> str:
    """Format a p value."""
    if math.isnan(p):
        return "no test"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def percent(share: float) -> str:
    """Format a share with its sign."""
    return f"{100 * share:+.1f} %".replace("-", "−")


def counts(facts: Mapping[str, Any]) -> list[str]:
    """Format the users, items, ratings and density of a data set, this as the paper prints it."""
    sizes = [f"{facts[key]:,}" for key in ("users", "items", "ratings")]
    digits, _, power = f"{facts['density']:.2e}".partition("e")
    return [*sizes, f"{digits}e{int(power)}"]


def duration(seconds: float | None) -> str:
    """Format a time span."""
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def words(items: Sequence[str]) -> str:
    """Join a list for a sentence."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def counted(n: int, noun: str) -> str:
    """Format a count with its noun."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def slug(text: str) -> str:
    """Return text as a class name, without anything unusual."""
    return "".join(c for c in text.replace(" ", "-") if c.isascii() and (c.isalnum() or c == "-"))


def symbol_parts(name: str) -> tuple[str, str]:
    """Return the letter and the subscript of a name of the paper's; empty for other names."""
    base, _, subscript = name.partition("_")
    if base in ("epsilon", "f") and (not subscript or subscript.isalpha()):
        return "ε" if base == "epsilon" else base, subscript
    return "", ""


def axis_name(experiment: Experiment) -> dict[str, str]:
    """Return the label of the axis, its subscript apart."""
    letter, subscript = symbol_parts(experiment.varied)
    label = "" if experiment.vary is None else experiment.vary.label
    return {"base": letter or label or experiment.varied, "low": subscript}


def axis_value(x: float, experiment: Experiment) -> str:
    """Format a value of the axis."""
    return f"{100 * x:g} %" if experiment.varied == "fraction" else plain(x)


@dataclass(frozen=True, slots=True)
class Command:
    """One command that wrote into the store.

    Attributes:
        seconds: Wall time; None if the command was killed.
        runs: Runs that it did; None if it was killed.
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
        best: The chosen one; None while something is missing.
        by: The criterion: ``mse`` or ``ndcg_at_10``.
    """

    configuration: Configuration
    grid: list[GridPoint]
    best: GridPoint | None
    experiments: tuple[str, ...]
    by: str = "mse"

    def metric(self, row: GridPoint) -> float:
        """Return the value that a combination is judged by."""
        return row.ndcg if self.by == NDCG else row.mse


@dataclass(slots=True)
class Content:
    """The results of a store.

    Attributes:
        experiments: By name, in the order of the report.
        tuned: Cross-validated grids, each once.
        tests: Of tables, over users, by experiment.
    """

    experiments: dict[str, Experiment]
    cells: dict[str, list[Cell]]
    results: dict[str, Result]
    tuned: list[TunedGrid]
    datasets: dict[str, dict[str, Any]]
    commands: list[Command]
    tests: dict[str, Tests]

    @property
    def all_cells(self) -> Iterator[Cell]:
        """The cells of all experiments."""
        for cells in self.cells.values():
            yield from cells

    @property
    def with_lists(self) -> list[Experiment]:
        """The experiments that show lists."""
        return [experiment for experiment in self.experiments.values() if experiment.lists]

    def error_cells(self, experiment: Experiment) -> list[Cell]:
        """Return the cells of methods that predict ratings; some methods make only lists."""
        return [
            cell
            for cell in self.cells.get(experiment.name, ())
            if cell.method not in METHODS or not METHODS[cell.method].lists_only
        ]

    def table_cells(self, experiment: Experiment) -> list[Cell]:
        """Return the cells at the point of the axis that tables show."""
        x = table_point(experiment)
        return [cell for cell in self.cells.get(experiment.name, ()) if cell.x == x]

    def done(self, runs: Iterable[str]) -> list[Result]:
        """Return the results that there are of these runs."""
        return [self.results[run] for run in runs if run in self.results]

    @property
    def n_runs(self) -> int:
        """Runs behind what is shown; a store may hold others, as of an older method version."""
        shown = {run for cell in self.all_cells for run in cell.run_ids}
        shown |= {run for tuned in self.tuned for row in tuned.grid for run in row.run_ids}
        return len(self.done(shown))

    @property
    def n_incomplete(self) -> int:
        """Cells without a complete result."""
        return sum(cell.status in ("missing", "failed") for cell in self.all_cells)

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
        ConfigError: There is no store, nothing in it, or a method in it is unknown here.
        StorageError: It is damaged.
    """
    with Store(folder) as store:
        started = store.experiments()
        results = store.results()
        datasets = store.datasets()
        if not started or not (results or datasets):
            raise ConfigError(
                f"{store.path} has no results yet, so there is nothing to report; run the same "
                "command again"
            )
        ordered = dict.fromkeys(name for name in (*first, *started) if name in started)
        experiments = {name: started[name] for name in ordered}
        content = Content(experiments, {}, results, [], datasets, _commands(store), {})
        grids: dict[Any, TunedGrid] = {}
        for name, experiment in experiments.items():
            by = experiment.tuning.by
            content.cells[name] = collect(store, experiment, results)
            content.tests[name] = user_tests(content.cells[name], store)
            for configuration in configurations(experiment):
                grid = grid_points(experiment, configuration, results)
                if len(grid) > 1:
                    key = (configuration, by, tuple(row.run_ids for row in grid))
                    users = (*grids[key].experiments, name) if key in grids else (name,)
                    grids[key] = TunedGrid(configuration, grid, best_of_grid(grid, by), users, by)
        content.tuned = list(grids.values())
        return content


def _commands(store: Store) -> list[Command]:
    """Return the commands with their ends; a start without an end was killed."""
    marks = sorted([*store.events("start"), *store.events("end")], key=lambda event: event.at)
    commands = []
    for event, after in zip(marks, [*marks[1:], None], strict=True):
        if event.kind == "start":
            end = after.data if after is not None and after.kind == "end" else {}
            commands.append(
                Command(
                    line=str(event.data.get("command", "")),
                    at=event.at,
                    environment=dict(event.data.get("environment", {})),
                    jobs=event.data.get("jobs"),
                    backend=str(event.data.get("backend", "")),
                    seconds=end.get("seconds"),
                    runs=end.get("runs"),
                    reason=str(end.get("reason", "killed or still running")),
                )
            )
    return commands


def by_dataset(shown: Iterable[Any]) -> dict[str, dict[str, list[Any]]]:
    """Group cells, or what has a cell, by data set, and in each by method."""
    groups: dict[str, dict[str, list[Any]]] = {}
    for one in shown:
        cell = getattr(one, "cell", one)
        groups.setdefault(cell.dataset, {}).setdefault(cell.method, []).append(one)
    return groups


def further_measures(content: Content) -> list[str]:
    """Return the measures that tables of lists show beside NDCG."""
    cells = [cell for one in content.with_lists for cell in content.cells.get(one.name, ())]
    return [name for name in list_metrics(cells) if name in RANKING_LABELS and name != NDCG]


def list_metrics(cells: Iterable[Cell]) -> list[str]:
    """Return the measures of lists that any of these cells has."""
    measured = {metric for cell in cells for metric in cell.metrics}
    return [metric for metric in RANKING if metric in measured]


def anchor(cell: Cell) -> str:
    """Return the id of a cell's runs in the page."""
    suffix = "" if cell.x is None else f"-x{plain(cell.x)}"
    return _slug(f"runs-{cell.experiment}-{cell.dataset}-{cell.method}-k{cell.factors}{suffix}")


def grid_anchor(tuned: TunedGrid, row: GridPoint) -> str:
    """Return the id of a grid cell's runs in the page."""
    values = "-".join(f"{name}-{plain(value)}" for name, value in row.values.items())
    dataset, method, factors, seed = tuned.configuration
    alone = "" if seed is None else f"-s{seed}"
    return _slug(f"cv-{tuned.experiments[0]}-{dataset}-{method}-k{factors}{alone}-{values}")


def _slug(text: str) -> str:
    # Injective, so that two names never share an anchor.
    return re.sub(
        r"[^A-Za-z0-9.-]", lambda found: "_" if found[0] == "_" else f"_{ord(found[0]):x}_", text
    )


def table_point(experiment: Experiment) -> float | None:
    """Return the point of the axis that tables show: the experiment's epsilon, or the middle."""
    if experiment.vary is None:
        return None
    xs = [float(x) for x in experiment.vary.values]
    own = float(experiment.epsilon)
    return own if experiment.varied == "epsilon" and own in xs else xs[len(xs) // 2]


def table_place(experiment: Experiment) -> str:
    """Name the point of the axis that tables show, to be put after a title."""
    x = table_point(experiment)
    return "" if x is None else f", {experiment.varied} = {plain(x)}"


def is_level(experiment: Experiment, cell: Cell) -> bool:
    """Return whether the figure varies epsilon and the method has none: its curve is level."""
    if experiment.varied != "epsilon" or cell.method not in METHODS:
        return False
    return "epsilon" not in METHODS[cell.method].options


def ndcg(cell: Cell) -> float:
    """Return the mean NDCG@10; NaN if there is none."""
    return cell.summary(NDCG).mean


def highest(cells: Iterable[Cell]) -> Cell | None:
    """Return the cell with the best lists."""
    return max((cell for cell in cells if math.isfinite(ndcg(cell))), key=ndcg, default=None)


def lowest(
    cells: Iterable[Cell], metrics: Iterable[str] = METRIC_LABELS
) -> set[tuple[str, str, str, int]]:
    """Return where a method has the lowest error of all: measure, data set, method and K."""
    best: dict[tuple[str, str, int], Cell] = {}
    for cell in cells:
        for metric in metrics if cell.status == "done" else ():
            key = (metric, cell.dataset, cell.factors)
            if key not in best or cell.metrics[metric].mean < best[key].metrics[metric].mean:
                best[key] = cell
    return {(metric, dataset, cell.method, k) for (metric, dataset, k), cell in best.items()}


def guarantee(cell: Cell) -> str:
    """Return what a cell's epsilon is worth, short enough for a legend."""
    claim = cell.claim
    if claim is None:
        return "unknown"
    if claim.status != "proved" or cell.method not in METHODS:
        return STATUS_WORDS.get(claim.status, claim.status)
    method = METHODS[cell.method]
    stated = method.claim()
    hidden = "presence"
    if stated.presence is None:
        hidden = "values"
    elif stated.about == "value":
        hidden = "values and presence"
    if method.family == "bits":
        hidden = "values (who rated what: no guarantee against anybody with the model)"
    seen = "sums" if method.headline == "sums" else "all messages"
    return f"{claim.standing}: {hidden}; {seen} seen"
