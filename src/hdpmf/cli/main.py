"""The ``hdpmf`` command: its start and its end.

Exit codes: 0 done; 1 a bug of ours (with its traceback); 2 a wrong option; 3 unusable ratings, or
an unknown user; 4 a missing or damaged data set; 5 a privacy budget or weight outside its range;
6 a malformed message; 7 a saved model that cannot be read; 8 a disk error; 9 a missing optional
dependency; 10 training diverged; 11 a secure sum that could not be completed; 12 a federated run
that stopped; 13 a sum by two servers failed; 14 a question was answered with no; 15 some runs of
an experiment failed, the results of the others are saved; 130 interrupted.

Commands show the options of every method, so plugins are loaded before `hdpmf.cli.commands`.
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
from hdpmf.common.base.hints import message_language
from hdpmf.errors import ConfigError, HdpmfError, StorageError

_INTERRUPTED = 130

# typer carries a click of its own; this is the public way to the base of all its usage errors.
_UsageError: type[Any] = typer.BadParameter.__bases__[0]


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the ``hdpmf`` command and end the process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a title in another script must not end a command
    _answer_interrupts()
    try:
        given = _load_plugins(given)
        from hdpmf.cli.commands import app

        with message_language("shell", note):
            code = app(given or ["--help"], prog_name="hdpmf", standalone_mode=False)
    except HdpmfError as error:
        code = _fail(given, type(error).__name__, str(error), error.exit_code)
    except _UsageError as error:
        message = f"{error.format_message()} (see {_command_path(error)} --help)"
        code = _fail(given, "UsageError", message, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        _fail(given, "Interrupted", "interrupted; nothing was half-written", _INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _load_plugins(arguments: Sequence[str]) -> list[str]:
    """Load the files that ``--plugin`` names, anywhere on the line; return the other arguments."""
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        option, equals, file = word.partition("=")
        if option != "--plugin":
            rest.append(word)
            continue
        name = file if equals else next(words, None)
        if name is None:
            raise ConfigError("--plugin needs a FILE")
        from hdpmf.common.methods.registry import load_plugin

        load_plugin(name)
    return rest


def _answer_interrupts() -> None:
    """Stop at SIGINT also where the parent ignored it (``nohup``, ``&`` in a script)."""
    inherited = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if inherited and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _command_path(error: Any) -> str:
    return error.ctx.command_path if error.ctx is not None else "hdpmf"


def _fail(arguments: Sequence[str], kind: str, message: str, exit_code: int) -> int:
    line = clean(message)
    print(f"error: {line}", file=sys.stderr, flush=True)
    if "--json" in arguments:
        # Where stdout is closed or full, the line on stderr has to do.
        with suppress(typer.Exit, StorageError):
            print_json({"error": {"type": kind, "message": line, "exit_code": exit_code}})
    return exit_code
