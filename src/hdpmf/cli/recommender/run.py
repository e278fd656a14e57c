"""``hdpmf recommender run`` and ``hdpmf recommender serve``: conduct one run, or serve until
stopped.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import Json, run_option, with_option_groups
from hdpmf.cli.options.runs import FederatedOptions, Method, Minimum, RunOptions
from hdpmf.cli.output import note, notes_to, print_json, print_lines
from hdpmf.cli.recommender.trust import public_files, two_servers
from hdpmf.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from hdpmf.common.net.flower.recommender import FlowerRecommender
    from hdpmf.common.protocol.enrolled import Enrolled
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.lifecycle import Ways
    from hdpmf.untrusted.service.metrics import Metrics
    from hdpmf.untrusted.service.outcome import RunOutcome
    from hdpmf.untrusted.service.settings import RunSettings


@dataclass(frozen=True)
class MetricsOptions:
    """Where counts can be had, and how it says what happens."""

    metrics_port: Annotated[
        int | None,
        run_option(
            "--metrics-port",
            metavar="PORT",
            help="Serve counts for Prometheus there, on this machine only.",
        ),
    ] = None
    metrics_host: Annotated[str, run_option("--metrics-host", help="Or on this address.")] = (
        "127.0.0.1"
    )
    log_format: Annotated[
        str,
        run_option(
            "--log-format",
            metavar="FORMAT",
            help="What it says while it runs: text, or json, in lines.",
        ),
    ] = "text"

    @contextmanager
    def counted(
        self, place: ServiceFolder, metrics: Metrics, log: Callable[[str], None]
    ) -> Iterator[None]:
        """While inside, they are there. What the operator should know before that is said."""
        from hdpmf.untrusted.service.watching import look

        for alert in look(place).alerts:
            log(f"{alert.words}; to do: {alert.todo}")
        if self.metrics_port is None:
            yield
            return
        from hdpmf.untrusted.service.prometheus import endpoint

        with endpoint(metrics, self.metrics_port, self.metrics_host, lambda: look(place)) as port:
            log(f"counts for Prometheus: http://{self.metrics_host}:{port}/metrics")
            yield


@contextmanager
def run_log(metrics: Metrics, form: str) -> Iterator[Callable[[str], None]]:
    """Say how runs go on stderr, as ``text`` or ``json``; gives the function that is told lines."""
    from hdpmf.untrusted.service.json_log import json_log
    from hdpmf.untrusted.service.live import watch

    if form == "text":
        with watch(metrics) as say:
            yield say
    elif form == "json":
        with json_log(metrics) as say, notes_to(say):
            yield say
    else:
        raise ConfigError(f"--log-format is text or json, not {form!r}")


@contextmanager
def open_connections(place: ServiceFolder, asked: RunSettings) -> Iterator[Ways]:
    """Those that runs with these settings need."""
    from hdpmf.untrusted.service.lifecycle import Ways

    if asked.view != "two-servers":
        with transport(place, asked) as devices:
            yield Ways(devices=devices, admit=lambda card: devices.admit(card.identity, card.node))
        return
    with two_servers(place) as servers, public_files(place):
        yield Ways(servers=servers)


@contextmanager
def transport(place: ServiceFolder, asked: RunSettings) -> Iterator[FlowerRecommender]:
    """The way to devices, for replies as long as these settings ask for."""
    from hdpmf.common.net.flower.recommender import FlowerRecommender

    config, enrolled = place.config, place.enrolled
    most = asked.longest_reply(len(place.catalogue.ids), enrolled.users.values())
    with FlowerRecommender(
        place.transport_folder,
        host=config.host,
        port=config.port,
        names=config.names,
        roster={card.identity: card.node for card in enrolled.cards},
        max_reply=most,
    ) as opened:
        note(f"listening on {opened.address}")
        yield opened


@dataclass(frozen=True)
class PeriodOptions:
    """When two servers take reports."""

    period: Annotated[
        str | None,
        run_option(
            "--period",
            metavar="TIME",
            help="With two servers: how long they take reports, as 12h or 7d.",
            show_default="1d",
        ),
    ] = None
    precision: Annotated[
        str | None,
        run_option(
            "--precision",
            metavar="TIME",
            help="With two servers: what times of reports are rounded to, and a period begins "
            "at a multiple of.",
            show_default="the whole period, so that they tell nothing",
        ),
    ] = None

    def settings(self) -> dict[str, int]:
        """What was given of these, for the run's settings."""
        from hdpmf.untrusted.service.durations import seconds

        given = {"period": self.period, "precision": self.precision}
        return {name: seconds(text) for name, text in given.items() if text is not None}


