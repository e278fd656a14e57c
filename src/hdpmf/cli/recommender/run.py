"""``hdpmf recommender run``, ``serve`` and ``issue``: conduct one run, or serve until stopped."""

from __future__ import annotations

import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import RecommenderFolder, command, option, run_option
from hdpmf.cli.options.methods import FederatedMethod, FederatedOptions, Minimum, RunOptions
from hdpmf.cli.output import Result, emit, note, notes_to, privacy_line, run_claim
from hdpmf.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from hdpmf.common.net.sum_servers import TwoServers
    from hdpmf.common.protocol.enrolment import Enrolled
    from hdpmf.common.protocol.key_list import PublishedKeys
    from hdpmf.common.protocol.servers import Servers
    from hdpmf.untrusted.service.daemon import Peers
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.metrics import Metrics
    from hdpmf.untrusted.service.outcome import RunOutcome
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
        """Log alerts, serve counts and export traces in the block; yields a function that logs."""
        from hdpmf.common.base.traces import exporting
        from hdpmf.untrusted.service.health import inspect_folder

        with exporting("hdpmf-recommender"), self.log(metrics) as log:
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
        from hdpmf.untrusted.service.progress import watch
        from hdpmf.untrusted.service.telemetry import json_log

        if self.log_format == "text":
            with watch(metrics) as log:
                yield log
        elif self.log_format == "json":
            with json_log(metrics) as log, notes_to(log):
                yield log
        else:
            raise ConfigError(f"--log-format is text or json, not {self.log_format!r}")


@dataclass(frozen=True)
class PeriodOptions:
    """The time in which two servers take reports."""

    period: Annotated[
        str | None,
        run_option(
            "With two servers: how long they take reports, as 12h or 7d.", "TIME", default="1d"
        ),
    ] = None
    precision: Annotated[
        str | None,
        run_option(
            "With two servers: what times of reports are rounded to, and a period begins "
            "at a multiple of.",
            "TIME",
            default="the whole period, so that they tell nothing",
        ),
    ] = None

    def settings(self) -> dict[str, int]:
        """Return the options given, for the run's settings."""
        from hdpmf.untrusted.service.settings import seconds

        given = {"period": self.period, "precision": self.precision}
        return {name: seconds(text) for name, text in given.items() if text is not None}


