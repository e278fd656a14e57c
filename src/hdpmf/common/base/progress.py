"""What people see meanwhile (a live view, a bar, plain lines), and tables for notebooks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from hdpmf.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from rich.console import RenderableType


_LINE_EVERY = 10.0
_REDRAWN_EVERY = 0.1


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


class Bar(Protocol):
    """A bar that is shown somewhere."""

    def move(self, done: int, total: int | None) -> None:
        """Show how much is done."""

    def describe(self, text: str) -> None:
        """Show what is being done."""


_CURRENT: ContextVar[Bar | None] = ContextVar("bar", default=None)


def stage(text: str) -> None:
    """Say what is being done on the bar that is shown now, if there is one."""
    current = _CURRENT.get()
    if current is not None:
        current.describe(text)


@contextmanager
def progress_bar(
    label: str, total: int | None = None, *, show: bool | None = True
) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar in a notebook, or on stderr if that is a terminal; yields what moves it.

    A bar within a bar is not shown; ``stage`` describes the outer one.

    Args:
        label: What is being done.
        total: How much there is to do; None: nobody knows.
        show: Whether to show it; None: in a notebook only.
    """
    notebook = in_notebook()
    terminal = bool(show) and sys.stderr.isatty()
    if _CURRENT.get() is not None or show is False or not (notebook or terminal):
        yield lambda done, total: None
        return
    make = _notebook_bar if notebook else _terminal_bar
    with make(label, total) as bar:
        before = _CURRENT.set(bar)
        try:
            yield bar.move
        finally:
            _CURRENT.reset(before)


def in_notebook() -> bool:
    """Tell whether this process is the kernel of a notebook."""
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


class _TerminalBar:
    """A bar of rich."""

    def __init__(self, progress: Any, label: str, total: int | None) -> None:
        self._progress = progress
        self._label = label
        self._task = progress.add_task(label, total=total)

    def move(self, done: int, total: int | None) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def describe(self, text: str) -> None:
        self._progress.update(self._task, description=f"{self._label}: {_printable(text)}")


@contextmanager
def _terminal_bar(label: str, total: int | None) -> Iterator[Bar]:
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    with bars.Progress(*columns, console=console, transient=True) as progress:
        yield _TerminalBar(progress, label, total)


class NotebookBar:
    """A bar that a cell of a notebook shows, in plain HTML: it needs no widgets."""

    def __init__(self, label: str, total: int | None) -> None:
        self._label = label
        self._done = 0
        self._total = total
        self._text = ""
        self._last = 0.0
        self._handle: Any = sys.modules["IPython"].display.display(self, display_id=True)

    def _repr_html_(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        counted = f" {self._done:,}{of}" if self._done else ""
        bar = "<progress></progress>"
        if self._total and self._done:
            bar = f'<progress max="{self._total}" value="{self._done}"></progress>'
        text = f": {self._text}" if self._text else ""
        return f"{escape(self._label + text)} {bar}{counted}"

    def move(self, done: int, total: int | None) -> None:
        """Show how much is done, at most ten times a second."""
        self._done, self._total = done, total
        now = time.monotonic()
        if now - self._last >= _REDRAWN_EVERY or done == total:
            self._last = now
            self._handle.update(self)

    def describe(self, text: str) -> None:
        """Show what is being done."""
        self._text = text
        self._handle.update(self)

    def close(self) -> None:
        """Take the bar away."""
        self._handle.update(_Nothing())


class _Nothing:
    """An empty output of a cell."""

    def _repr_html_(self) -> str:
        return ""


@contextmanager
def _notebook_bar(label: str, total: int | None) -> Iterator[Bar]:
    bar = NotebookBar(label, total)
    try:
        yield bar
    finally:
        bar.close()


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


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """Return a small table: a title, and a row for each fact that is not empty."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
        if value not in (None, "")
    )
    return (
        f"<table><caption style='text-align:left'><b>{escape(title)}</b></caption>"
        f"<tbody>{rows}</tbody></table>"
    )


def frame_of(columns: Any, kind: str) -> Any:
    """Return columns, or a list of rows, as a frame of polars or pandas.

    Raises:
        MissingExtraError: It is one of pandas, which is not installed.
    """
    if kind not in ("polars", "pandas"):
        raise ConfigError(f"frames are of polars or pandas, not {kind!r}")
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(columns, infer_schema_length=None)
    if find_spec("pandas") is None:
        raise MissingExtraError(
            'frames of pandas need it: pip install pandas; to_frame("polars") does without'
        )
    return import_module("pandas").DataFrame(columns)
