"""``hdpmf recommender``: set up a recommender, enrol devices, change its items, back it up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import (
    DatasetName,
    RecommenderFolder,
    Scale,
    argument,
    command,
    option,
    read_bytes,
)
from hdpmf.cli.output import Result, Table, note
from hdpmf.cli.recommender.status import device_fields, roster_text
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.protocol import CatalogueTable
    from hdpmf.untrusted.service.folder import ServiceFolder


@command
def init(
    folder: RecommenderFolder,
    name: Annotated[str, option("What people know it by.")] = "recommender",
    items: Annotated[
        Path | None,
        option(
            "The items: CSV, TSV or Parquet with ids and, if known, title, genres, year.", "FILE"
        ),
    ] = None,
    data: DatasetName = None,
    scale: Scale = None,
    step: Annotated[
        float | None, option("Between neighbouring ratings.", "STEP", default="1")
    ] = None,
    host: Annotated[str, option("Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on.")] = 9443,
    reach: Annotated[
        list[str] | None,
        option(
            "A host name or address under which devices reach it; repeatable.",
            "NAME",
            default="localhost, 127.0.0.1",
        ),
    ] = None,
) -> Result:
    """Set up a recommender: its items, its rating scale, its certificates."""
    from hdpmf.common.net.certificates import ensure_certificates
    from hdpmf.untrusted.service.folder import Config, ServiceFolder

    table = _catalogue(items, data, scale, step)
    names = tuple(reach or ("localhost", "127.0.0.1"))

    def make_certificates(made: ServiceFolder) -> None:
        ensure_certificates(made.tls_folder, names)

    service = ServiceFolder.create(
        folder,
        Config(name=name, host=host, port=port, names=names),
        table,
        make_certificates,
    )
    authority = service.tls_folder / "authority.pem"
    address = service.config.address
    fields = {
        "folder": str(folder),
        "name": name,
        "items": len(table.ids),
        "scale": [table.scale_low, table.scale_high, table.scale_step],
        "fingerprint": service.known.fingerprint,
        "authority": str(authority),
        "address": address,
    }
    text = [
        f"{name} is set up in {folder}: {len(table.ids):,} items rated "
        f"{table.scale_low:g} to {table.scale_high:g}",
        f"devices need its certificate: {authority}",
        f"and its address: {address}",
        f"enrol them with their cards: hdpmf recommender enroll {folder} CARD.json ...",
    ]
    return Result(fields, text)


def _catalogue(
    items: Path | None, data: str | None, scale: tuple[float, float] | None, step: float | None
) -> CatalogueTable:
    from hdpmf.common.data import RatingScale, load_dataset
    from hdpmf.common.data.item_features import read_item_table
    from hdpmf.common.protocol.catalogue import catalogue_table

    if items is not None and data is None:
        low, high = scale or (1.0, 5.0)
        table = read_item_table(items)
        return catalogue_table(
            table.index, RatingScale(low, high, 1.0 if step is None else step), table
        )
    if data is None or items is not None:
        raise ConfigError("say what the items are: either --items FILE or --data NAME")
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


@command
def enroll(
    folder: RecommenderFolder,
    cards: Annotated[
        list[Path] | None, argument("Cards that devices wrote (hdpmf device init).", "[CARD]...")
    ] = None,
    remove: Annotated[
        list[str] | None, option("Remove a device, by name or key; repeatable.", "NAME")
    ] = None,
    replaces: Annotated[
        str | None,
        option(
            "CARD is signed (hdpmf device rotate) and replaces this device, by name or key.", "NAME"
        ),
    ] = None,
) -> Result:
    """Put devices on the roster, or remove them; without either, show it. Compare its digest."""
    from hdpmf.common.protocol.key_rotation import KeyHistory
    from hdpmf.untrusted.service.enrolment import read_card
    from hdpmf.untrusted.service.folder import ServiceFolder

    service = ServiceFolder(folder)
    given = list(cards or ())
    if replaces is not None:
        if len(given) != 1 or remove:
            raise ConfigError("--replaces goes with one signed card, and without --remove")
        service.replace(replaces, KeyHistory.from_json(read_bytes(given.pop())))
    new = [read_card(read_bytes(path)) for path in given]
    for name in remove or ():
        service.expel(name)
    if new:
        service.enroll(new)
    enrolled = service.enrolled
    path = folder / "roster.json"
    fields = {"devices": device_fields(enrolled), "digest": enrolled.digest, "roster": str(path)}
    text = [
        *roster_text(enrolled),
        f"roster for devices: {path}",
        "devices that have pinned an earlier one need the new one for sums",
    ]
    return Result(fields, text)


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
    """Add items to the catalogue or retire some, as its next version; or show its versions.

    What is said of an item never changes, and a retired one stays retired. Versions are signed, and
    each has the digest of the one before: devices take what follows from theirs and refuse
    everything else. The next run is about the new version; one that is under way keeps its own.
    """
    from hdpmf.common.data.item_features import read_item_table
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.keys import change_items

    service = ServiceFolder(folder)
    if add is not None or retire:
        change_items(service, None if add is None else read_item_table(add), retire or ())
    fields = _item_fields(service)
    versions = fields["versions"]
    table = Table(
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
    last = (
        f"{fields['items']:,} items, {fields['retired']:,} of them retired. hdpmf "
        "device status shows the same digest."
    )
    notes = []
    if fields["shown"] != len(versions):
        notes.append(
            f"A run is under way with version {fields['shown']}; devices see version "
            f"{len(versions)} after it."
        )
    return Result(fields, [table, last], notes=notes)


def _item_fields(service: ServiceFolder) -> dict[str, Any]:
    from hdpmf.common.protocol import CatalogueVersion
    from hdpmf.common.protocol.catalogue import digests_of, number_of, retired_in, table_of

    now = service.items
    table = table_of(now)
    links = now.links if isinstance(now, CatalogueVersion) else ()
    sizes = [link.items for link in links] or [len(table.ids)]
    retired = [[table.ids[row] for row in link.retired] for link in links] or [[]]
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
        "shown": number_of(service.current_items),
        "key": now.key.hex() if isinstance(now, CatalogueVersion) else None,
        "fingerprint": service.known.fingerprint,
    }


@command
def backup(
    folder: RecommenderFolder, file: Annotated[Path, argument("Where the backup goes.", "FILE")]
) -> Result:
    """Write everything that a new machine needs to one file. The service may be running."""
    from hdpmf.untrusted.service.backup import back_up

    made = back_up(folder, file)
    return Result(
        {"backup": str(file), "name": made.name, "made": made.made, "files": len(made.files)},
        [f"{file}: {made.name} as of {made.made}, {len(made.files)} files, readable by you only"],
        notes=["Its secret keys are in it: whoever has this file can speak as this recommender."],
    )


@command
def restore(
    file: Annotated[Path, argument("A file that backup wrote.", "FILE")], folder: RecommenderFolder
) -> Result:
    """Make a recommender's folder from a backup. The old one must not serve any more."""
    from hdpmf.untrusted.service import backup as backups
    from hdpmf.untrusted.service.folder import ServiceFolder

    made = backups.restore(file, folder)
    unfinished = ServiceFolder(folder).unfinished()
    under_way = None if unfinished is None else unfinished.hex()
    text = [f"{made.name} is in {folder} as it was at {made.made}"]
    if under_way is not None:
        text.append(
            f"run {under_way[:12]} was under way then. If it went on afterwards, devices repeat "
            "what they answered and refuse the rest, and nobody pays twice: serve goes on with it, "
            "or give it up: hdpmf recommender run FOLDER --give-up"
        )
    fields = {
        "folder": str(folder),
        "name": made.name,
        "made": made.made,
        "unfinished_run": under_way,
    }
    return Result(fields, text)
