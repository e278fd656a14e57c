"""How a run goes, for people: a live view on a terminal, plain lines elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from hdpmf.service.metrics import Metrics

if TYPE_CHECKING:
    from rich.console import Group

_LINE_EVERY = 10.0


class PlainLines:
    """Every message is a line; rounds are told every ten seconds.

    Args:
        metrics: The counts.
        stream: Where lines go.
    """

    def __init__(self, metrics: Metrics, stream: TextIO) -> None:
        self._metrics = metrics
        self._stream = stream
        self._last = time.monotonic()

    def say(self, line: str) -> None:
        """A line about what is happening."""
        self._print(line)

    def tick(self) -> None:
        """A round has ended."""
        now, metrics = time.monotonic(), self._metrics
        if metrics.number < metrics.rounds and now - self._last < _LINE_EVERY:
            return
        self._last = now
        self._print(progress_line(metrics))

    def _print(self, line: str) -> None:
        print(_clean(line), file=self._stream, flush=True)


class LiveView:
    """A bar with the time left, and a table of the counts.

    Args:
        metrics: The counts.
        stream: A terminal.
    """

    def __init__(self, metrics: Metrics, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._metrics = metrics
        self.live = Live(
            console=Console(file=stream, markup=False, emoji=False, highlight=False),
            get_renderable=self.render,
            refresh_per_second=4,
            transient=True,
        )

    def say(self, line: str) -> None:
        """A line above the view."""
        self.live.console.print(_clean(line))

    def tick(self) -> None:
        """A round has ended; the view looks by itself."""

    def render(self) -> Group:
        """The view as it is now."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        metrics = self._metrics
        head = Table.grid(padding=(0, 1))
        total = max(metrics.rounds, 1)
        head.add_row(
            Text(metrics.method, style="bold"),
            ProgressBar(total=total, completed=min(metrics.number, total), width=30),
            Text(metrics.stage),
            Text(f"{clock(metrics.seconds_left)} left", style="green"),
        )
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("devices here", "members", "users in round", "s per round", "sent", "received", "refused"):
            table.add_column(name, justify="right")
        each = metrics.recent_round
        table.add_row(
            str(metrics.present),
            str(metrics.members),
            str(metrics.participants),
            "" if each is None else f"{each:.2f}",
            size(metrics.bytes_out),
            size(metrics.bytes_in),
            ", ".join(f"{reason} {count}" for reason, count in sorted(metrics.refusals.items())) or "none",
        )
        return Group(head, table)


@contextmanager
def watch(metrics: Metrics, stream: TextIO | None = None, *, lines: bool = True) -> Iterator[Callable[[str], None]]:
    """The view that suits the stream; gives the function that is told lines.

    Args:
        metrics: The counts.
        stream: Where it goes; stderr by default.
        lines: Where there is no terminal, write plain lines, or nothing at all.
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty() and not lines:
        yield lambda line: None
    elif not stream.isatty():
        plain = PlainLines(metrics, stream)
        metrics.listeners.append(plain.tick)
        yield plain.say
    else:
        view = LiveView(metrics, stream)
        with view.live:
            yield view.say


def progress_line(metrics: Metrics) -> str:
    """The counts on one line."""
    each = metrics.recent_round
    pace = "" if each is None else f", {each:.2f} s each"
    return (
        f"round {metrics.number} of {metrics.rounds}{pace}, {clock(metrics.seconds_left)} left; "
        f"{metrics.participants} users; sent {size(metrics.bytes_out)}, received {size(metrics.bytes_in)}; "
        f"{sum(metrics.refusals.values())} refusals"
    )


def clock(seconds: float | None) -> str:
    """A time for people."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(count: float) -> str:
    """An amount of bytes for people."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _clean(line: str) -> str:
    return "".join(char if char.isprintable() else " " for char in line)
