"""Progress of runs, live on a terminal or as lines elsewhere, and the status of a store."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from hdpmf.common.base.progress import View, clock, view
from hdpmf.common.methods import METHODS
from hdpmf.lab.experiments.runner import (
    Progress,
    estimated_seconds,
    expected_runs,
    final_runs,
    tuning_runs,
    unfinished,
)
from hdpmf.lab.experiments.runs import Run
from hdpmf.lab.experiments.spec import Experiment
from hdpmf.lab.experiments.store import Result
from hdpmf.lab.experiments.summary import dataset_title

if TYPE_CHECKING:
    from rich.console import Group


class StageProgress:
    """Counts of one stage: work done by estimated cost, and each method's best error so far."""

    def __init__(self) -> None:
        self.name = ""
        self.total = self.done = self.unusable = 0
        self._cost = self._cost_done = 0.0
        self._begin = time.monotonic()
        self._errors: dict[tuple[str, str], dict[bytes, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )

    def stage(self, name: str, runs: Sequence[Run]) -> None:
        """Begin a stage."""
        self.name = name
        self.total = len(runs)
        self.done = 0
        self.unusable = 0
        self._cost = sum(map(estimated_seconds, runs))
        self._cost_done = 0.0
        self._begin = time.monotonic()
        self._errors.clear()

    def finished(self, result: Result) -> None:
        """Count a run that ended."""
        self.done += 1
        self._cost_done += estimated_seconds(result.run)
        if result.status != "done":
            self.unusable += 1
        if math.isnan(result.metric("mse")):
            return  # it predicts no ratings
        run = result.run
        # Folds and seeds of the same combination are one mean; the best is the best of these means.
        combination = msgspec.json.encode(
            [run.params, None if run.privacy is None else run.privacy.changes, run.part.fraction],
            order="sorted",
        )
        self._errors[dataset_title(run.data.name), run.method][combination].append(
            result.metric("mse")
        )

    @property
    def seconds(self) -> float:
        """Seconds since the stage began."""
        return time.monotonic() - self._begin

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end of the stage; None while unknown."""
        if self._cost_done == 0 or self.seconds < 0.5:
            return None
        return max(self._cost - self._cost_done, 0.0) * self.seconds / self._cost_done

    @property
    def per_second(self) -> float:
        """Runs per second."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def share(self) -> float:
        """Share of the work that is done, by estimated cost."""
        return self._cost_done / self._cost if self._cost else 1.0

    @property
    def line(self) -> str:
        """A summary on one line."""
        best = ", ".join(
            f"{METHODS[method].label} {mse:.4f} ({data})"
            for (data, method), mse in self.best().items()
        )
        return (
            f"{self.name}: {self.done}/{self.total} runs, {self.per_second:.1f} per second, "
            f"{clock(self.seconds_left)} left; best MSE: {best}"
        )

    def best(self) -> dict[tuple[str, str], float]:
        """Return the lowest mean MSE so far, by data set and method."""
        return {
            configuration: min(math.fsum(errors) / len(errors) for errors in combinations.values())
            for configuration, combinations in sorted(self._errors.items())
        }


class WatchedRuns:
    """Progress on a view."""

    def __init__(self, progress: StageProgress, shown: View) -> None:
        self._progress = progress
        self._view = shown

    def stage(self, name: str, runs: Sequence[Run], already_done: int) -> None:
        """Begin a stage."""
        self._progress.stage(name, runs)
        self._view.say(f"{name}: {len(runs)} runs to do, {already_done} done before")

    def finished(self, result: Result) -> None:
        """Count a run that ended."""
        self._progress.finished(result)
        self._view.tick(last=self._progress.done >= self._progress.total)


@contextmanager
def watch(stream: TextIO | None = None) -> Iterator[Progress]:
    """Show progress on the view that suits the stream, which is stderr by default."""
    progress = StageProgress()
    with view(stream, lambda: _picture(progress), lambda: progress.line) as shown:
        yield WatchedRuns(progress, shown)


def _picture(progress: StageProgress) -> Group:
    """Return a bar with the time left, and a table of the best errors so far."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 1))
    unusable = f", {progress.unusable} diverged or failed" if progress.unusable else ""
    head.add_row(
        Text(progress.name, style="bold"),
        ProgressBar(total=1.0, completed=progress.share, width=30),
        Text(f"{progress.done}/{progress.total} runs{unusable}"),
        Text(f"{progress.per_second:.1f}/s", style="cyan"),
        Text(f"{clock(progress.seconds_left)} left", style="green"),
    )
    best = progress.best()
    datasets = sorted({data for data, _ in best})
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("best MSE so far")
    for data in datasets:
        table.add_column(data, justify="right")
    for method in METHODS:
        if any((data, method) in best for data in datasets):
            errors = (
                f"{best[data, method]:.4f}" if (data, method) in best else "" for data in datasets
            )
            table.add_row(METHODS[method].label, *errors)
    return Group(head, table)


@dataclass(frozen=True, slots=True)
class ExperimentStatus:
    """Progress of an experiment.

    Attributes:
        quick: True if it is the reduced version.
        tuning_runs: Number of cross-validation runs.
        evaluation_runs: Number of evaluation runs; an estimate until everything is tuned.
        failed: Failed runs, which will be tried again.
    """

    name: str
    quick: bool
    tuning_runs: int
    tuning_done: int
    evaluation_runs: int
    evaluation_done: int
    diverged: int
    failed: int

    @property
    def complete(self) -> bool:
        """True if all runs are done."""
        return (
            self.tuning_done == self.tuning_runs
            and self.evaluation_done >= self.evaluation_runs
            and not self.failed
        )

    def fields(self) -> dict[str, Any]:
        """Return a mapping for JSON."""
        return {**asdict(self), "complete": self.complete}


def experiment_status(experiment: Experiment, results: Mapping[str, Result]) -> ExperimentStatus:
    """Count the runs of an experiment that are done."""
    tuning = tuning_runs([experiment])
    final = final_runs([experiment], results)
    states = [results[run.id].status for run in (*tuning, *final) if run.id in results]
    tuning_done = len(tuning) - len(unfinished([experiment], tuning, results))
    expected = len(expected_runs([experiment])) - len(tuning)
    return ExperimentStatus(
        name=experiment.name,
        quick=experiment.quick,
        tuning_runs=len(tuning),
        tuning_done=tuning_done,
        evaluation_runs=len(final) if tuning_done == len(tuning) else expected,
        evaluation_done=len(final) - len(unfinished([experiment], final, results)),
        diverged=states.count("diverged"),
        failed=states.count("failed"),
    )
