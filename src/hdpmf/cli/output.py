"""The output of commands: results on stdout, notes and progress on stderr.

A command returns a `Result`, which is printed as text or, with ``--json``, as one JSON document.
Text is plain: no colours, no control characters, nothing cut to a width.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import typer

from hdpmf.errors import ConfigError, NotConfirmedError, StorageError

if TYPE_CHECKING:
    from hdpmf.common.methods.method import PrivacyClaim

_WIDTH = 100

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A small table; ``numeric`` columns are aligned right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[str] = ()
    title: str | None = None


@dataclass(frozen=True)
class Paragraph:
    """Sentences, wrapped to a readable width."""

    text: str
    indent: str = ""


Block = str | Paragraph | Table
"""A piece of text; a string is one line."""


@dataclass(frozen=True)
class Result:
    """The result of a command: one value, printed as text or as JSON.

    Attributes:
        fields: The JSON document; a function, where it is expensive and text does not need it.
        text: The same for people. A generator is printed while it runs.
        notes: Remarks for stderr, printed after the result.
    """

    fields: Fields | Callable[[], Fields]
    text: Iterable[Block] = ()
    notes: Sequence[str] = ()
    exit_code: int = 0


_called: list[str] = []


def set_command(arguments: Sequence[str]) -> None:
    """Remember the arguments of this call of ``hdpmf``, for documents that name their command."""
    _called[:] = arguments


def command_text() -> str:
    """Return this call of ``hdpmf`` as it can be typed again, without ``--json``."""
    return shlex.join(["hdpmf", *(word for word in _called if word != "--json")])


_json_wanted = [False]


@contextmanager
def json_output(wanted: bool) -> Iterator[None]:
    """Print results as JSON, or as text, inside the block."""
    _json_wanted.append(wanted)
    try:
        yield
    finally:
        _json_wanted.pop()


def wants_json() -> bool:
    """Return True if results are printed as JSON."""
    return _json_wanted[-1]


def emit(result: Result) -> None:
    """Print a result as this call of ``hdpmf`` asks for it."""
    if wants_json():
        fields = result.fields if isinstance(result.fields, Mapping) else result.fields()
        print_json(fields)
    else:
        for block in result.text:
            _write_lines(*_plain_lines(block))
    for text in result.notes:
        note(text)


def print_json(fields: Fields) -> None:
    """Print a JSON document; it names the version that made it."""
    document = {**fields, "hdpmf_version": hdpmf_version()}
    _write_lines(json.dumps(document, indent=2, allow_nan=False))


def hdpmf_version() -> str:
    """Return the version of the installed package."""
    return version("hdpmf")


def clean(text: object) -> str:
    """Return text on one line, without characters that would control a terminal."""
    return "".join(char if char.isprintable() else " " for char in str(text))


_note_sinks: list[Callable[[str], None]] = []


@contextmanager
def notes_to(sink: Callable[[str], None]) -> Iterator[None]:
    """Pass notes to a function instead of stderr, inside the block."""
    _note_sinks.append(sink)
    try:
        yield
    finally:
        _note_sinks.pop()


def note(text: str) -> None:
    """Print a line for people that is not part of the result."""
    if _note_sinks:
        _note_sinks[-1](clean(text))
    else:
        print(clean(text), file=sys.stderr, flush=True)


def _plain_lines(block: Block) -> Iterator[str]:
    match block:
        case str():
            yield clean(block)
        case Paragraph(text, indent):
            wrapped = textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
            yield from map(clean, wrapped)
        case Table():
            if block.title:
                yield clean(block.title)
            rows = [list(block.columns), *([clean(cell) for cell in row] for row in block.rows)]
            yield from _aligned(rows, [column in block.numeric for column in block.columns])


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, right, strict=True)
        aligned = (
            cell.rjust(width) if flush else cell.ljust(width) for cell, width, flush in cells
        )
        yield "  ".join(aligned).rstrip()


def _write_lines(*lines: str) -> None:
    """Write lines to stdout, all of them, or raise an error of ours: they are the result."""
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except OSError as error:
        # The rest of the buffer can go nowhere; Python would try again at exit and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit from None  # the reader has seen enough, as with ``| head``
        raise StorageError(
            f"could not write the output: {error.strerror}; send it to another place"
        ) from error


def confirm(question: str, *, yes: bool, otherwise: str) -> None:
    """Ask a question on the terminal, unless ``--yes`` has answered it.

    ``otherwise`` is the error where nobody can be asked.

    Raises:
        NotConfirmedError: The answer is not yes.
        ConfigError: There is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(otherwise)
    if not typer.confirm(question, err=True):
        raise NotConfirmedError("not confirmed; nothing was done")


def claim_fields(claim: PrivacyClaim) -> dict[str, Any]:
    """Return a privacy claim for JSON: an epsilon with what it stands on."""
    return {
        "epsilon": claim.epsilon,
        "epsilon_status": claim.status,
        "epsilon_view": claim.view,
        "epsilon_reason": claim.reason,
        "epsilon_honest": claim.honest or None,
        "epsilon_noise": claim.noise or None,  # some methods have an option called noise
        "epsilon_items": claim.items or None,
    }


def run_claim(method: str, view: str, epsilon: float | None, status: str) -> PrivacyClaim:
    """Return the claim of a federated run, from what its statement says."""
    from hdpmf.common.methods import method_named
    from hdpmf.common.methods.method import PrivacyClaim

    found = method_named(method)
    claim = found.claim(view)
    return PrivacyClaim(epsilon, cast(Any, status), claim.against, claim.reason, unit=found.unit)


def privacy_line(claim: PrivacyClaim, *long_version: object) -> str:
    """Return a privacy claim on one line, with the command that prints the long version.

    ``long_version`` are the words of that command after ``hdpmf privacy``.
    """
    more = f"More: {shlex.join(['hdpmf', 'privacy', *map(str, long_version)])}"
    if claim.epsilon is None:
        return f"Privacy: none; {claim.reason}. {more}"
    worth = {
        "proved": f"PROVED against {claim.view}",
        "nominal": "NOMINAL: the paper's number, no guarantee",
        "author's claim": "AUTHOR'S CLAIM: hdpmf has not checked it",
    }[claim.status]
    noise = "; SIMULATED noise, not for release" if claim.noise else ""
    return f"Privacy: epsilon {claim.epsilon:g} per {claim.unit}, {worth}{noise}. {more}"


def short_claim(claim: PrivacyClaim) -> str:
    """Return a privacy claim for the cell of a table."""
    return "none" if claim.epsilon is None else f"{claim.epsilon:g} ({claim.worth})"
