"""A recommender's activity: counts without any content of messages, and progress for people."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from hdpmf.common.base.progress import clock, view


@dataclass
class Metrics:
    """Counts since the process began. One thread writes; others may read at any moment.

    Attributes:
        stage: The activity, in a few words.
        run: Id of the run under way.
        runs_done: Completed.
        impossible: Numbers of sums that were clamped to what so many people can have.
        reports: In the last sum.
        requests: Of devices and everybody else, by status.
        until: Unix time at which the wait under way ends, if known.
        not_begun: Why the run that was asked for, or is due, cannot begin; empty if it can.
        listeners: Called after every run, and now and then in a wait.
    """

    stage: str = "idle"
    run: str = ""
    runs_done: int = 0
    impossible: int = 0
    reports: int = 0
    until: float | None = None
    not_begun: str = ""
    requests: Counter[int] = field(default_factory=Counter)
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def tell(self) -> None:
        """Call the listeners."""
        for listen in self.listeners:
            listen()

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the wait under way ends."""
        return None if self.until is None else max(self.until - time.time(), 0.0)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("stage", "run", "runs_done", "impossible", "reports", "until", "not_begun")
        return {name: getattr(self, name) for name in names}


@contextmanager
def watch(
    metrics: Metrics, stream: TextIO | None = None, *, lines: bool = True
) -> Iterator[Callable[[str], None]]:
    """Show progress in the way that suits the stream; yield the function that takes lines.

    Args:
        stream: stderr by default.
        lines: Where there is no terminal, write plain lines, or nothing at all.
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty() and not lines:
        yield lambda line: None
        return
    from rich.text import Text

    with view(
        stream, lambda: Text(progress_line(metrics)), lambda: progress_line(metrics)
    ) as shown:
        metrics.listeners.append(lambda: shown.tick())
        yield shown.say


def progress_line(metrics: Metrics) -> str:
    """What it is doing and, in a wait, how long that is."""
    left = metrics.seconds_left
    return metrics.stage if left is None else f"{metrics.stage}, {clock(left)} left"
