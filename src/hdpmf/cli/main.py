"""The ``hdpmf`` command: the table of all commands, and the start and the end of a call.

A command's module is imported when the command is called. It imports heavy modules inside its
functions, so that help and tab completion answer at once. Commands show the options of every
method, so plugins are loaded before any of them.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import UserDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hdpmf.cli.output import clean, hdpmf_version, note, print_json, set_command
from hdpmf.errors import ConfigError, HdpmfError, StorageError, message_language

EPILOG = (
    "Exit codes: 0 done, 1 bug, 2 wrong option, 3 unusable ratings or unknown user, 4 data set, "
    "5 privacy budget or weight, 6 protocol, 7 saved model, 8 disk, 9 missing extra, 10 training "
    "diverged, 12 federated run stopped, 13 sum by two servers, 14 answered no, "
    "15 some runs failed, 130 interrupted."
)
_INTERRUPTED = 130

# typer carries a click of its own; this is the public way to the base of all its usage errors.
_UsageError: type[Any] = typer.BadParameter.__bases__[0]


@dataclass(frozen=True)
class Group:
    """Commands under a common name."""

    help: str
    commands: Mapping[str, str | Group]
    no_args_is_help: bool = False
    epilog: str | None = None


# Names, in the order of ``--help``, and functions, as ``module of hdpmf.cli:function``.
COMMANDS: dict[str, str | Group] = {
    "train": "train:train",
    "evaluate": "train:evaluate",
    "methods": "doctor:methods",
    "recommend": "inference:recommend",
    "doctor": "doctor:doctor",
    "cite": "doctor:cite",
    "data": Group(
        "Data sets: get them, look at them.",
        {"get": "data:get_dataset", "info": "data:describe"},
    ),
    "device": Group(
        "A device that keeps its ratings: what it sends, it decides itself.",
        {
            "init": "device:init",
            "join": "device:join",
            "rate": "device:rate",
            "recommend": "device:recommend",
            "ledger": "device:ledger",
        },
        no_args_is_help=True,
        epilog="Step by step: init, hand the card to the recommender, join, rate, recommend. "
        "Nothing leaves the device but what join sends, and the ledger says what that was.",
    ),
    "privacy": Group(
        "What is private, from whom, and what it costs.",
        {
            "explain": "privacy:explain",
            "statement": "privacy:statement",
            "compare": "privacy:compare",
        },
        no_args_is_help=True,
    ),
    "audit": Group(
        "Try to break the claims of methods: bounds on epsilon by attack, ratings reconstructed.",
        {
            "run": "audit:run",
            "reconstruct": "audit:reconstruct",
        },
    ),
    "federate": Group(
        "A whole federation on this machine: simulated devices, or real processes.",
        {"demo": "federate:demo", "simulate": "federate:simulate"},
    ),
    "recommender": Group(
        "The recommender, which nobody has to trust: set it up, invite people, run it.",
        {
            "init": "recommender:init",
            "items": "recommender:items",
            "status": "recommender:status",
            "serve": "recommender_run:serve",
            "run": "recommender_run:run",
            "servers": "recommender:servers",
            "invite": "recommender:invite",
        },
    ),
    "aggregator": Group(
        "One of the two servers that sum devices' reports: set it up, pair it, run it.",
        {
            "init": "aggregator:init",
            "pair": "aggregator:pair",
            "admit": "aggregator:admit",
            "status": "aggregator:status",
            "rotate-keys": "aggregator:rotate_keys",
            "epoch": "aggregator:epoch",
            "serve": "aggregator:serve",
        },
    ),
    "experiment": Group(
        "Experiments of your own, described in a TOML file.",
        {
            "run": "experiment:run_file",
            "report": "experiment:report",
            "example": "experiment:example",
        },
    ),
    "paper": Group(
        "The paper's whole evaluation: run it, see its progress, read the report.",
        {
            "run": "experiment:run_paper",
            "report": "experiment:report_paper",
        },
    ),
}


class _Commands(UserDict[str, Any]):
    """Commands by name, for typer; each is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        found = self.data[name]
        if isinstance(found, str | Group):
            found = self.data[name] = _made(name, found)
        return found


def _made(name: str, target: str | Group) -> Any:
    """Return the command or the group that an entry of the table describes."""
    holder = typer.Typer(add_completion=False)
    if isinstance(target, str):
        module, _, function = target.partition(":")
        holder.command(name)(getattr(import_module(f"hdpmf.cli.{module}"), function))
        return typer.main.get_command(holder)
    group = typer.Typer(
        help=target.help, epilog=target.epilog, no_args_is_help=target.no_args_is_help
    )
    holder.add_typer(group, name=name)
    made: Any = typer.main.get_command(holder)
    made.commands[name].commands = _Commands(target.commands)
    return made.commands[name]


class _AllCommands(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands(COMMANDS)


app = typer.Typer(
    name="hdpmf",
    cls=_AllCommands,
    help="Recommendations without trusting the recommender: matrix factorization with "
    "heterogeneous differential privacy.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
    # Tracebacks stay plain: the pretty ones print local variables, and those hold ratings.
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"hdpmf {hdpmf_version()}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A Python file with methods of your own; it may also follow the command.",
        ),
    ] = None,
) -> None:
    pass


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the ``hdpmf`` command and end the process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a title in another script must not end a command
    _answer_interrupts()
    set_command(given)
    try:
        given = _load_plugins(given)
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
