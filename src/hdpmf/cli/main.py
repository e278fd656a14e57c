"""The ``hdpmf`` command: its parts put together, and how it ends.

Exit codes: 0 done; 1 a bug of ours (with its traceback); 2 an option that makes no sense; 3 ratings that cannot be
used, or an unknown user; 4 a data set that is absent or wrong; 5 a privacy budget or weight outside its range; 6 a
malformed message; 7 a saved model that cannot be read; 8 the disk refused; 9 an optional dependency is missing; 10
training ran away; 11 a secure sum that could not be completed; 12 a federated run that stopped; 13 a sum by two
servers; 14 a question was answered with no; 130 interrupted.

Commands import what is heavy inside their functions: ``hdpmf --help`` has to be there at once.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from hdpmf.cli.aggregator.app import app as aggregator_app
from hdpmf.cli.audit.app import app as audit_app
from hdpmf.cli.data.app import app as data_app
from hdpmf.cli.demo import demo
from hdpmf.cli.device.app import app as device_app
from hdpmf.cli.doctor import doctor
from hdpmf.cli.experiment.app import app as experiment_app
from hdpmf.cli.federate.app import app as federate_app
from hdpmf.cli.health import health
from hdpmf.cli.methods.app import methods
from hdpmf.cli.model.evaluate import evaluate
from hdpmf.cli.model.recommend import recommend
from hdpmf.cli.model.release import release
from hdpmf.cli.model.train import train
from hdpmf.cli.model.tune import tune
from hdpmf.cli.paper.app import app as paper_app
from hdpmf.cli.prior.app import app as prior_app
from hdpmf.cli.privacy.app import app as privacy_app
from hdpmf.cli.recommender.app import app as recommender_app
from hdpmf.cli.shared.old_names import with_current_names
from hdpmf.cli.shared.output import clean, hdpmf_version, note, print_json
from hdpmf.errors import HdpmfError, StorageError
from hdpmf.wording import speaking

EPILOG = (
    "Exit codes: 0 done, 1 bug, 2 wrong option, 3 unusable ratings or unknown user, 4 data set, 5 privacy budget or "
    "weight, 6 protocol, 7 saved model, 8 disk, 9 missing extra, 10 training diverged, 11 secure sum, 12 federated run "
    "stopped, 13 sum by two servers, 14 answered no, 130 interrupted."
)

_INTERRUPTED = 130

# typer carries a click of its own; this is the public way to the base of all its usage errors.
_UsageError: type[Any] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="hdpmf",
    help="Recommendations without trusting the recommender: matrix factorization with heterogeneous differential "
    "privacy.",
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
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# The commands, in the order that help shows them. A new one is a module of its own and a line here.
app.add_typer(data_app, name="data")
app.command()(train)
app.command()(release)
app.command()(evaluate)
app.command()(methods)
app.command()(recommend)
app.command()(tune)
app.add_typer(device_app, name="device")
app.add_typer(privacy_app, name="privacy")
app.add_typer(prior_app, name="prior")
app.add_typer(audit_app, name="audit")
app.add_typer(federate_app, name="federate")
app.add_typer(recommender_app, name="recommender")
app.add_typer(aggregator_app, name="aggregator")
app.add_typer(experiment_app, name="experiment")
app.add_typer(paper_app, name="paper")
app.command()(demo)
app.command()(doctor)
app.command()(health)


def run(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``hdpmf`` command; ends the process."""
    given = with_current_names(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a title in another script must not end a command
    _answer_interrupts()
    try:
        with speaking("shell", note):
            code = app(given or ["--help"], prog_name="hdpmf", standalone_mode=False)
    except HdpmfError as error:
        code = _fail(given, type(error).__name__, str(error), error.exit_code)
    except _UsageError as error:
        code = _fail(given, "UsageError", error.format_message() + _help_hint(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        _fail(given, "Interrupted", "interrupted; nothing was half-written", _INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _answer_interrupts() -> None:
    """Stop at SIGINT also where the starter ignored it (``nohup``, ``&`` in a script) and we inherited that."""
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
