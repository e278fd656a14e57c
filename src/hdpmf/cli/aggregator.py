"""``hdpmf aggregator``: set up and run one of the two servers that sum reports."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import (
    SameHost,
    argument,
    command,
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
    port: Annotated[int, option("Port to listen on.")] = 9444,
    host: Annotated[str, option("Address to listen on.")] = "127.0.0.1",
    database: Annotated[
        str,
        option(
            "Where reports are kept: postgresql+psycopg://USER@HOST/NAME, or sqlite:///FILE.",
            "URL",
            default="a SQLite file in FOLDER",
        ),
    ] = "",
    shared_keys: Annotated[
        bool,
        option("Keep keys that change in the database, sealed: for a server on several hosts."),
    ] = False,
) -> Result:
    """Set up a server: its keys, its certificate, and the card that it gives to everybody."""
    from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder, KeyRules

    config = AggregatorConfig(
        role=role.value,
        organisation=organisation,
        name=name,
        host=host,
        port=port,
        database=database,
        keys=KeyRules(shared=shared_keys),
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
    tasks, releases, forgotten = _database(server)

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
        yield f"released batches and tasks given up: {releases}"
        if forgotten:
            yield (
                f"WARNING: the database is an old copy. It has forgotten {forgotten} releases; "
                "they stay closed. Stop the server and bring back the newest copy"
            )
        if tasks:
            names = ("task", "recommender", "ends", "waiting", "counted", "rejected", "batches")
            rows = [(task["task"][:16], *(str(task[name]) for name in names[1:])) for task in tasks]
            yield Table(names, rows, numeric=names[3:])

    fields = {
        **_server_fields(server),
        "keys": _keys(server),
        "collectors": _collectors(server),
        "releases": releases,
        "forgotten_releases": forgotten,
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
def serve(
    folder: Folder,
    workers: Annotated[
        int, run_option("Processes; more than one need PostgreSQL.", "N", min=1)
    ] = 1,
) -> None:
    """Run the server until SIGTERM or Ctrl-C. It logs to stderr, one line of JSON per event."""
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder
    from hdpmf.untrusted.aggregator.prefork import serve as run

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

    rotates = server.hpke.rotates
    return [
        {"id": found, "made": time_text(made) if rotates else None}
        for found, made in server.hpke.ages
    ]


def _key_line(server: AggregatorFolder) -> str:
    keys = _keys(server)
    if not server.hpke.rotates:
        return "one key for devices, on the card of version 1.0.0: it never changes"
    older = "none older" if len(keys) == 1 else f"{len(keys) - 1} older, for reports under way"
    return f"key for devices: number {keys[0]['id']}, made {keys[0]['made']}; {older}"


def _database(server: AggregatorFolder) -> tuple[list[dict[str, Any]], int, int]:
    """Return the tasks in the server's database; how much was released, and forgotten of that."""
    from datetime import UTC, datetime

    from hdpmf.untrusted.aggregator.prefork import open_server

    has_database = server.config.database or (server.path / "data.sqlite").exists()
    if server.servers is None or not has_database:
        return [], 0, 0
    rows = []
    with open_server(server) as engine:
        releases = engine.releases()
        forgotten = engine.forgotten_releases()
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
    return rows, releases, forgotten


def _collectors(server: AggregatorFolder) -> list[dict[str, str]]:
    return [
        {"organisation": card.organisation, "identity": card.identity}
        for card in server.collectors.values()
    ]


def _collector_block(server: AggregatorFolder) -> Block:
    cards = server.collectors.values()
    if not cards:
        return (
            f"no recommender may have sums; admit one: hdpmf aggregator admit {server.path} "
            "CARD.json"
        )
    rows = [(card.organisation, card.identity[:16]) for card in cards]
    return Table(("recommender", "identity"), rows)
