"""The ``hdpmf`` command: how it begins and how it ends.

Exit codes: 0 done; 1 a bug of ours (with its traceback); 2 an option that makes no sense; 3 ratings
that cannot be used, or an unknown user; 4 a data set that is absent or wrong; 5 a privacy budget or
weight outside its range; 6 a malformed message; 7 a saved model that cannot be read; 8 the disk
refused; 9 an optional dependency is missing; 10 training ran away; 11 a secure sum that could not
be completed; 12 a federated run that stopped; 13 a sum by two servers; 14 a question was answered
with no; 15 some runs of an experiment failed, the others' results are kept; 130 interrupted.

The commands themselves are in `hdpmf.cli.commands`. They show the options of every method, so files
with methods of the user's own are loaded before.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import typer

from hdpmf.cli.output import clean, note, print_json
from hdpmf.common.base.hints import speaking
from hdpmf.errors import ConfigError, HdpmfError, StorageError

_OLD, _NEW = "--device", "--on"

_UNIFORM = "--uniform-weights"

_VALUES = {"cuda": "gpu"}


def with_current_names(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``--device cuda`` as ``--on gpu`` and ``--uniform-weights`` as ``--weights
    uniform``.

    What follows a bare ``--`` is left alone.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    current: list[str] = []
    for argument in arguments[:end]:
        name, equals, value = argument.partition("=")
        if name == _OLD:
            print(
                f"note: {_OLD} is now called {_NEW}, and cuda is gpu", file=sys.stderr, flush=True
            )
            current.append(_NEW + equals + _VALUES.get(value, value))
        elif argument == _UNIFORM:
            print(f"note: {_UNIFORM} is now written --weights uniform", file=sys.stderr, flush=True)
            current += ["--weights", "uniform"]
        elif current and current[-1] == _NEW:
            current.append(_VALUES.get(argument, argument))
        else:
            current.append(argument)
    return current + list(arguments[end:])


_INTERRUPTED = 130

# typer carries a click of its own; this is the public way to the base of all its usage errors.
_UsageError: type[Any] = typer.BadParameter.__bases__[0]


def run(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``hdpmf`` command; ends the process."""
    given = with_current_names(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a title in another script must not end a command
    _answer_interrupts()
    try:
        given = _with_plugins(given)
        from hdpmf.cli.commands import app

        with speaking("shell", note):
            code = app(given or ["--help"], prog_name="hdpmf", standalone_mode=False)
    except HdpmfError as error:
        code = _fail(given, type(error).__name__, str(error), error.exit_code)
    except _UsageError as error:
        code = _fail(
            given, "UsageError", error.format_message() + _help_hint(error), error.exit_code
        )
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        _fail(given, "Interrupted", "interrupted; nothing was half-written", _INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _with_plugins(arguments: Sequence[str]) -> list[str]:
    """Load the files that ``--plugin`` names, wherever it stands; the other arguments."""
    rest = list(arguments)
    while any(word == "--plugin" or word.startswith("--plugin=") for word in rest):
        place = next(
            place
            for place, word in enumerate(rest)
            if word == "--plugin" or word.startswith("--plugin=")
        )
        _, given, file = rest.pop(place).partition("=")
        if not given and place == len(rest):
            raise ConfigError("--plugin needs a FILE")
        from hdpmf.common.methods.registry import load_plugin

        load_plugin(file if given else rest.pop(place))
    return rest


def _answer_interrupts() -> None:
    """Stop at SIGINT also where the starter ignored it (``nohup``, ``&`` in a script) and we
    inherited that.
    """
    inherited = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if inherited and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _help_hint(error: Any) -> str:
    command = error.ctx.command_path if error.ctx is not None else "hdpmf"
    return f" (see {command} --help)"


def _fail(arguments: Sequence[str], kind: str, message: str, exit_code: int) -> int:
    line = clean(message)
    print(f"error: {line}", file=sys.stderr, flush=True)
    if "--json" in arguments:
        with suppress(typer.Exit, StorageError):  # nobody reads it: then the line above has to do
            print_json({"error": {"type": kind, "message": line, "exit_code": exit_code}})
    return exit_code
