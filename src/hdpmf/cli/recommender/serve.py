"""``hdpmf recommender serve``: run it, or go on with a run that was killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.recommender.telling import telling
from hdpmf.cli.recommender.two_servers import public_files, seconds, two_servers, wait_forever
from hdpmf.cli.shared.federation import FederatedOptions, Method, Minimum, RunOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json, run_option
from hdpmf.cli.shared.output import note, print_json, print_lines
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.service.enrolment import Enrolled
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.service import Service
    from hdpmf.service.settings import RunSettings
    from hdpmf.transport.flower.recommender import FlowerRecommender
    from hdpmf.transport.two_servers import TwoServers


@dataclass(frozen=True)
class ServingOptions:
    """What is done beside the run, and after it."""

    metrics_port: Annotated[
        int | None,
        run_option("--metrics-port", metavar="PORT", help="Serve counts for Prometheus there, on this machine only."),
    ] = None
    metrics_host: Annotated[str, run_option("--metrics-host", help="Or on this address.")] = "127.0.0.1"
    log_format: Annotated[
        str, run_option("--log-format", metavar="FORMAT", help="What it says while it runs: text, or json, in lines.")
    ] = "text"
    stay: Annotated[
        bool,
        run_option(
            "--stay", help="When it is done, stay and hand the model to devices that come for it, until interrupted."
        ),
    ] = False
    give_up: Annotated[bool, run_option("--give-up", help="Give the run up that was not finished.")] = False


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
            help="With two servers: what times of reports are rounded to, and a period begins at a multiple of.",
            show_default="the whole period, so that they tell nothing",
        ),
    ] = None

    def settings(self) -> dict[str, int]:
        """What was given, for the run's settings."""
        given = {"period": self.period, "precision": self.precision}
        return {name: seconds(text) for name, text in given.items() if text is not None}


@grouped
def serve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    run_options: RunOptions,
    options: FederatedOptions,
    serving: ServingOptions,
    periods: PeriodOptions,
    method: Method = "hdp-sum",
    minimum: Minimum = None,
    json: Json = False,
) -> None:
    """Run the recommender once: a new run, or the one that was not finished, from where it was.

    Between machines, sums by two servers are recommended: pin them first (hdpmf recommender servers).
    """
    from hdpmf.service.collector_keys import pinned_servers
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.metrics import Metrics
    from hdpmf.service.prometheus import endpoint
    from hdpmf.service.service import Service
    from hdpmf.service.watching import look

    place = ServiceFolder(folder)
    metrics = Metrics()
    unfinished = place.unfinished()
    if serving.give_up:
        if unfinished is None:
            raise ConfigError("there is no unfinished run to give up")
        Service(place).give_up(unfinished)
        _say_given_up(unfinished, json)
        return
    settings = None
    if unfinished is None:
        pinned = pinned_servers(folder) is not None
        askable = _askable(place.enrolled, run_options.view(method, two_servers=pinned))
        settings = run_options.settings(method, options, askable, minimum, two_servers=pinned, **periods.settings())
    asked = settings if unfinished is None else place.record(unfinished).settings
    if asked is None:
        raise ConfigError("there is nothing to run")
    port, host = serving.metrics_port, serving.metrics_host
    counting = nullcontext() if port is None else endpoint(metrics, port, host, lambda: look(place))
    with place.serving(), counting as port, telling(metrics, serving.log_format) as log, _ways(place, asked) as ways:
        if port is not None:
            log(f"counts for Prometheus: http://{host}:{port}/metrics")
        if unfinished is not None:
            log(f"going on with run {unfinished.hex()[:12]} as it was begun; other options are for a new run")
        for alert in look(place).alerts:
            log(f"{alert.words}; to do: {alert.todo}")
        service = Service(place, ways.devices, servers=ways.servers, metrics=metrics, log=log)
        run = service.begin(asked) if unfinished is None else unfinished
        if ways.servers is not None and unfinished is None:
            service.publish()
        outcome = service.conduct(run)
        _report(place, outcome.summary, outcome.statement.lines(), json)
        if serving.stay:
            ways.stay(service)


@dataclass(frozen=True)
class _Ways:
    """How the recommender reaches others: devices, or two servers and whoever reads its public files."""

    devices: FlowerRecommender | None = None
    servers: TwoServers | None = None

    def stay(self, service: Service) -> None:
        """Hand out the result until interrupted."""
        devices = self.devices
        if devices is None:
            wait_forever(service.metrics)
        else:
            service.stay(lambda card: devices.admit(card.identity, card.node))


@contextmanager
def _ways(place: ServiceFolder, asked: RunSettings) -> Iterator[_Ways]:
    if asked.view != "two-servers":
        with _transport(place, asked) as transport:
            yield _Ways(devices=transport)
        return
    with two_servers(place) as servers, public_files(place):
        yield _Ways(servers=servers)


@contextmanager
def _transport(place: ServiceFolder, asked: RunSettings) -> Iterator[FlowerRecommender]:
    from hdpmf.transport.flower.recommender import FlowerRecommender

    config, enrolled = place.config, place.enrolled
    most = asked.longest_reply(len(place.catalogue.ids), enrolled.users.values())
    with FlowerRecommender(
        place.transport_folder,
        host=config.host,
        port=config.port,
        names=config.names,
        roster={card.identity: card.node for card in enrolled.cards},
        max_reply=most,
    ) as transport:
        note(f"listening on {transport.address}")
        yield transport


def _askable(enrolled: Enrolled, view: str) -> int:
    if len(enrolled) == 0:
        raise ConfigError("no device is enrolled yet: hdpmf recommender enroll FOLDER CARD.json ...")
    return len(enrolled) if view == "sums" else enrolled.count_users(enrolled.users)


def _say_given_up(run: bytes, json: bool) -> None:
    if json:
        print_json({"run": run.hex(), "given_up": True})
    else:
        print_lines(f"run {run.hex()[:12]} is given up; what devices have paid for it stays paid")


def _report(place: ServiceFolder, summary: dict[str, Any], statement: tuple[str, ...], json: bool) -> None:
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
        return f"{summary['method']}: {summary['users']} reports summed by two servers (task {tasks})"
    return (
        f"{summary['method']}: {summary['rounds']} rounds with {summary['devices']} devices ({summary['users']} users) "
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
