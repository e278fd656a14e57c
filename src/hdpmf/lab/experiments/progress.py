"""Progress of runs, live on a terminal or as lines elsewhere, and the status of a store."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import msgspec

from hdpmf.common.base.progress import View, clock, view
from hdpmf.common.methods import METHODS
from hdpmf.lab.experiments.runner import estimated_seconds
from hdpmf.lab.experiments.runs import Run
from hdpmf.lab.experiments.store import Result
from hdpmf.lab.experiments.summary import dataset_title

if TYPE_CHECKING:
    from rich.console import Group


class StageProgress:
    """Counts of one stage: work done by estimated cost, and each method's best error so far."""

    def __init__(self) -> None:
        self.view: View | None = None
        self.name = ""
        self.total = self.done = self.unusable = 0
        self._cost = self._cost_done = 0.0
        self._begin = time.monotonic()
        self._errors: dict[tuple[str, str], dict[bytes, list[float]]] = {}

    def stage(self, name: str, runs: Sequence[Run], already_done: int) -> None:
        """Begin a stage."""
        self.name = name
        self.total = len(runs)
        self.done = self.unusable = 0
        self._cost = sum(map(estimated_seconds, runs))
        self._cost_done = 0.0
        self._begin = time.monotonic()
        self._errors = defaultdict(lambda: defaultdict(list))
        if self.view is not None:
            self.view.say(f"{name}: {len(runs)} runs to do, {already_done} done before")

    def finished(self, result: Result) -> None:
        """Count a run that ended."""
        self.done += 1
        self._cost_done += estimated_seconds(result.run)
        self.unusable += result.status != "done"
        mse = result.metric("mse")
        if not math.isnan(mse):  # else it predicts no ratings
            run = result.run
            # Folds and seeds of a combination are one mean; the best is the best of these means.
            combination = msgspec.json.encode(
                [run.params, run.privacy and run.privacy.changes, run.part.fraction],
                order="sorted",
            )
            self._errors[dataset_title(run.data.name), run.method][combination].append(mse)
        if self.view is not None:
            self.view.tick(last=self.done >= self.total)

    @property
    def share(self) -> float:
        """Share of the work that is done, by estimated cost."""
        return self._cost_done / self._cost if self._cost else 1.0

    @property
    def speed(self) -> str:
        """Runs per second."""
        seconds = time.monotonic() - self._begin
        return f"{self.done / seconds if seconds > 0 else 0.0:.1f}"

    @property
    def left(self) -> str:
        """Estimated time until the end of the stage."""
        seconds = time.monotonic() - self._begin
        known = self._cost_done > 0 and seconds >= 0.5
        return clock(max(1 / self.share - 1, 0.0) * seconds if known else None)

    def best(self) -> dict[tuple[str, str], float]:
        """Return the lowest mean MSE so far, by data set and method."""
        return {
            configuration: min(math.fsum(errors) / len(errors) for errors in combinations.values())
            for configuration, combinations in sorted(self._errors.items())
        }

    def line(self) -> str:
        """Return a summary on one line."""
        best = ", ".join(
            f"{METHODS[method].label} {mse:.4f} ({data})"
            for (data, method), mse in self.best().items()
        )
        return (
            f"{self.name}: {self.done}/{self.total} runs, {self.speed} per second, {self.left} "
            f"left; best MSE: {best}"
        )

    def picture(self) -> Group:
        """Return a bar with the time left, and a table of the best errors so far."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 1))
        unusable = f", {self.unusable} diverged or failed" if self.unusable else ""
        head.add_row(
            Text(self.name, style="bold"),
            ProgressBar(total=1.0, completed=self.share, width=30),
            Text(f"{self.done}/{self.total} runs{unusable}"),
            Text(f"{self.speed}/s", style="cyan"),
            Text(f"{self.left} left", style="green"),
        )
        best = self.best()
        datasets = sorted({data for data, _ in best})
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("best MSE so far")
        for data in datasets:
            table.add_column(data, justify="right")
        for method in dict.fromkeys(method for _, method in best):
            errors = (best.get((data, method)) for data in datasets)
            cells = ("" if error is None else f"{error:.4f}" for error in errors)
            table.add_row(METHODS[method].label, *cells)
        return Group(head, table)


@contextmanager
def watch(stream: TextIO | None = None) -> Iterator[StageProgress]:
    """Show progress on the view that suits the stream, which is stderr by default."""
    progress = StageProgress()
    with view(stream, progress.picture, progress.line) as progress.view:
        yield progress
