"""``hdpmf recommender``: set up a recommender, enrol devices, change its items, back it up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import DatasetName, Json, read_bytes
from hdpmf.cli.output import note, print_json, print_lines, print_table
from hdpmf.cli.pages import page
from hdpmf.cli.recommender import run as one_run
from hdpmf.cli.recommender.run import serve
from hdpmf.cli.recommender.status import devices_of, show_roster, status
from hdpmf.cli.recommender.trust import certificates, invite, servers
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.protocol import CatalogueTable
    from hdpmf.untrusted.service.folder import ServiceFolder


def show_items(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    add: Annotated[
        Path | None,
        typer.Option(
            "--add",
            metavar="FILE",
            help="New show_items: CSV, TSV or Parquet with ids and, if known, title, genres, year.",
        ),
    ] = None,
    retire: Annotated[
        list[str] | None,
        typer.Option(
            "--retire",
            metavar="ID",
            help="Recommend an item no more, nor ask about it; repeatable.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Add items at the end of the catalogue or retire some, as its next version; without either,
    show its versions.

    What is said of an item never changes, and a retired one stays retired. Versions are signed, and
    each has the digest of the one before: devices take what follows from theirs and refuse
    everything else. The next run is about the new version; one that is under way keeps its own.
    """
    from hdpmf.common.data.item_features import read_item_table
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.items import change_items

    service = ServiceFolder(folder)
    if add is not None or retire:
        change_items(service, None if add is None else read_item_table(add), retire or ())
    facts = _facts(service)
    if json:
        print_json(facts)
        return
    versions = facts["versions"]
    print_table(
        ("version", "items", "added", "retired", "digest"),
        [
            (
                str(each["number"]),
                f"{each['items']:,}",
                f"{each['added']:,}",
                f"{len(each['retired']):,}",
                each["digest"],
            )
            for each in versions
        ],
        numeric=("version", "items", "added", "retired"),
    )
    print_lines(
        f"{facts['items']:,} items, {facts['retired']:,} of them retired. hdpmf device "
        "status shows the same digest."
    )
    if facts["shown"] != len(versions):
        note(
            f"A run is under way with version {facts['shown']}; devices see version "
            f"{len(versions)} after it."
        )


def _facts(service: ServiceFolder) -> dict[str, Any]:
    from hdpmf.common.protocol import CatalogueVersion
    from hdpmf.common.protocol.versions import digests_of, number_of, retired_in, table_of

    now = service.items
    table, links = table_of(now), now.links if isinstance(now, CatalogueVersion) else ()
    sizes = [link.items for link in links] or [len(table.ids)]
    retired = [[table.ids[place] for place in link.retired] for link in links] or [[]]
    versions = [
        {
            "number": number,
            "items": size,
            "added": size - before,
            "retired": gone,
            "digest": digest.hex(),
        }
        for number, (size, before, gone, digest) in enumerate(
            zip(sizes, [0, *sizes], retired, digests_of(now), strict=False), start=1
        )
    ]
    return {
        "items": len(table.ids),
        "retired": len(retired_in(now)),
        "versions": versions,
        "shown": number_of(service.shown),
        "key": now.key.hex() if isinstance(now, CatalogueVersion) else None,
        "fingerprint": service.known.fingerprint,
    }


_FOLDER = typer.Argument(metavar="FOLDER", help="The recommender's folder.")


def backup(
    folder: Annotated[Path, _FOLDER],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the backup goes.")],
    json: Json = False,
) -> None:
    """Write everything that a new machine needs to one file. The service may be running."""
    from hdpmf.untrusted.service.backup import back_up

    made = back_up(folder, file)
    if json:
        print_json(
            {"backup": str(file), "name": made.name, "made": made.made, "files": len(made.files)}
        )
    else:
        print_lines(
            f"{file}: {made.name} as of {made.made}, {len(made.files)} files, readable by you only"
        )
    note("Its secret keys are in it: whoever has this file can speak as this recommender.")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What backup wrote.")],
    folder: Annotated[Path, _FOLDER],
    json: Json = False,
) -> None:
    """Make a recommender's folder of a backup. The old one must not serve any more."""
    from hdpmf.untrusted.service import backup as backups
    from hdpmf.untrusted.service.folder import ServiceFolder

    made = backups.restore(file, folder)
    run = ServiceFolder(folder).unfinished()
    under_way = None if run is None else run.hex()
    if json:
        print_json(
            {
                "folder": str(folder),
                "name": made.name,
                "made": made.made,
                "unfinished_run": under_way,
            }
        )
        return
    print_lines(f"{made.name} is in {folder} as it was at {made.made}")
    if under_way is not None:
        print_lines(
            f"run {under_way[:12]} was under way then. If it went on afterwards, devices "
            "repeat what they answered and "
            "refuse the rest, and nobody pays twice: serve goes on with it, or give it up: "
            "hdpmf recommender run FOLDER --give-up"
        )


