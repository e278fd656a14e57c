"""``hdpmf aggregator``: set up and run one of the two servers that sum reports."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import Json, read_bytes, run_option
from hdpmf.cli.output import print_json, print_lines, print_table

if TYPE_CHECKING:
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder


def serve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The server's folder.")],
    workers: Annotated[
        int,
        run_option(
            "--workers", metavar="N", min=1, help="Processes; more than one need PostgreSQL."
        ),
    ] = 1,
    json: Json = False,
) -> None:
    """Run the server until it is told to stop (SIGTERM, or Ctrl-C). Its log goes to stderr, a
    line of JSON each.
    """
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder
    from hdpmf.untrusted.aggregator.prefork import serve as run

    place = AggregatorFolder(folder)
    config = place.config

    def ready() -> None:
        listening = f"{config.host}:{config.port}"
        if json:
            print_json(
                {"role": config.role, "url": config.url, "listening": listening, "workers": workers}
            )
        else:
            print_lines(
                f"the {config.role} of {config.organisation} listens on {listening}, for "
                f"{config.url}"
            )

    run(place, workers, ready)


app = typer.Typer(
    help="One of the two servers that sum devices' reports: set it up, pair it, run it."
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The server's folder.")]


class RoleName(StrEnum):
    """Devices upload to the leader; the helper works for it."""

    LEADER = "leader"
    HELPER = "helper"


@app.command()
def init(
    folder: Folder,
    role: Annotated[RoleName, typer.Option("--role", help="Devices upload to the leader.")],
    organisation: Annotated[
        str, typer.Option("--organisation", metavar="NAME", help="Who runs it.")
    ],
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="HOST", help="Host name or address under which everybody reaches it."
        ),
    ],
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = 9444,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    database: Annotated[
        str,
        typer.Option(
            "--database",
            metavar="URL",
            help="Where reports are kept: postgresql+psycopg://USER@HOST/NAME, or sqlite:///FILE.",
            show_default="a SQLite file in FOLDER",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Set up a server: its keys, its certificate, and the card that it gives to everybody."""
    from hdpmf.untrusted.aggregator.config import AggregatorConfig
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

    config = AggregatorConfig(
        role=role.value,
        organisation=organisation,
        name=name,
        host=host,
        port=port,
        database=database,
    )
    made = AggregatorFolder.create(folder, config)
    if json:
        print_json(_server(made))
        return
    print_lines(
        f"the {role.value} of {organisation} is set up in {folder}; everybody reaches "
        f"it at {config.url}",
        f"give its card to the other organisation: {folder / 'card.json'} (there is no "
        "secret in it)",
        f"and pin theirs: hdpmf aggregator pair {folder} PARTNER-CARD.json",
    )


@app.command()
def pair(
    folder: Folder,
    card: Annotated[
        Path, typer.Argument(metavar="PARTNER-CARD", help="The other server's card.json.")
    ],
    json: Json = False,
) -> None:
    """Pin the other organisation's server. People at both compare the digest by telephone."""
    from hdpmf.common.protocol.servers import read_server
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

    place = AggregatorFolder(folder)
    servers = place.pair(read_server(read_bytes(card, "the other server's card")))
    path = folder / "servers.json"
    if json:
        print_json({**_server(place), "servers": str(path)})
        return
    print_lines(
        f"leader: {servers.leader.organisation}, {servers.leader.url}",
        f"helper: {servers.helper.organisation}, {servers.helper.url}",
        f"digest: {servers.digest}",
        "compare it with the other organisation; if it differs, one of the two cards "
        "is not the real one",
        f"for recommenders and devices: {path}",
    )


@app.command()
def admit(
    folder: Folder,
    cards: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[CARD]...", help="Cards that recommenders made for servers."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove",
            metavar="NAME",
            help="Take a recommender off, by name or identity; repeatable.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Let recommenders have sums made here, or no longer; without either, show who may."""
    from hdpmf.common.protocol.servers import read_collector
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

    place = AggregatorFolder(folder)
    new = [read_collector(read_bytes(path, "a recommender's card")) for path in cards or ()]
    for name in remove or ():
        place.dismiss(name)
    for card in new:
        place.admit(card)
    if json:
        print_json({"collectors": _collectors(place)})
        return
    _show_collectors(place)


@app.command()
def status(folder: Folder, json: Json = False) -> None:
    """Show the server, its partner, its recommenders and its tasks."""
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

    place = AggregatorFolder(folder)
    if json:
        print_json({**_server(place), "collectors": _collectors(place), "tasks": _tasks(place)})
        return
    servers = place.servers
    print_lines(f"{place.config.role} of {place.config.organisation}, {place.config.url}")
    if servers is None:
        print_lines(f"no partner yet; pin one: hdpmf aggregator pair {folder} PARTNER-CARD.json")
    else:
        print_lines(
            f"partner: {place.partner.organisation}, {place.partner.url}",
            f"digest: {servers.digest}",
        )
    _show_collectors(place)
    tasks = _tasks(place)
    if tasks:
        names = ("task", "recommender", "ends", "waiting", "counted", "rejected", "batches")
        rows = [(task["task"][:16], *(str(task[name]) for name in names[1:])) for task in tasks]
        print_table(names, rows, numeric=names[3:])


app.command()(serve)


def _server(place: AggregatorFolder) -> dict[str, Any]:
    servers = place.servers
    card = place.card
    return {
        "folder": str(place.path),
        "role": place.config.role,
        "organisation": card.organisation,
        "url": card.url,
        "identity": card.identity,
        "card": str(place.path / "card.json"),
        "partner": None if servers is None else place.partner.organisation,
        "digest": None if servers is None else servers.digest,
    }


def _tasks(place: AggregatorFolder) -> list[dict[str, Any]]:
    """What the server has in its database; nothing if it was never run."""
    from datetime import UTC, datetime

    from hdpmf.untrusted.aggregator.prefork import open_server

    if place.servers is None or (
        not place.config.database and not (place.path / "data.sqlite").exists()
    ):
        return []
    with open_server(place) as engine:
        return [
            {
                "task": found.hex(),
                "recommender": (task := engine.task(found).task).collector.organisation,
                "ends": datetime.fromtimestamp(task.end, UTC).isoformat(timespec="minutes"),
                "waiting": (counts := engine.counts(found)).waiting,
                "counted": counts.counted,
                "rejected": sum(counts.rejected.values()),
                "batches": counts.batches,
            }
            for found in engine.task_ids()
        ]


def _collectors(place: AggregatorFolder) -> list[dict[str, str]]:
    return [
        {"organisation": card.organisation, "identity": card.identity}
        for card in place.collectors.values()
    ]


def _show_collectors(place: AggregatorFolder) -> None:
    held = place.collectors.values()
    if not held:
        print_lines(
            f"no recommender may have sums; admit one: hdpmf aggregator admit {place.path} "
            "CARD.json"
        )
        return
    print_table(
        ("recommender", "identity"), [(card.organisation, card.identity[:16]) for card in held]
    )
