"""``hdpmf aggregator``: set up and run one of the two servers that sum reports."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options import (
    BehindProxy,
    Listen,
    SameHost,
    argument,
    command,
    host_and_port,
    option,
    read_bytes,
    run_option,
    warn_about_servers,
)
from hdpmf.cli.output import Block, Result, Table, emit

if TYPE_CHECKING:
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

Folder = Annotated[Path, argument("The server's folder.", "FOLDER")]


class RoleName(StrEnum):
    """The two roles: devices upload to the leader, and the helper works for it."""

    LEADER = "leader"
    HELPER = "helper"


@command
def init(
    folder: Folder,
    role: Annotated[RoleName, option("Devices upload to the leader.")],
    organisation: Annotated[str, option("Who runs it.", "NAME")],
    name: Annotated[str, option("Host name or address under which everybody reaches it.", "HOST")],
    listen: Listen = "127.0.0.1:9444",
    proxy: BehindProxy = False,
    database: Annotated[
        str,
        option(
            "Where reports are kept: postgresql+psycopg://USER@HOST/NAME, or sqlite:///FILE.",
            "URL",
            default="a SQLite file in FOLDER",
        ),
    ] = "",
) -> Result:
    """Set up a server: its keys, and the card that it gives to everybody."""
    from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder

    host, port = host_and_port(listen)
    config = AggregatorConfig(
        role=role.value,
        organisation=organisation,
        name=name,
        host=host,
        port=port,
        proxy=proxy,
        database=database,
    )
    server = AggregatorFolder.create(folder, config)
    text = [
        f"the {role.value} of {organisation} is set up in {folder}; everybody reaches "
        f"it at {config.url}",
        f"give its card to the other organisation: {folder / 'card.json'} (there is no "
        "secret in it)",
        f"and pin theirs: hdpmf aggregator pair {folder} PARTNER-CARD.json",
    ]
    return Result(_server_fields(server), text)


@command
def pair(
    folder: Folder,
    card: Annotated[Path, argument("The other server's card.json.", "PARTNER-CARD")],
    same_host: SameHost = False,
) -> Result:
    """Pin the other organisation's server. People at both compare the digest by telephone."""
    from hdpmf.common.protocol.servers import read_server
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

    server = AggregatorFolder(folder)
    given = read_server(read_bytes(card, "the other server's card"))
    servers = server.pair(given, same_host=same_host)
    warn_about_servers(servers)
    path = folder / "servers.json"
    text = [
        f"leader: {servers.leader.organisation}, {servers.leader.url}",
        f"helper: {servers.helper.organisation}, {servers.helper.url}",
        f"digest: {servers.digest}",
        "compare it with the other organisation; if it differs, one of the two cards "
        "is not the real one",
        f"for recommenders and devices: {path}",
    ]
    return Result({**_server_fields(server), "servers": str(path)}, text)


@command
def admit(
    folder: Folder,
    cards: Annotated[
        list[Path] | None, argument("Cards that recommenders made for servers.", "[CARD]...")
    ] = None,
    remove: Annotated[
        list[str] | None, option("Remove a recommender, by name or identity; repeatable.", "NAME")
    ] = None,
) -> Result:
    """Admit recommenders, or remove them; without either, list them."""
    from hdpmf.common.protocol.servers import read_collector
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

    server = AggregatorFolder(folder)
    new = [read_collector(read_bytes(path, "a recommender's card")) for path in cards or ()]
    for name in remove or ():
        server.dismiss(name)
    for card in new:
        server.admit(card)
    return Result({"collectors": _collectors(server)}, [_collector_block(server)])


@command
def status(folder: Folder) -> Result:
    """Show the server, its partner, its recommenders and its tasks."""
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

    server = AggregatorFolder(folder)
    epoch, tasks = _database(server)

    def text() -> Iterator[Block]:
        config = server.config
        yield f"{config.role} of {config.organisation}, {config.url}"
        if server.servers is None:
            yield f"no partner yet; pin one: hdpmf aggregator pair {folder} PARTNER-CARD.json"
        else:
            yield f"partner: {server.partner.organisation}, {server.partner.url}"
            yield f"digest: {server.servers.digest}"
        yield _key_line(server)
        yield _collector_block(server)
        if epoch:
            yield f"epoch: {epoch}"
        if tasks:
            names = ("task", "recommender", "ends", "waiting", "counted", "rejected", "batches")
            rows = [(task["task"][:16], *(str(task[name]) for name in names[1:])) for task in tasks]
            yield Table(names, rows, numeric=names[3:])

    fields = {
        **_server_fields(server),
        "keys": _keys(server),
        "collectors": _collectors(server),
        "epoch": epoch,
        "tasks": tasks,
    }
    return Result(fields, text())


