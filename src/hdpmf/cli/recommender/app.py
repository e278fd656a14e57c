"""``hdpmf recommender``: set up a recommender that nobody has to trust, enrol devices, run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.recommender import run as one_run
from hdpmf.cli.recommender.backup import backup, restore
from hdpmf.cli.recommender.certificates import certificates
from hdpmf.cli.recommender.invite import invite
from hdpmf.cli.recommender.items import items as show_items
from hdpmf.cli.recommender.page import page
from hdpmf.cli.recommender.roster import devices_of, show_roster
from hdpmf.cli.recommender.serve import serve
from hdpmf.cli.recommender.status import status
from hdpmf.cli.recommender.two_servers import servers
from hdpmf.cli.shared.files import read_bytes
from hdpmf.cli.shared.options import DatasetName, Json
from hdpmf.cli.shared.output import note, print_json, print_lines
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.protocol import CatalogueTable
    from hdpmf.service.folder import ServiceFolder

app = typer.Typer(help="The recommender, which nobody has to trust: set it up, enrol devices, run it.")

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
        typer.Option("--scale", metavar="LOW HIGH", help="The public rating scale.", show_default="1 5"),
    ] = None,
    step: Annotated[
        float | None, typer.Option("--step", metavar="STEP", help="Between neighbouring ratings.", show_default="1")
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
    from hdpmf.service.folder import Config, ServiceFolder

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
        f"{name} is set up in {folder}: {len(catalogue.ids):,} items rated {catalogue.scale_low:g} to "
        f"{catalogue.scale_high:g}",
        f"devices need its certificate: {authority}",
        f"and its address: {names[0]}:{port}",
        f"enrol them with their cards: hdpmf recommender enroll {folder} CARD.json ...",
    )


@app.command()
def enroll(
    folder: Folder,
    cards: Annotated[
        list[Path] | None, typer.Argument(metavar="[CARD]...", help="Cards that devices wrote (hdpmf device init).")
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="NAME", help="Take a device off, by name or key; repeatable."),
    ] = None,
    replaces: Annotated[
        str | None,
        typer.Option(
            "--replaces",
            metavar="NAME",
            help="CARD is signed (hdpmf device rotate) and takes this device's place, by name or key.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Put devices on the roster, or take them off; without either, show it. People compare its digest."""
    from hdpmf.protocol.succession import Succession
    from hdpmf.service.enrolment import read_card
    from hdpmf.service.folder import ServiceFolder

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
        print_json({"devices": devices_of(enrolled), "digest": enrolled.digest, "roster": str(path)})
        return
    show_roster(enrolled)
    print_lines(f"roster for devices: {path}", "devices that have pinned an earlier one need the new one for sums")


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
    from hdpmf.protocol.catalogue import catalogue_table
    from hdpmf.ratings import RatingScale, load_dataset
    from hdpmf.ratings.item_file import read_item_table

    if (items is None) == (data is None):
        raise ConfigError("say what the items are: either --items FILE or --data NAME")
    if data is not None:
        if scale is not None or step is not None:
            raise ConfigError("--scale and --step describe a file of items; a data set of --data knows its own")
        ratings = load_dataset(data)
        note("The items are those that somebody rated in this data set: for trials. A real catalogue: --items FILE.")
        return catalogue_table(ratings.items, ratings.scale, ratings.item_table)
    low, high = scale or (1.0, 5.0)
    table = read_item_table(items) if items is not None else None
    if table is None:
        raise ConfigError("--items FILE is needed")
    return catalogue_table(table.index, RatingScale(low, high, 1.0 if step is None else step), table)


def _make_certificates(service: ServiceFolder, names: tuple[str, ...]) -> None:
    from hdpmf.transport.certificates import ensure_certificates

    ensure_certificates(service.transport_folder / "tls", names)