app = typer.Typer(
    help="The recommender, which nobody has to trust: set it up, enrol devices, run it."
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")]


@app.command()
def init(
    folder: Folder,
    name: Annotated[str, typer.Option("--name", help="What people know it by.")] = "recommender",
    items: Annotated[
        Path | None,
        typer.Option(
            "--items",
            metavar="FILE",
            help="The items: CSV, TSV or Parquet with ids and, if known, title, genres, year.",
        ),
    ] = None,
    data: DatasetName = None,
    scale: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--scale", metavar="LOW HIGH", help="The public rating scale.", show_default="1 5"
        ),
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(
            "--step", metavar="STEP", help="Between neighbouring ratings.", show_default="1"
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = 9443,
    reach: Annotated[
        list[str] | None,
        typer.Option(
            "--reach",
            metavar="NAME",
            help="A host name or address under which devices reach it; repeatable.",
            show_default="localhost, 127.0.0.1",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Set up a recommender: its items, its rating scale, its certificates."""
    from hdpmf.untrusted.service.folder import Config, ServiceFolder

    catalogue = _catalogue(items, data, scale, step)
    names = tuple(reach or ("localhost", "127.0.0.1"))
    service = ServiceFolder.create(
        folder,
        Config(name=name, host=host, port=port, names=names),
        catalogue,
        lambda made: _make_certificates(made, names),
    )
    authority = service.transport_folder / "tls" / "authority.pem"
    if json:
        print_json(
            {
                "folder": str(folder),
                "name": name,
                "items": len(catalogue.ids),
                "scale": [catalogue.scale_low, catalogue.scale_high, catalogue.scale_step],
                "fingerprint": service.known.fingerprint,
                "authority": str(authority),
                "address": f"{names[0]}:{port}",
            }
        )
        return
    print_lines(
        f"{name} is set up in {folder}: {len(catalogue.ids):,} items rated "
        f"{catalogue.scale_low:g} to "
        f"{catalogue.scale_high:g}",
        f"devices need its certificate: {authority}",
        f"and its address: {names[0]}:{port}",
        f"enrol them with their cards: hdpmf recommender enroll {folder} CARD.json ...",
    )


@app.command()
def enroll(
    folder: Folder,
    cards: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[CARD]...", help="Cards that devices wrote (hdpmf device init)."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove", metavar="NAME", help="Take a device off, by name or key; repeatable."
        ),
    ] = None,
    replaces: Annotated[
        str | None,
        typer.Option(
            "--replaces",
            metavar="NAME",
            help="CARD is signed (hdpmf device rotate) and takes this device's place, by name "
            "or key.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Put devices on the roster, or take them off; without either, show it. People compare its
    digest.
    """
    from hdpmf.common.protocol.succession import Succession
    from hdpmf.untrusted.service.enrolment import read_card
    from hdpmf.untrusted.service.folder import ServiceFolder

    service = ServiceFolder(folder)
    given = list(cards or ())
    if replaces is not None:
        if len(given) != 1 or remove:
            raise ConfigError("--replaces goes with one signed card, and without --remove")
        service.replace(replaces, Succession.from_json(read_bytes(given.pop())))
    new = [read_card(read_bytes(path)) for path in given]
    for name in remove or ():
        service.expel(name)
    if new:
        service.enroll(new)
    enrolled = service.enrolled
    path = folder / "roster.json"
    if json:
        print_json(
            {"devices": devices_of(enrolled), "digest": enrolled.digest, "roster": str(path)}
        )
        return
    show_roster(enrolled)
    print_lines(
        f"roster for devices: {path}",
        "devices that have pinned an earlier one need the new one for sums",
    )


app.command("items")(show_items)

app.command()(status)

app.command()(certificates)

app.command()(serve)

app.command()(one_run.run)

app.command()(backup)

app.command()(restore)

app.command()(servers)

app.command()(invite)

app.command()(page)


def _catalogue(
    items: Path | None, data: str | None, scale: tuple[float, float] | None, step: float | None
) -> CatalogueTable:
    from hdpmf.common.data import RatingScale, load_dataset
    from hdpmf.common.data.item_features import read_item_table
    from hdpmf.common.protocol.catalogue import catalogue_table

    if (items is None) == (data is None):
        raise ConfigError("say what the items are: either --items FILE or --data NAME")
    if data is not None:
        if scale is not None or step is not None:
            raise ConfigError(
                "--scale and --step describe a file of items; a data set of --data knows its own"
            )
        ratings = load_dataset(data)
        note(
            "The items are those that somebody rated in this data set: for trials. A real "
            "catalogue: --items FILE."
        )
        return catalogue_table(ratings.items, ratings.scale, ratings.item_table)
    low, high = scale or (1.0, 5.0)
    table = read_item_table(items) if items is not None else None
    if table is None:
        raise ConfigError("--items FILE is needed")
    return catalogue_table(
        table.index, RatingScale(low, high, 1.0 if step is None else step), table
    )


def _make_certificates(service: ServiceFolder, names: tuple[str, ...]) -> None:
    from hdpmf.common.net.certificates import ensure_certificates

    ensure_certificates(service.transport_folder / "tls", names)