@command
def rotate_keys(
    folder: Folder,
    erase: Annotated[
        bool,
        option(
            "Erase all older keys at once, for keys that may be stolen. Reports that wait for them "
            "are lost; those that have not arrived are encrypted again."
        ),
    ] = False,
) -> Result:
    """Make a new key for devices to encrypt to. A server does so by itself every week.

    It counts at once, also while the server runs. Older keys are erased when no open task needs
    them any more.
    """
    import time

    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

    server = AggregatorFolder(folder)
    server.hpke.rotate(time.time(), erase=erase)
    return Result({"keys": _keys(server)}, [_key_line(server)])


@command
def epoch(folder: Folder) -> Result:
    """Begin a new epoch, after a restore of the database. It ends all open tasks at both servers.

    A restored database has forgotten what was counted and released since. What devices sent in the
    tasks that end stays paid.
    """
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder
    from hdpmf.untrusted.aggregator.serve import open_server

    with open_server(AggregatorFolder(folder), restored=True) as engine:
        ended = engine.begin_epoch()
        begun = engine.epoch
    text = [
        f"epoch {begun} has begun; open tasks that ended: {ended}",
        "the other server ends them, too, as soon as it hears of it; recommenders make new ones",
    ]
    return Result({"epoch": begun, "ended_tasks": ended}, text)


@command
def serve(
    folder: Folder,
    workers: Annotated[
        int, run_option("Processes; more than one need PostgreSQL.", "N", min=1)
    ] = 1,
) -> None:
    """Run the server until SIGTERM or Ctrl-C. It logs to stderr, one line of JSON per event."""
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder
    from hdpmf.untrusted.aggregator.serve import serve as run

    server = AggregatorFolder(folder)
    config = server.config
    listening = f"{config.host}:{config.port}"
    ready = Result(
        {"role": config.role, "url": config.url, "listening": listening, "workers": workers},
        [f"the {config.role} of {config.organisation} listens on {listening}, for {config.url}"],
    )
    run(server, workers, lambda: emit(ready))


def _server_fields(server: AggregatorFolder) -> dict[str, Any]:
    servers = server.servers
    card = server.card
    return {
        "folder": str(server.path),
        "role": server.config.role,
        "organisation": card.organisation,
        "url": card.url,
        "identity": card.identity,
        "card": str(server.path / "card.json"),
        "partner": None if servers is None else server.partner.organisation,
        "digest": None if servers is None else servers.digest,
    }


def _keys(server: AggregatorFolder) -> list[dict[str, Any]]:
    """Return the HPKE keys that are not erased, newest first."""
    from hdpmf.common.protocol.key_list import time_text

    return [{"id": found, "made": time_text(made)} for found, made in server.hpke.ages]


def _key_line(server: AggregatorFolder) -> str:
    keys = _keys(server)
    older = "none older" if len(keys) == 1 else f"{len(keys) - 1} older, for reports under way"
    return f"key for devices: number {keys[0]['id']}, made {keys[0]['made']}; {older}"


def _database(server: AggregatorFolder) -> tuple[int | None, list[dict[str, Any]]]:
    """Return the epoch of the server's database and its tasks."""
    from datetime import UTC, datetime

    from hdpmf.untrusted.aggregator.serve import open_server

    has_database = server.config.database or (server.path / "data.sqlite").exists()
    if server.servers is None or not has_database:
        return None, []
    rows = []
    with open_server(server) as engine:
        epoch = engine.epoch
        for found in engine.task_ids():
            task = engine.task(found).document
            counts = engine.counts(found)
            rows.append(
                {
                    "task": found.hex(),
                    "recommender": task.collector.organisation,
                    "ends": datetime.fromtimestamp(task.end, UTC).isoformat(timespec="minutes"),
                    "waiting": counts.waiting,
                    "counted": counts.counted,
                    "rejected": sum(counts.rejected.values()),
                    "batches": counts.batches,
                }
            )
    return epoch, rows


def _collectors(server: AggregatorFolder) -> list[dict[str, str]]:
    return [
        {"organisation": card.organisation, "identity": card.identity, "digest": card.digest}
        for card in server.collectors.values()
    ]


def _collector_block(server: AggregatorFolder) -> Block:
    cards = server.collectors.values()
    if not cards:
        return (
            f"no recommender may have sums; admit one: hdpmf aggregator admit {server.path} "
            "CARD.json"
        )
    rows = [(card.organisation, card.digest) for card in cards]
    return Table(("recommender", "digest of its card"), rows)