@dataclass(frozen=True)
class CohortOptions:
    """The devices that are asked."""

    cohort: Annotated[
        int | None, run_option("Ask only so many of the devices.", "N", default="everybody")
    ] = None
    beacon: Annotated[
        str | None,
        run_option(
            "What the cohort is chosen by: a public text that nobody knew before, as "
            "drand's newest round.",
            "TEXT",
            default="a draw of this machine",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return the options given, for the run's settings."""
        if self.cohort is None:
            return {} if self.beacon is None else {"beacon": self.beacon}
        beacon = secrets.token_hex(16) if self.beacon is None else self.beacon
        return {"cohort": self.cohort, "beacon": beacon}


@command
def run(
    folder: RecommenderFolder,
    run_options: RunOptions,
    options: FederatedOptions,
    monitoring: MonitoringOptions,
    periods: PeriodOptions,
    cohorts: CohortOptions,
    method: FederatedMethod = "hdp-sum",
    minimum: Minimum = None,
    give_up: Annotated[bool, run_option("Give the run up that was not finished.")] = False,
) -> Result:
    """Begin a run; where one was not finished, go on with it from where it was.

    It is conducted here, unless another process serves the folder (hdpmf recommender serve): then
    that one begins it. Between machines, sums by two servers are recommended: pin them first (hdpmf
    recommender servers).
    """
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.keys import pinned_servers

    service = ServiceFolder(folder)
    unfinished = service.unfinished()
    serving = service.is_serving()
    if give_up:
        return _give_up(service, unfinished, serving)
    if unfinished is not None:
        if serving:
            raise ConfigError(
                f"run {unfinished.hex()[:12]} is under way in the process that serves {folder}"
            )
        settings = service.record(unfinished).settings
    else:
        pinned = pinned_servers(folder) is not None
        more = {**periods.settings(), **cohorts.settings()}
        users = _count_users(service.enrolled, run_options.view(method, two_servers=pinned))
        users = min(users, more.get("cohort", users))
        settings = run_options.settings(method, options, users, minimum, two_servers=pinned, **more)
    if serving:
        return _request(service, settings)
    return _conduct(service, settings, unfinished, monitoring)


def _conduct(
    folder: ServiceFolder,
    settings: RunSettings,
    unfinished: bytes | None,
    monitoring: MonitoringOptions,
) -> Result:
    from hdpmf.untrusted.service.metrics import Metrics
    from hdpmf.untrusted.service.service import Service

    metrics = Metrics()
    if unfinished is None:
        Service(folder).check(settings)  # before anything is opened
        _warn(folder, settings)
    with (
        folder.serving(),
        monitoring.monitored(folder, metrics) as log,
        _on_network(folder, metrics) as peers,
    ):
        if unfinished is not None:
            log(
                f"going on with run {unfinished.hex()[:12]} as it was begun; other options are "
                "for a new run"
            )
        service = Service(
            folder,
            peers.devices,
            servers=peers.servers,
            issuer=peers.issuer,
            metrics=metrics,
            admit=peers.admit,
            log=log,
        )
        run = service.begin(settings) if unfinished is None else unfinished
        if settings.view == "two-servers" and unfinished is None:
            service.publish()
        outcome = service.conduct(run)
        # Nobody serves the folder after this process: whoever took part gets the model now.
        peers.wait_for_fetches()
        return _outcome(folder, outcome)


def _request(folder: ServiceFolder, settings: RunSettings) -> Result:
    """Leave the run to the process that serves the folder."""
    from hdpmf.untrusted.service.daemon import ask_for_run
    from hdpmf.untrusted.service.service import Service

    Service(folder).check(settings)
    _warn(folder, settings)
    run = ask_for_run(folder, settings)
    return Result(
        {"run": run, "requested": True},
        [f"run {run[:12]} is asked for; the process that serves {folder.path} begins it"],
    )


def _warn(folder: ServiceFolder, settings: RunSettings) -> None:
    """Warn at once if devices with the default policy will refuse the run."""
    from hdpmf.private.device.policy import Policy

    users = folder.enrolled.users.values()
    terms = settings.terms("-", users)
    try:
        Policy().check(terms)
        Policy().check_roster(terms, list(users))
    except PrivacyError as error:
        note(
            f"Warning: by default devices refuse this run: {error}. Only those take part whose "
            "owners have allowed it (hdpmf device policy STORE --set FILE). Otherwise give it up, "
            "and ask for what devices allow: other options, more devices, or sums by two servers "
            "(hdpmf recommender servers)"
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
        [
            f"run {run[:12]} {done}; what devices have paid for it stays paid, unless two servers "
            "sign that nothing was released: then they get it back"
        ],
    )


def _count_users(enrolled: Enrolled, view: str) -> int:
    if len(enrolled) == 0:
        raise ConfigError(
            "no device is enrolled yet: hdpmf recommender enroll FOLDER CARD.json ..."
        )
    return len(enrolled) if view == "sums" else enrolled.count_users(enrolled.users)


def _outcome(folder: ServiceFolder, outcome: RunOutcome) -> Result:
    summary, stated = outcome.summary, outcome.statement
    model = folder.path / "model"
    text = [
        _run_sentence(summary),
        *_level_lines(summary),
        f"model (nothing private is in it): {model}",
        *_list_lines(folder, summary),
        f"The recommender could see: {stated.sees}.",
        privacy_line(
            run_claim(
                summary["method"], stated.view, stated.epsilon, stated.status,
                labels=summary["settings"]["labels"] is not None,
            ),
            "statement",
            folder.path,
        ),
    ]  # fmt: skip
    return Result({**summary, "model": str(model)}, text)


def _run_sentence(summary: dict[str, Any]) -> str:
    method = summary["method"]
    if summary["devices"] is None:
        tasks = ", ".join(task[:12] for task in summary["tasks"])
        return f"{method}: {summary['users']} reports summed by two servers (task {tasks})"
    return (
        f"{method}: {summary['rounds']} rounds with {summary['devices']} devices "
        f"({summary['users']} users) in {summary['seconds']:.1f} s; "
        f"{sum(summary['refusals'].values())} refusals"
    )


def _level_lines(summary: dict[str, Any]) -> list[str]:
    """Say how many people show ratings, where they may."""
    shown = summary.get("levels")
    if shown is None:
        return []
    seen, opened = shown["seen"], shown["open"]
    return [
        f"shown beside the sums: {seen['ratings']:,} ratings of {seen['people']:,} people are "
        f"seen, {opened['ratings']:,} of {opened['people']:,} are open"
    ]


def _list_lines(folder: ServiceFolder, summary: dict[str, Any]) -> list[str]:
    lists = summary.get("lists")
    if lists is None:
        return []
    release = folder.path / "runs" / summary["run"] / "ratings.release"
    lines = [
        f"model for lists: {lists['kind']}, {lists['bytes']:,} bytes, SHA-256 {lists['sha256']}"
    ]
    if release.exists():
        lines.append(f"what devices sent, as a data set: {release}")
    return lines


_SMALL = 64 << 10  # bytes of an answer while no run is under way


@contextmanager
def _on_network(folder: ServiceFolder, metrics: Metrics) -> Iterator[Peers]:
    """Serve public files and the mailbox, inside the block; yields the peers to others."""
    from hdpmf.untrusted.service.aggregation.token_issuer import TokenIssuer
    from hdpmf.untrusted.service.daemon import Peers
    from hdpmf.untrusted.service.website import mailbox_of, serve_website

    mailbox = mailbox_of(folder, lambda: _longest_contribution(folder))
    servers = _PinnedServers(folder)
    issuer = TokenIssuer()
    try:
        with serve_website(folder, mailbox, issuer, metrics.requests) as address:
            note(f"listening on {address}")
            yield Peers(
                devices=mailbox,
                servers=servers,
                issuer=issuer,
                admit=mailbox.admit,
                wait_for_fetches=mailbox.wait_for_fetches,
            )
    finally:
        servers.close()


def _longest_contribution(folder: ServiceFolder) -> int:
    """Return the bytes of the largest contribution that can be right now."""
    run = folder.unfinished()
    if run is None:
        return _SMALL
    record = folder.record(run)
    users = [card.users for card in record.devices]
    return max(record.settings.longest_reply(len(folder.catalogue.ids), users), _SMALL)


class _PinnedServers:
    """The two servers that are pinned by now: a ``SumServers``."""

    def __init__(self, folder: ServiceFolder) -> None:
        self._folder = folder
        self._open: tuple[Servers, TwoServers] | None = None

    def add_task(self, document: bytes) -> None:
        """As in ``SumServers``."""
        self._pair().add_task(document)

    def begin_collection(self, task_id: bytes, job_id: bytes, request: bytes) -> None:
        """As in ``SumServers``."""
        self._pair().begin_collection(task_id, job_id, request)

    def collection(self, task_id: bytes, job_id: bytes) -> bytes | None:
        """As in ``SumServers``."""
        return self._pair().collection(task_id, job_id)

    def signed_keys(self) -> PublishedKeys:
        """As in ``SumServers``."""
        return self._pair().signed_keys()

    def close(self) -> None:
        """End the connections."""
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _pair(self) -> TwoServers:
        from hdpmf.common.net.sum_servers import TwoServers
        from hdpmf.untrusted.service.keys import load_keys, pinned_servers

        pinned = pinned_servers(self._folder.path)
        if pinned is None:
            raise ConfigError(
                "no pair of servers is pinned yet: hdpmf recommender servers FOLDER servers.json"
            )
        if self._open is None or self._open[0] != pinned:
            self.close()
            party = load_keys(self._folder.path, self._folder.config.name).party
            self._open = pinned, TwoServers(pinned, party)
        return self._open[1]


@command
def serve(folder: RecommenderFolder, monitoring: MonitoringOptions) -> None:
    """Serve until SIGTERM: publish the newest model, continue unfinished runs, begin new ones.

    Runs are asked for by hand (hdpmf recommender run) or by the schedule in config.toml. A start
    begins none by itself.
    """
    from hdpmf.untrusted.service.daemon import Daemon
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.metrics import Metrics

    service = ServiceFolder(folder)
    metrics = Metrics()
    with (
        _until_terminated(),
        service.serving(),
        monitoring.monitored(service, metrics) as log,
        _on_network(service, metrics) as peers,
    ):
        Daemon(
            service,
            peers,
            metrics=metrics,
            report=lambda outcome: emit(_outcome(service, outcome)),
            log=log,
        ).live()


@command
def issue(
    folder: RecommenderFolder,
    port: Annotated[int, option("Port to listen on, of the host in config.toml.", "PORT")],
    monitoring: MonitoringOptions,
) -> None:
    """Give devices tokens for reports to two servers, beside serve, until SIGTERM.

    It needs the disk of the process that serves the folder. It also serves the public files, and
    nothing else: start as many as there are cores, each on a port of its own, behind a load
    balancer. A device gets its tokens once, whichever process it asks.
    """
    from hdpmf.untrusted.service.aggregation.token_issuer import TokenIssuer
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.metrics import Metrics
    from hdpmf.untrusted.service.website import serve_website

    service = ServiceFolder(folder)
    metrics = Metrics(stage="giving tokens")
    issuer = TokenIssuer(service.path / "runs")
    with (
        _until_terminated("stopped"),
        monitoring.monitored(service, metrics),
        serve_website(service, issuer=issuer, requests=metrics.requests, port=port) as address,
    ):
        note(f"listening on {address}")
        threading.Event().wait()


class _TerminationSignal(BaseException):
    """SIGTERM came."""


@contextmanager
def _until_terminated(
    goodbye: str = "stopped; a run under way continues at the next start",
) -> Iterator[None]:
    """End the block at SIGTERM in order; everything in it survives a kill, too."""

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough
        raise _TerminationSignal

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _TerminationSignal:
        note(goodbye)
    finally:
        signal.signal(signal.SIGTERM, before)
