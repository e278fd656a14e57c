"""``hdpmf recommender run`` and ``serve``: conduct one run, or serve until stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options import (
    RecommenderFolder,
    command,
    model_option,
    option,
    privacy_option,
    run_option,
)
from hdpmf.cli.output import Result, emit, note, notes_to, privacy_line, run_claim
from hdpmf.common.methods import method_named
from hdpmf.common.protocol.task import EVERYBODY
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.metrics import Metrics
    from hdpmf.untrusted.service.outcome import RunOutcome
    from hdpmf.untrusted.service.service import Service
    from hdpmf.untrusted.service.settings import RunSettings


@dataclass(frozen=True)
class MonitoringOptions:
    """The endpoint for Prometheus, and the format of the log."""

    metrics_port: Annotated[
        int | None, run_option("Serve counts for Prometheus there, on this machine only.", "PORT")
    ] = None
    metrics_host: Annotated[str, run_option("Or on this address.")] = "127.0.0.1"
    log_format: Annotated[str, run_option("The log on stderr: text, or json lines.", "FORMAT")] = (
        "text"
    )

    @contextmanager
    def monitored(
        self, service: ServiceFolder, metrics: Metrics
    ) -> Iterator[Callable[[str], None]]:
        """Log alerts and serve counts in the block; yields a function that logs."""
        from hdpmf.untrusted.service.health import inspect_folder

        with self.log(metrics) as log:
            for alert in inspect_folder(service).alerts:
                log(f"{alert.words}; to do: {alert.todo}")
            if self.metrics_port is None:
                yield log
                return
            from hdpmf.untrusted.service.telemetry import endpoint

            host = self.metrics_host
            with endpoint(
                metrics, self.metrics_port, host, lambda: inspect_folder(service)
            ) as port:
                log(f"counts for Prometheus: http://{host}:{port}/metrics")
                yield log

    @contextmanager
    def log(self, metrics: Metrics) -> Iterator[Callable[[str], None]]:
        """Log runs to stderr, inside the block; yields a function that logs a line."""
        from hdpmf.untrusted.service.metrics import watch
        from hdpmf.untrusted.service.telemetry import json_log

        if self.log_format == "text":
            yield watch(metrics)
        elif self.log_format == "json":
            with json_log(metrics) as log, notes_to(log):
                yield log
        else:
            raise ConfigError(f"--log-format is text or json, not {self.log_format!r}")


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
    heads: Annotated[
        int | None,
        model_option("Most items that have pairs.", "M", default="by public numbers, at most 300"),
    ] = None

    def settings(self, enrolled: int) -> RunSettings:
        """Return the settings of a run with so many devices."""
        from hdpmf.untrusted.service.settings import RunSettings, seconds

        minimum = max(2, 3 * enrolled // 4) if self.minimum is None else self.minimum
        return RunSettings(
            minimum=minimum,
            epsilon=self.epsilon,
            heads=self.heads,
            asked=round(self.asked * EVERYBODY),
            period=seconds(self.period),
            precision=None if self.precision is None else seconds(self.precision),
        )


@command
def run(
    folder: RecommenderFolder,
    task: TaskOptions,
    monitoring: MonitoringOptions,
    give_up: Annotated[bool, run_option("Give the run up that was not finished.")] = False,
) -> Result:
    """Begin a run; where one was not finished, go on with it from where it was.

    It is conducted here, unless another process serves the folder (hdpmf recommender serve): then
    that one begins it. Pin the two servers first (hdpmf recommender servers).
    """
    from hdpmf.untrusted.service.folder import ServiceFolder

    service = ServiceFolder(folder)
    unfinished = service.unfinished()
    serving = service.is_serving()
    if give_up:
        return _give_up(service, unfinished, serving)
    if unfinished is not None and serving:
        raise ConfigError(
            f"run {unfinished.hex()[:12]} is under way in the process that serves {folder}"
        )
    settings = None if unfinished is not None else task.settings(service.people)
    if serving and settings is not None:
        return _request(service, settings)
    return _conduct(service, settings, unfinished or b"", monitoring)


def _conduct(
    folder: ServiceFolder,
    settings: RunSettings | None,
    unfinished: bytes,
    monitoring: MonitoringOptions,
) -> Result:
    """Conduct a run with these settings or, without any, the one that was not finished."""
    from hdpmf.untrusted.service.service import Service

    if settings is not None:
        Service(folder).check(settings)  # before anything is opened
    with folder.serving(), _on_network(folder, monitoring) as (service, log):
        if settings is None:
            log(
                f"going on with run {unfinished.hex()[:12]} as it was begun; other options are "
                "for a new run"
            )
        return _outcome(
            folder, service.conduct(unfinished if settings is None else service.begin(settings))
        )


def _request(folder: ServiceFolder, settings: RunSettings) -> Result:
    """Leave the run to the process that serves the folder."""
    from hdpmf.untrusted.service.daemon import ask_for_run
    from hdpmf.untrusted.service.service import Service

    Service(folder).check(settings)
    run = ask_for_run(folder, settings)
    return Result(
        {"run": run, "requested": True},
        [f"run {run[:12]} is asked for; the process that serves {folder.path} begins it"],
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


@contextmanager
def _on_network(
    folder: ServiceFolder, monitoring: MonitoringOptions
) -> Iterator[tuple[Service, Callable[[str], None]]]:
    """Serve public files and tokens, inside the block; yields the service, and what logs."""
    from hdpmf.untrusted.service.metrics import Metrics
    from hdpmf.untrusted.service.service import Service
    from hdpmf.untrusted.service.token_issuer import TokenIssuer
    from hdpmf.untrusted.service.website import serve_website

    metrics = Metrics()
    with (
        folder.participants() as participants,
        monitoring.monitored(folder, metrics) as log,
        serve_website(folder, issuer := TokenIssuer(participants), metrics.requests) as address,
    ):
        note(f"listening on {address}")
        service = Service(folder, issuer, metrics=metrics, log=log)
        try:
            yield service, log
        finally:
            service.close()


@command
def serve(folder: RecommenderFolder, monitoring: MonitoringOptions) -> None:
    """Serve until SIGTERM: publish the newest model, continue unfinished runs, begin new ones.

    Runs are asked for by hand (hdpmf recommender run) or by ``every`` in config.toml. A start
    begins none by itself.
    """
    from hdpmf.untrusted.service.daemon import Daemon
    from hdpmf.untrusted.service.folder import ServiceFolder

    opened = ServiceFolder(folder)
    with (
        _until_terminated(),
        opened.serving(),
        _on_network(opened, monitoring) as (service, log),
    ):
        Daemon(
            service,
            report=lambda outcome: emit(_outcome(opened, outcome)),
            log=log,
        ).live()


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
