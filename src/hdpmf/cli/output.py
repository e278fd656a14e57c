"""What commands print: results to stdout, notes and progress to stderr, one JSON document where
asked for.

Where the output is no terminal it is plain lines: no colours, no control characters, nothing cut to
a width.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from io import StringIO
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

import typer

from hdpmf.errors import AnsweredNoError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from hdpmf.common.privacy.claims import PrivacyClaim
    from hdpmf.models import EpochRecord


_WIDTH = 100


def hdpmf_version() -> str:
    """The version of the installed package."""
    return version("hdpmf")


def clean(text: object) -> str:
    """Text from outside on one line, without characters that would steer a terminal."""
    return "".join(char if char.isprintable() else " " for char in str(text))


def print_json(document: Mapping[str, Any]) -> None:
    """The one document of a ``--json`` call; it says which version made it."""
    _say(json.dumps({**document, "hdpmf_version": hdpmf_version()}, indent=2, allow_nan=False))


_note_to: list[Callable[[str], None]] = []


@contextmanager
def notes_to(tell: Callable[[str], None]) -> Iterator[None]:
    """While inside, notes go there instead of to stderr."""
    _note_to.append(tell)
    try:
        yield
    finally:
        _note_to.pop()


def note(text: str) -> None:
    """A line for people that is not the result."""
    if _note_to:
        _note_to[-1](clean(text))
    else:
        print(clean(text), file=sys.stderr, flush=True)


def print_lines(*lines: str) -> None:
    """Lines of the result."""
    _say(*map(clean, lines))


def print_paragraph(text: str, indent: str = "") -> None:
    """Sentences of the result, in lines that can be read."""
    print_lines(*textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numeric: Sequence[str] = (),
    title: str | None = None,
    strong: Sequence[int] = (),
) -> None:
    """A small table: ``numeric`` columns are aligned right, ``strong`` rows stand out."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        heading = [clean(title)] if title else []
        _say(
            *heading,
            *_plain_lines([list(columns), *cells], [column in numeric for column in columns]),
        )
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = _console(sys.stdout)
    if title:
        console.print(clean(title), style="bold")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numeric else "left")
    for position, row in enumerate(cells):
        table.add_row(*map(Text, row), style="bold cyan" if position in strong else None)
    console.print(table)


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Lines of comma-separated values, each printed as soon as it is there."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="")
    for row in chain((columns,), rows):
        writer.writerow(["" if cell is None else clean(cell) for cell in row])
        _say(text.getvalue())
        text.seek(0)
        text.truncate()


def _plain_lines(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, right, strict=True)
        aligned = (
            cell.rjust(width) if flush else cell.ljust(width) for cell, width, flush in cells
        )
        yield "  ".join(aligned).rstrip()


def _say(*lines: str) -> None:
    """Lines to stdout, all of them or an error of ours: the result is what the command was for."""
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer can go nowhere; Python would try once more at exit and
        # complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit from None  # the reader has seen enough, as with ``| head``
        raise StorageError(
            f"could not write the output: {error.strerror}; send it to another place"
        ) from error


@contextmanager
def epochs_progress(label: str, epochs: int) -> Iterator[Callable[[EpochRecord], None]]:
    """A bar over epochs with the time left, for a terminal; elsewhere nothing."""
    with progress_bar(label, epochs) as advance:

        def after_epoch(record: EpochRecord) -> None:
            advance(record.epoch, record.epochs)

        yield after_epoch


@contextmanager
def progress_bar(
    label: str, total: int | None = None, *, in_bytes: bool = False
) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on stderr that is told how far things are and how far they will go."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich import progress as bars

    amount = bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn()
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        amount,
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=_console(sys.stderr), transient=True) as shown:
        task = shown.add_task(label, total=total)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def confirm(question: str) -> None:
    """Ask on the terminal; AnsweredNoError for anything but yes."""
    if not typer.confirm(question, err=True):
        raise AnsweredNoError("not confirmed; nothing was done")


def claim_fields(claim: PrivacyClaim) -> dict[str, Any]:
    """A privacy claim as JSON: an epsilon never goes without what it stands on."""
    return {
        "epsilon": claim.epsilon,
        "epsilon_status": claim.status,
        "epsilon_view": claim.view,
        "epsilon_reason": claim.reason,
        "epsilon_honest": claim.honest or None,
        "epsilon_noise": claim.noise or None,  # a method's own option is called noise
        "epsilon_items": claim.items or None,
    }


_SIMULATED = (
    " The noise here is SIMULATED: whoever has the seed has it. This is to "
    "evaluate a method with, not a model to "
    "publish; a federation releases one."
)
_ITEMS = {
    "": "",
    "rated": " The items are those that somebody rated: that somebody did is NOT COVERED by "
    "epsilon.",
    "stated": " The items are a public list, stated apart from the ratings.",
}


def claim_sentence(claim: PrivacyClaim) -> str:
    """A privacy claim for people."""
    if claim.epsilon is None:
        return f"Privacy: none; {claim.reason}."
    honest = f" What it really costs: {claim.honest}." if claim.honest else ""
    return (
        f"Privacy: epsilon {claim.epsilon:g}, {claim.status.upper()}, against an "
        f"observer of: {claim.view}; "
        f"{claim.reason}.{honest}{_SIMULATED if claim.noise else ''}{_ITEMS[claim.items]}"
    )


def short_claim(claim: PrivacyClaim) -> str:
    """A privacy claim for a table's cell."""
    return "none" if claim.epsilon is None else f"{claim.epsilon:g} ({claim.worth})"


def _console(stream: IO[str]) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)
