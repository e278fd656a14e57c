"""``hdpmf recommender``: set up a recommender that nobody has to trust, enrol devices, run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.recommender.backup import backup, restore
from hdpmf.cli.recommender.serve import serve
from hdpmf.cli.recommender.two_servers import publish, servers, task_lines, tasks_of
from hdpmf.cli.shared.files import read_bytes
from hdpmf.cli.shared.options import DatasetName, Json
from hdpmf.cli.shared.output import note, print_json, print_lines, print_table
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.protocol import CatalogueTable
    from hdpmf.service.enrolment import Enrolled
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
        print_json({"devices": _devices(enrolled), "digest": enrolled.digest, "roster": str(path)})
        return
    _show_roster(enrolled)
    print_lines(f"roster for devices: {path}", "devices that have pinned an earlier one need the new one for sums")


@app.command()
def status(folder: Folder, json: Json = False) -> None:
    """Show what the recommender is doing, its devices and its runs."""
    from hdpmf.service.folder import ServiceFolder

    service = ServiceFolder(folder)
    enrolled = service.enrolled
    runs = [_run(service, run) for run in service.runs()]
    state = service.state()
    if json:
        print_json(
            {
                "name": service.config.name,
                "devices": _devices(enrolled),
                "digest": enrolled.digest,
                "runs": runs,
                "state": state,
                "model": str(folder / "model") if service.model() is not None else None,
            }
        )
        return
    _show_roster(enrolled)
    if runs:
        print_lines("")
        print_table(
            ("run", "method", "sees", "stage", "rounds", "devices", "users"),
            [
                (run["run"][:12], run["method"], run["view"], run["stage"], f"{run['rounds_done']}/{run['rounds']}",
                 "?" if run["devices"] is None else str(run["devices"]), str(run["users"]))
                for run in runs
            ],
            numeric=("rounds", "devices", "users"),
        )  # fmt: skip
    for run in runs:
        print_lines(*task_lines(run))
        if run["impossible_numbers"]:
            print_lines(f"a device sent wrong numbers in run {run['run'][:12]}; those that cannot be were clamped")
        for device in run["wrong_shares"]:
            print_lines(
                f"device {device} gave or dealt wrong shares in run {run['run'][:12]}; to take it off: enroll --remove"
            )
    if state is not None:
        refusals = ", ".join(f"{reason} {count}" for reason, count in state["refusals"].items()) or "none"
        print_lines("", f"last seen doing: {state['stage']} (round {state['number']} of {state['rounds']})")
        print_lines(f"refusals: {refusals}")


app.command()(serve)
app.command()(backup)
app.command()(restore)
app.command()(servers)
app.command()(publish)


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


def _devices(enrolled: Enrolled) -> list[dict[str, Any]]:
    return [{"name": card.name, "identity": card.identity, "users": card.users} for card in enrolled.cards]


def _show_roster(enrolled: Enrolled) -> None:
    if len(enrolled):
        print_table(
            ("device", "identity", "users"),
            [(card.name, card.identity[:16], f"{card.users:,}") for card in enrolled.cards],
            numeric=("users",),
        )
    print_lines(
        f"{len(enrolled)} devices, {enrolled.count_users(enrolled.users):,} users", f"digest: {enrolled.digest}"
    )


def _run(service: ServiceFolder, run: bytes) -> dict[str, Any]:
    record, checkpoint = service.record(run), service.run_files(run).load()
    ended = service.summary_path(run).exists()
    devices = checkpoint.members or checkpoint.agreed
    names = {card.identity: card.name for card in record.devices}
    return {
        "run": run.hex(),
        "method": record.settings.method,
        "view": record.settings.view,
        "stage": ("done" if checkpoint.stage == "done" else "given up") if ended else checkpoint.stage,
        "rounds": record.settings.rounds,
        "rounds_done": len(checkpoint.users),
        "rounds_lost": len(checkpoint.lost),
        "impossible_numbers": checkpoint.impossible,
        "wrong_shares": [names.get(device, device) for device in checkpoint.barred],
        "devices": len(devices),
        "users": sum(card.users for card in record.devices if card.identity in set(devices)),
        "tasks": tasks_of(checkpoint),
    } | (
        # With two servers the recommender knows how many reports there are, not whose.
        {"devices": None, "users": checkpoint.users[-1] if checkpoint.users else 0}
        if record.settings.view == "two-servers"
        else {}
    )
