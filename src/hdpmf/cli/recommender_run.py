"""``hdpmf recommender run`` and ``serve``: ask for a run, and serve until stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options import (
    RecommenderFolder,
    command,
    host_and_port,
    option,
    privacy_option,
    run_option,
)
from hdpmf.cli.output import Result, emit, note, notes_to, privacy_line, run_claim, wants_json
from hdpmf.common.methods import method_named
from hdpmf.common.protocol.task import EVERYBODY
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.metrics import Metrics
    from hdpmf.untrusted.service.outcome import RunOutcome
    from hdpmf.untrusted.service.settings import RunSettings


@dataclass(frozen=True)
class TaskOptions:
    """What two servers are asked to sum, and when."""

    epsilon: Annotated[
        float,
        privacy_option(
            "The budget of a person, for all that the run is told about them (delta 1e-5).",
            "E",
            "--epsilon",
        ),
    ] = method_named("hdp-pairs").default("epsilon")
    minimum: Annotated[
        int | None,
        option(
            "Fewest reports that make the sum of use; the noise protects.",
            "N",
            default="three quarters of the enrolled",
        ),
    ] = None
    asked: Annotated[
        float,
        option("Share of people who are asked; each draws by itself whether.", "SHARE", max=1.0),
    ] = 1.0
    period: Annotated[
        str, run_option("How long each of the two tasks takes reports, as 12h or 7d.", "TIME")
    ] = "1d"
    precision: Annotated[
        str | None,
        run_option(
            "What times of reports are rounded to, and a period begins at a multiple of.",
            "TIME",
            default="the whole period, so that they tell nothing",
        ),
    ] = None

    def settings(self, enrolled: int) -> RunSettings:
        """Return the settings of a run with so many devices."""
        from hdpmf.untrusted.service.settings import RunSettings, seconds

        minimum = max(2, 3 * enrolled // 4) if self.minimum is None else self.minimum
        return RunSettings(
            minimum=minimum,
            epsilon=self.epsilon,
            asked=round(self.asked * EVERYBODY),
            period=seconds(self.period),
            precision=None if self.precision is None else seconds(self.precision),
        )


@command
def run(
    folder: RecommenderFolder,
    task: TaskOptions,
    give_up: Annotated[bool, run_option("Give the run up that was not finished.")] = False,
) -> Result:
    """Ask for a run: the process that serves the folder (hdpmf recommender serve) conducts it.

    Pin the two servers first (hdpmf recommender servers).
    """
    from hdpmf.untrusted.service.folder import ServiceFolder

    service = ServiceFolder(folder)
    unfinished = service.unfinished()
    if give_up:
        return _give_up(service, unfinished, service.is_serving())
    if unfinished is not None:
        raise ConfigError(
            f"run {unfinished.hex()[:12]} is under way; hdpmf recommender serve goes on with it, "
            "and --give-up ends it"
        )
    return _request(service, task.settings(service.people))


def _request(folder: ServiceFolder, settings: RunSettings) -> Result:
    """Leave the run to the process that serves the folder."""
    from hdpmf.untrusted.service.daemon import ask_for_run
    from hdpmf.untrusted.service.service import Service

    Service(folder).check(settings)
    run = ask_for_run(folder, settings)
    who = "the process that serves it" if folder.is_serving() else "hdpmf recommender serve"
    return Result(
        {"run": run, "requested": True}, [f"run {run[:12]} is asked for; {who} begins it"]
    )


def _give_up(folder: ServiceFolder, unfinished: bytes | None, serving: bool) -> Result:
    from hdpmf.untrusted.service.daemon import ask_to_give_up
    from hdpmf.untrusted.service.service import Service

    if unfinished is None:
        raise ConfigError("there is no unfinished run to give up")
    if serving:
        ask_to_give_up(folder, unfinished)
    else:
        Service(folder).give_up(unfinished)
    run = unfinished.hex()
    done = "is being given up by the process that serves it" if serving else "is given up"
    return Result(
        {"run": run, "given_up": not serving, "requested": serving},
        [f"run {run[:12]} {done}; what devices have paid for it stays paid"],
    )


def _outcome(folder: ServiceFolder, outcome: RunOutcome) -> Result:
    summary, stated = outcome.summary, outcome.statement
    model = folder.path / "model"
    claim = run_claim(summary["method"], stated.view, stated.epsilon, stated.status)
    text = [
        f"{summary['method']}: {summary['users']} reports summed by two servers (tasks "
        f"{' and '.join(task[:12] for task in summary['tasks'])})",
        f"model (nothing private is in it): {model}; devices get it while hdpmf recommender serve "
        "runs",
        f"The recommender could see: {stated.sees}.",
        privacy_line(claim, "statement", folder.path),
    ]
    fields: dict[str, Any] = {**summary, "model": str(model)}
    return Result(fields, text)


@command
def serve(
    folder: RecommenderFolder,
    metrics: Annotated[
        str | None,
        run_option("Serve counts for Prometheus there; HOST is this machine's.", "[HOST:]PORT"),
    ] = None,
) -> None:
    """Serve until SIGTERM: publish the newest model, continue unfinished runs, begin new ones.

    Runs are asked for by hand (hdpmf recommender run) or by ``every`` in config.toml. A start
    begins none by itself. With --json the log on stderr is lines of JSON, too.
    """
    from hdpmf.untrusted.service.daemon import Daemon
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.health import inspect_folder
    from hdpmf.untrusted.service.metrics import Metrics
    from hdpmf.untrusted.service.service import Service
    from hdpmf.untrusted.service.telemetry import endpoint
    from hdpmf.untrusted.service.token_issuer import TokenIssuer
    from hdpmf.untrusted.service.website import serve_website

    opened, counts = ServiceFolder(folder), Metrics()
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(_until_terminated())
        enter(opened.serving())
        issuer = TokenIssuer(enter(opened.participants()))
        log = enter(_log(counts))
        for alert in inspect_folder(opened).alerts:
            log(f"{alert.words}; to do: {alert.todo}")
        if metrics is not None:
            host, port = host_and_port(metrics)
            port = enter(endpoint(counts, port, host, lambda: inspect_folder(opened)))
            log(f"counts for Prometheus: http://{host}:{port}/metrics")
        note(f"listening on {enter(serve_website(opened, issuer, counts.requests))}")
        service = Service(opened, issuer, metrics=counts, log=log)
        stack.callback(service.close)
        Daemon(service, report=lambda outcome: emit(_outcome(opened, outcome)), log=log).live()


@contextmanager
def _log(metrics: Metrics) -> Iterator[Callable[[str], None]]:
    """Log to stderr, inside the block; yields a function that logs a line."""
    from hdpmf.untrusted.service.metrics import watch
    from hdpmf.untrusted.service.telemetry import json_log

    if wants_json():
        with json_log(metrics) as log, notes_to(log):
            yield log
    else:
        yield watch(metrics)


class _TerminationSignal(BaseException):
    """SIGTERM came."""


@contextmanager
def _until_terminated() -> Iterator[None]:
    """End the block at SIGTERM in order; everything in it survives a kill, too."""

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough
        raise _TerminationSignal

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _TerminationSignal:
        note("stopped; a run under way continues at the next start")
    finally:
        signal.signal(signal.SIGTERM, before)
