"""A recommender's activity: counts without any content of messages, and progress for people."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hdpmf.common.base.progress import PlainLines, clock


@dataclass
class Metrics:
    """Counts since the process began. One thread writes; others may read at any moment.

    Attributes:
        stage: The activity, in a few words.
        run: Id of the run under way.
        runs_done: Completed.
        reports: In the last sum.
        requests: Of devices and everybody else, by status.
        until: Unix time at which the wait under way ends, if known.
        not_begun: Why the run that was asked for, or is due, cannot begin; empty if it can.
        listeners: Called after every run, and now and then in a wait.
    """

    stage: str = "idle"
    run: str = ""
    runs_done: int = 0
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
        names = ("stage", "run", "runs_done", "reports", "until", "not_begun")
        return {name: getattr(self, name) for name in names}


def watch(metrics: Metrics) -> Callable[[str], None]:
    """Show progress as plain lines; return the function that takes further lines."""
    shown = PlainLines(lambda: progress_line(metrics))
    metrics.listeners.append(shown.tick)
    return shown.say


def progress_line(metrics: Metrics) -> str:
    """What it is doing and, in a wait, how long that is."""
    left = metrics.seconds_left
    return metrics.stage if left is None else f"{metrics.stage}, {clock(left)} left"
