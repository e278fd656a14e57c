"""What people see meanwhile (a bar, or plain lines), and tables for notebooks."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from hdpmf.errors import ConfigError, MissingExtraError

_LINE_EVERY = 10.0


class PlainLines:
    """A line for every message, and one about the progress every ten seconds; on stderr."""

    def __init__(self, summary: Callable[[], str]) -> None:
        self._summary = summary
        self._last = time.monotonic()

    def say(self, line: str) -> None:
        """Write a line."""
        print(_printable(line), file=sys.stderr, flush=True)

    def tick(self) -> None:
        """Write the summary where the last one is ten seconds old."""
        now = time.monotonic()
        if now - self._last >= _LINE_EVERY:
            self._last = now
            self.say(self._summary())


class Bar(Protocol):
    """Progress that is shown somewhere."""

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
    label: str, total: int | None = None, *, show: bool | None = True, lines: bool = False
) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar on stderr if that is a terminal, plain lines in a notebook; yields what moves it.

    A bar within a bar is not shown; ``stage`` describes the outer one.

    Args:
        label: What is being done.
        total: How much there is to do; None: nobody knows.
        show: Whether to show it; None: in a notebook only.
        lines: Write plain lines also where there is neither.
    """
    terminal = bool(show) and sys.stderr.isatty()
    shown = terminal or lines or in_notebook()
    if _CURRENT.get() is not None or show is False or not shown:
        yield lambda done, total: None
        return
    with _terminal_bar(label, total) if terminal else nullcontext(_Lines(label)) as bar:
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


class _Lines:
    """Plain lines that say what a bar would show."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._text = ""
        self._done = 0
        self._total: int | None = None
        self._begin = time.monotonic()
        self._lines = PlainLines(self._summary)

    def move(self, done: int, total: int | None) -> None:
        self._done, self._total = done, total
        self._lines.tick()

    def describe(self, text: str) -> None:
        self._text = f" ({text})"
        self._lines.tick()

    def _summary(self) -> str:
        count = f"{self._label}{self._text}: {self._done:,}"
        if not self._total or not self._done:
            return count
        seconds = (time.monotonic() - self._begin) * (self._total / self._done - 1)
        return f"{count} of {self._total:,}, {clock(seconds)} left"


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
