"""``hdpmf recommender``: set it up, enrol devices, pin its servers, and watch it."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options import (
    BehindProxy,
    Listen,
    RecommenderFolder,
    SameHost,
    Scale,
    argument,
    command,
    host_and_port,
    option,
    read_bytes,
    warn_about_servers,
)
from hdpmf.cli.output import Block, Result, Table
from hdpmf.errors import ConfigError, needs
from hdpmf.untrusted.service.folder import UNNAMED

if TYPE_CHECKING:
    from hdpmf.untrusted.service.folder import ServiceFolder


@command
def init(
    folder: RecommenderFolder,
    items: Annotated[
        Path,
        option(
            "The items: CSV, TSV or Parquet with ids and, if known, title, genres, year.", "FILE"
        ),
    ],
    name: Annotated[
        str, option("What people know it by: in invitations, before they agree to anything.")
    ] = UNNAMED,
    scale: Scale = None,
    step: Annotated[float, option("Between neighbouring ratings.", "STEP")] = 1.0,
    listen: Listen = "127.0.0.1:9443",
    reach: Annotated[
        list[str] | None,
        option(
            "A host name or address under which devices reach it; repeatable.",
            "NAME",
            default="localhost, 127.0.0.1",
        ),
    ] = None,
    proxy: BehindProxy = False,
) -> Result:
    """Set up a recommender: its items, its rating scale, where it is reached."""
    from hdpmf.common.base.names import claimed_name
    from hdpmf.common.data import RatingScale
    from hdpmf.common.data.items import read_item_table
    from hdpmf.common.net.certificates import ensure_certificates
    from hdpmf.common.protocol.catalogue import catalogue_table
    from hdpmf.untrusted.service.folder import Config, ServiceFolder

    name = claimed_name(name)
    found, (low, high) = read_item_table(items), scale or (1.0, 5.0)
    table = catalogue_table(found.index, RatingScale(low, high, step), found)
    names = tuple(reach or ("localhost", "127.0.0.1"))

    def make_certificates(made: ServiceFolder) -> None:
        if not proxy:
            ensure_certificates(made.tls_folder, names)

    host, port = host_and_port(listen)
    config = Config(name=name, host=host, port=port, names=names, proxy=proxy)
    service = ServiceFolder.create(folder, config, table, make_certificates)
    address = service.config.address
    fields = {
        "folder": str(folder),
        "name": name,
        "items": len(table.ids),
        "scale": [table.scale_low, table.scale_high, table.scale_step],
        "fingerprint": service.known.fingerprint,
        "address": address,
    }
    text = [
        f"{name} is set up in {folder}: {len(table.ids):,} items rated "
        f"{table.scale_low:g} to {table.scale_high:g}",
        f"people reach it at {address}",
        f"pin its two servers: hdpmf recommender servers {folder} SERVERS.json",
    ]
    return Result(fields, text)


def _proposal(people: int) -> dict[str, Any]:
    """Return what a run should ask of a person, and how many such runs a life allows."""
    from hdpmf.common.privacy.accounting.person import LIFE_EPSILON, proposed_epsilon, rho_of

    epsilon = proposed_epsilon(people)
    runs = math.floor(rho_of(LIFE_EPSILON) / rho_of(epsilon))
    return {"epsilon": epsilon, "life": LIFE_EPSILON, "runs": runs}


@command
def items(
    folder: RecommenderFolder,
    add: Annotated[
        Path | None,
        option(
            "New items: CSV, TSV or Parquet with ids and, if known, title, genres, year.", "FILE"
        ),
    ] = None,
    retire: Annotated[
        list[str] | None, option("Recommend an item no more, nor ask about it; repeatable.", "ID")
    ] = None,
) -> Result:
    """Add items to the catalogue or retire some, as its next version; or show the newest one.

    What is said of an item never changes, and a retired one stays retired. Versions are signed, and
    each has the digest of the one before: devices take what follows from theirs and refuse
    everything else. The next run is about the new version; one that is under way keeps its own.
    """
    from hdpmf.common.data.items import read_item_table
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.keys import change_items

    service = ServiceFolder(folder)
    if add is not None or retire:
        change_items(service, None if add is None else read_item_table(add), retire or ())
    fields = _catalogue_fields(service)
    text = [
        _catalogue_line(fields),
        f"digest: {fields['digest']} (devices take what follows from the one they know)",
    ]
    shown = service.current_items.number
    notes = []
    if shown != fields["version"]:
        notes.append(
            f"A run is under way with version {shown}; devices see version {fields['version']} "
            "after it."
        )
    return Result({**fields, "shown": shown}, text, notes=notes)


@command
def status(folder: RecommenderFolder) -> Result:
    """Show what the recommender is doing, its participants, its runs and its alerts."""
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.health import inspect_folder, run_facts

    service = ServiceFolder(folder)
    model = service.path / "model"
    fields = {
        "name": service.config.name,
        "people": service.people,
        "proposal": _proposal(max(service.people, 1)),
        "catalogue": _catalogue_fields(service),
        "runs": [run_facts(service, run) for run in service.runs()],
        "state": service.state(),
        "model": str(model) if model.exists() else None,
        "alerts": [alert.as_dict() for alert in inspect_folder(service).alerts],
    }
    return Result(fields, _status_text(fields))


def _status_text(fields: dict[str, Any]) -> Iterator[Block]:
    proposal = fields["proposal"]
    yield (
        f"{fields['people']:,} people are enrolled; of so many a run should ask epsilon "
        f"{proposal['epsilon']:g} of a person (at delta 1e-5). Devices let {proposal['runs']} such "
        f"runs through in a life of {proposal['life']:g}, by default"
    )
    yield _catalogue_line(fields["catalogue"])
    runs = fields["runs"]
    if runs:
        yield ""
        yield Table(
            ("run", "stage", "enrolled", "reports"),
            [
                (run["run"][:12], run["stage"], str(run["enrolled"]), str(run["reports"]))
                for run in runs
            ],
            numeric=("enrolled", "reports"),
        )
    for run in runs:
        yield from _run_lines(run)
    state = fields["state"]
    if state is not None:
        yield ""
        yield f"last seen doing: {state['stage']}"
    for alert in fields["alerts"]:
        yield ""
        yield f"ALERT ({alert['name']}): {alert['words']}"
        yield f"  to do: {alert['todo']}"


def _run_lines(run: dict[str, Any]) -> Iterator[str]:
    name = run["run"][:12]
    task = run["task"]
    if task is not None:
        begin, end = _date(task["begin"]), _date(task["end"])
        yield f"task {task['id'][:12]} of run {name}: {begin} to {end}"


def _date(when: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))


def _catalogue_fields(service: ServiceFolder) -> dict[str, Any]:

    items = service.items
    return {
        "version": items.number,
        "items": len(items.table.ids),
        "retired": len(items.retired),
        "digest": items.digests[-1].hex(),
    }


def _catalogue_line(catalogue: dict[str, Any]) -> str:
    return (
        f"catalogue: version {catalogue['version']}, {catalogue['items']:,} items, "
        f"{catalogue['retired']:,} retired"
    )


@command
def servers(
    folder: RecommenderFolder,
    pair: Annotated[
        Path | None,
        argument("The two servers (hdpmf aggregator pair writes it).", "[SERVERS.json]"),
    ] = None,
    new_servers: Annotated[bool, option("Take them although another pair is pinned.")] = False,
    same_host: SameHost = False,
) -> Result:
    """Pin the two servers that make sums, or show them. People compare their digest."""
    from hdpmf.common.protocol.servers import Servers, read_collector
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.keys import CARD, pin_servers, pinned_servers

    service = ServiceFolder(folder)
    if pair is not None:
        if new_servers and service.unfinished() is not None:
            raise ConfigError(
                "a run is under way with the servers that are pinned; let it end, or give it "
                "up, first"
            )
        given = Servers.from_json(read_bytes(pair))
        pin_servers(folder, service.config.name, given, replace=new_servers, same_host=same_host)
    elif new_servers or same_host:
        raise ConfigError("--new-servers and --same-host need the file that names the servers")
    pinned = pinned_servers(folder)
    if pinned is None:
        raise ConfigError(
            "no pair of servers is pinned yet; give the file that hdpmf aggregator pair wrote"
        )
    warn_about_servers(pinned)
    card = folder / CARD
    own = read_collector(read_bytes(card, "this recommender's card"))
    both = {"leader": pinned.leader, "helper": pinned.helper}
    fields = {
        **{
            role: {"organisation": server.organisation, "url": server.url}
            for role, server in both.items()
        },
        "digest": pinned.digest,
        "card": str(card),
        "card_digest": own.digest,
    }
    text = [
        *(f"{role}: {server.organisation}, {server.url}" for role, server in both.items()),
        f"digest: {pinned.digest}",
        f"both operators admit this recommender by its card: hdpmf aggregator admit FOLDER {card}",
        f"digest of the card, for them to compare: {own.digest}",
        "devices are to pin the same pair: compare the digest in a way that does not "
        "go through the recommender",
    ]
    return Result(fields, text)


@command
def invite(
    folder: RecommenderFolder,
    number: Annotated[int, option("How many, each for one person.", "N", min=1)] = 1,
    without_secret: Annotated[
        bool, option("One link for everybody, where people enrol by a login or openly.", None)
    ] = False,
    out: Annotated[
        Path | None, option("The links, one in each line; or a picture (.svg) of one.", "FILE")
    ] = None,
) -> Result:
    """Make links by which people take part, with a QR code. Each secret lets one person in, once.

    Who may enrol without one is said in config.toml ([enrolment]).
    """
    from hdpmf.common.base.files import atomic_write
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.participants import KEY, Invitations
    from hdpmf.untrusted.service.publish import PublicFiles

    made = PublicFiles(ServiceFolder(folder)).invite()
    secrets = Invitations(folder / KEY)
    if without_secret and number > 1:
        raise ConfigError("--without-secret makes one link, for everybody")
    links = [made.link("" if without_secret else secrets.make()) for _ in range(number)]
    picture = out is not None and out.suffix == ".svg"
    if picture and number > 1:
        raise ConfigError("a picture is of one link")
    if out is not None:
        data = _picture(links[0]) if picture else "\n".join([*links, ""]).encode()
        atomic_write(out, data, mode=0o600)
    text = [f"{number:,} links: {out}"] if number > 1 and out is not None else links
    if number == 1:
        text = [*_code(links[0]), *text]
    text += [
        f"digest of the pair: {made.servers.digest}; people compare it with {made.servers.names}, "
        "not through you",
    ]
    fields = {
        "links": links,
        "name": made.name or None,
        "address": made.address,
        "digest": made.digest,
        "servers": made.servers.digest,
    }
    return Result(fields, text)


def _picture(link: str) -> bytes:
    """Return the QR code of a link, as SVG."""
    with needs("segno"):
        import segno
    drawn = io.BytesIO()
    segno.make(link).save(drawn, kind="svg", scale=8)
    return drawn.getvalue()


def _code(link: str) -> list[str]:
    """Return the QR code of a link, for a terminal."""
    with needs("segno"):
        import segno
    drawn = io.StringIO()
    segno.make(link).terminal(out=drawn, compact=True)
    return drawn.getvalue().splitlines()
