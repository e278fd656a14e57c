"""Progress for people, on stderr: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINE_EVERY = 10.0


class View(Protocol):
    """A display of progress."""

    def say(self, line: str) -> None:
        """Show a line that stays."""

    def tick(self, *, last: bool = False) -> None:
        """Note a change; the last one updates the view at once."""


class PlainLines:
    """A line for every message, and one about the progress every ten seconds."""

    def __init__(self, stream: TextIO, summary: Callable[[], str]) -> None:
        self._stream = stream
        self._summary = summary
        self._last = time.monotonic()

    def say(self, line: str) -> None:
        """Write a line."""
        print(_printable(line), file=self._stream, flush=True)

    def tick(self, *, last: bool = False) -> None:
        """Write the summary where the last one is ten seconds old."""
        now = time.monotonic()
        if last or now - self._last >= _LINE_EVERY:
            self._last = now
            self.say(self._summary())


class LiveView:
    """A picture of the progress at the bottom of a terminal, drawn four times a second."""

    def __init__(self, stream: TextIO, picture: Callable[[], RenderableType]) -> None:
        from rich.console import Console
        from rich.live import Live

        self.live = Live(
            console=Console(file=stream, markup=False, emoji=False, highlight=False),
            get_renderable=picture,
            refresh_per_second=4,
            transient=True,
        )

    def say(self, line: str) -> None:
        """Write a line above the picture."""
        self.live.console.print(_printable(line))

    def tick(self, *, last: bool = False) -> None:
        """Do nothing: the picture is drawn by the clock."""


@contextmanager
def view(
    stream: TextIO | None, picture: Callable[[], RenderableType], summary: Callable[[], str]
) -> Iterator[View]:
    """Yield a live view on a terminal, else plain lines; on stderr by default."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield PlainLines(stream, summary)
        return
    live = LiveView(stream, picture)
    with live.live:
        yield live


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


def _printable(line: str) -> str:
    return "".join(char if char.isprintable() else " " for char in line)
