"""``hdpmf recommender servers``, and the ways of a run by two servers: to them, and to whoever reads public files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.shared.files import read_bytes
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import note, print_json, print_lines
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.transport.two_servers import TwoServers


def servers(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    pair: Annotated[
        Path | None,
        typer.Argument(metavar="[SERVERS.json]", help="The two servers (hdpmf aggregator pair writes it)."),
    ] = None,
    new_servers: Annotated[
        bool, typer.Option("--new-servers", help="Take them although another pair is pinned.")
    ] = False,
    json: Json = False,
) -> None:
    """Pin the two servers that make sums; without a file, show them. People compare their digest."""
    from hdpmf.protocol.servers import Servers
    from hdpmf.service.collector_keys import CARD, pin_servers, pinned_servers
    from hdpmf.service.folder import ServiceFolder

    service = ServiceFolder(folder)
    if pair is not None:
        if new_servers and service.unfinished() is not None:
            raise ConfigError("a run is under way with the servers that are pinned; let it end, or give it up, first")
        given = Servers.from_json(read_bytes(pair))
        pin_servers(folder, service.config.name, given, replace=new_servers)
    elif new_servers:
        raise ConfigError("--new-servers needs the file that names them")
    pinned = pinned_servers(folder)
    if pinned is None:
        raise ConfigError("no pair of servers is pinned yet; give the file that hdpmf aggregator pair wrote")
    card = folder / CARD
    if json:
        both = {
            role: {"organisation": server.organisation, "url": server.url}
            for role, server in (("leader", pinned.leader), ("helper", pinned.helper))
        }
        print_json({**both, "digest": pinned.digest, "card": str(card)})
        return
    print_lines(
        f"leader: {pinned.leader.organisation}, {pinned.leader.url}",
        f"helper: {pinned.helper.organisation}, {pinned.helper.url}",
        f"digest: {pinned.digest}",
        f"both operators admit this recommender by its card: hdpmf aggregator admit FOLDER {card}",
        "devices are to pin the same pair: compare the digest in a way that does not go through the recommender",
    )


@contextmanager
def public_files(place: ServiceFolder) -> Iterator[None]:
    """Serve the public files while inside."""
    from hdpmf.service.website import served

    with served(place) as address:
        note(f"public files for devices: {address}/index.json")
        yield


@contextmanager
def two_servers(place: ServiceFolder) -> Iterator[TwoServers]:
    """The way to the two servers that are pinned."""
    from hdpmf.service.collector_keys import load_keys, pinned_servers
    from hdpmf.transport.two_servers import TwoServers

    pinned = pinned_servers(place.path)
    if pinned is None:
        raise ConfigError(
            "no pair of servers is pinned yet: hdpmf recommender servers FOLDER servers.json; or sum by masks: "
            "--sums masks"
        )
    with TwoServers(pinned, load_keys(place.path, place.config.name).party) as door:
        yield door


def task_lines(run: dict[str, Any]) -> list[str]:
    """The tasks of a run, a line each."""
    return [
        f"task {task['id'][:12]} of run {run['run'][:12]}: {_date(task['begin'])} to {_date(task['end'])}, "
        f"{task['state']}"
        for task in run["tasks"]
    ]


def _date(when: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))