@dataclass(frozen=True)
class CohortOptions:
    """Who is asked."""

    cohort: Annotated[
        int | None,
        run_option(
            "--cohort",
            metavar="N",
            help="Ask only so many of the devices.",
            show_default="everybody",
        ),
    ] = None
    beacon: Annotated[
        str | None,
        run_option(
            "--beacon",
            metavar="TEXT",
            help="What the cohort is chosen by: a public text that nobody knew before, as "
            "drand's newest round.",
            show_default="a draw of this machine",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """What was given of these, for the run's settings."""
        if self.cohort is None:
            return {} if self.beacon is None else {"beacon": self.beacon}
        return {
            "cohort": self.cohort,
            "beacon": secrets.token_hex(16) if self.beacon is None else self.beacon,
        }


@with_option_groups
def run(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    run_options: RunOptions,
    options: FederatedOptions,
    counting: MetricsOptions,
    periods: PeriodOptions,
    cohorts: CohortOptions,
    method: Method = "hdp-sum",
    minimum: Minimum = None,
    give_up: Annotated[
        bool, run_option("--give-up", help="Give the run up that was not finished.")
    ] = False,
    json: Json = False,
) -> None:
    """Begin a run; where one was not finished, go on with it from where it was.

    It is conducted here, unless another process serves the folder (hdpmf recommender serve): then
    that one begins it. Between machines, sums by two servers are recommended: pin them first (hdpmf
    recommender servers).
    """
    from hdpmf.untrusted.service.collector_keys import pinned_servers
    from hdpmf.untrusted.service.folder import ServiceFolder

    place = ServiceFolder(folder)
    unfinished, served = place.unfinished(), place.served()
    if give_up:
        _give_up(place, unfinished, served, json)
        return
    if unfinished is not None:
        if served:
            raise ConfigError(
                f"run {unfinished.hex()[:12]} is under way in the process that serves {folder}"
            )
        asked = place.record(unfinished).settings
    else:
        pinned = pinned_servers(folder) is not None
        askable = _askable(place.enrolled, run_options.view(method, two_servers=pinned))
        more = {**periods.settings(), **cohorts.settings()}
        askable = min(askable, more.get("cohort", askable))
        asked = run_options.settings(method, options, askable, minimum, two_servers=pinned, **more)
    if served:
        _leave(place, asked, json)
    else:
        _conduct(place, asked, unfinished, counting, json)


def _conduct(
    place: ServiceFolder,
    asked: RunSettings,
    unfinished: bytes | None,
    counting: MetricsOptions,
    json: bool,
) -> None:
    from hdpmf.untrusted.service.metrics import Metrics
    from hdpmf.untrusted.service.service import Service

    metrics = Metrics()
    if unfinished is None:
        Service(place).check(asked)  # before anything is opened
        _warn(place, asked)
    with (
        place.serving(),
        run_log(metrics, counting.log_format) as log,
        counting.counted(place, metrics, log),
        open_connections(place, asked) as ways,
    ):
        if unfinished is not None:
            log(
                f"going on with run {unfinished.hex()[:12]} as it was begun; other options are "
                "for a new run"
            )
        service = Service(
            place, ways.devices, servers=ways.servers, metrics=metrics, admit=ways.admit, log=log
        )
        run = service.begin(asked) if unfinished is None else unfinished
        if ways.servers is not None and unfinished is None:
            service.publish()
        outcome = service.conduct(run)
        report(place, outcome.summary, outcome.statement.lines(), json)


def _leave(place: ServiceFolder, asked: RunSettings, json: bool) -> None:
    from hdpmf.untrusted.service.requests import ask_for_run
    from hdpmf.untrusted.service.service import Service

    Service(place).check(asked)
    _warn(place, asked)
    run = ask_for_run(place, asked)
    if json:
        print_json({"run": run, "requested": True})
    else:
        print_lines(f"run {run[:12]} is asked for; the process that serves {place.path} begins it")


def _warn(place: ServiceFolder, asked: RunSettings) -> None:
    """Say at once what devices will say whose owners have changed nothing, by the very rules
    that these follow.
    """
    from hdpmf.private.device.policy import Policy

    users, usual = place.enrolled.users.values(), Policy()
    terms = asked.terms("-", users)
    try:
        usual.check(terms)
        usual.check_roster(terms, list(users))
    except PrivacyError as error:
        note(
            f"Warning: by default devices refuse this run: {error}. Only those take part "
            "whose owners have allowed it "
            "(hdpmf device policy STORE --set FILE). Otherwise give it up, and ask for "
            "what devices allow: other "
            "options, more devices, or sums by two servers (hdpmf recommender servers)"
        )


def _give_up(place: ServiceFolder, unfinished: bytes | None, served: bool, json: bool) -> None:
    from hdpmf.untrusted.service.requests import ask_to_give_up
    from hdpmf.untrusted.service.service import Service

    if unfinished is None:
        raise ConfigError("there is no unfinished run to give up")
    if served:
        ask_to_give_up(place, unfinished)
    else:
        Service(place).give_up(unfinished)
    if json:
        print_json({"run": unfinished.hex(), "given_up": not served, "requested": served})
        return
    who = "is being given up by the process that serves it" if served else "is given up"
    print_lines(f"run {unfinished.hex()[:12]} {who}; what devices have paid for it stays paid")


def _askable(enrolled: Enrolled, view: str) -> int:
    if len(enrolled) == 0:
        raise ConfigError(
            "no device is enrolled yet: hdpmf recommender enroll FOLDER CARD.json ..."
        )
    return len(enrolled) if view == "sums" else enrolled.count_users(enrolled.users)


def report(
    place: ServiceFolder, summary: dict[str, Any], statement: tuple[str, ...], json: bool
) -> None:
    """Say how a run ended."""
    if json:
        print_json({**summary, "model": str(place.path / "model")})
        return
    print_lines(
        _what_ran(summary),
        f"model (nothing private is in it): {place.path / 'model'}",
        *_lists_lines(place, summary),
        *statement,
    )


def _what_ran(summary: dict[str, Any]) -> str:
    if summary["devices"] is None:
        tasks = ", ".join(task[:12] for task in summary["tasks"])
        return (
            f"{summary['method']}: {summary['users']} reports summed by two servers (task {tasks})"
        )
    return (
        f"{summary['method']}: {summary['rounds']} rounds with {summary['devices']} "
        f"devices ({summary['users']} users) "
        f"in {summary['seconds']:.1f} s; {sum(summary['refusals'].values())} refusals"
    )


def _lists_lines(place: ServiceFolder, summary: dict[str, Any]) -> list[str]:
    lists = summary.get("lists")
    if lists is None:
        return []
    release = place.path / "runs" / summary["run"] / "ratings.release"
    return [
        f"model for lists: {lists['kind']}, {lists['bytes']:,} bytes, SHA-256 {lists['sha256']}",
        f"what devices sent, as a data set (hdpmf privacy release): {release}",
    ]


class _Terminated(BaseException):
    """SIGTERM came."""


@with_option_groups
def serve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    counting: MetricsOptions,
    json: Json = False,
) -> None:
    """Serve until SIGTERM: hand out the newest model, go on with an unfinished run, begin runs that
    are asked for.

    Runs are asked for by hand (hdpmf recommender run) or by the schedule in config.toml. A start
    begins none by itself.
    """
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.lifecycle import Lifecycle
    from hdpmf.untrusted.service.metrics import Metrics

    place, metrics = ServiceFolder(folder), Metrics()

    def ended(outcome: RunOutcome) -> None:
        report(place, outcome.summary, outcome.statement.lines(), json)

    with (
        _until_terminated(),
        place.serving(),
        run_log(metrics, counting.log_format) as log,
        counting.counted(place, metrics, log),
    ):
        Lifecycle(
            place,
            lambda asked: open_connections(place, asked),
            metrics=metrics,
            report=ended,
            log=log,
        ).live()


@contextmanager
def _until_terminated() -> Iterator[None]:
    """SIGTERM ends what is inside like a kill, which everything survives, only that all is
    closed in order.
    """

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _Terminated:
        note("stopped; what is under way goes on at the next start")
    finally:
        signal.signal(signal.SIGTERM, before)
