"""``hdpmf recommender items``: versions of the catalogue, which devices can check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import note, print_json, print_lines, print_table

if TYPE_CHECKING:
    from hdpmf.service.folder import ServiceFolder


def items(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    add: Annotated[
        Path | None,
        typer.Option(
            "--add", metavar="FILE", help="New items: CSV, TSV or Parquet with ids and, if known, title, genres, year."
        ),
    ] = None,
    retire: Annotated[
        list[str] | None,
        typer.Option("--retire", metavar="ID", help="Recommend an item no more, nor ask about it; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Add items at the end of the catalogue or retire some, as its next version; without either, show its versions.

    What is said of an item never changes, and a retired one stays retired. Versions are signed, and each has the digest
    of the one before: devices take what follows from theirs and refuse everything else. The next run is about the new
    version; one that is under way keeps its own.
    """
    from hdpmf.ratings.item_file import read_item_table
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.items import change_items

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
        [(str(each["number"]), f"{each['items']:,}", f"{each['added']:,}", f"{len(each['retired']):,}", each["digest"])
         for each in versions],
        numeric=("version", "items", "added", "retired"),
    )  # fmt: skip
    print_lines(
        f"{facts['items']:,} items, {facts['retired']:,} of them retired. hdpmf device status shows the same digest."
    )
    if facts["shown"] != len(versions):
        note(f"A run is under way with version {facts['shown']}; devices see version {len(versions)} after it.")


def _facts(service: ServiceFolder) -> dict[str, Any]:
    from hdpmf.protocol import CatalogueVersion
    from hdpmf.protocol.versions import digests_of, number_of, retired_in, table_of

    now = service.items
    table, links = table_of(now), now.links if isinstance(now, CatalogueVersion) else ()
    sizes = [link.items for link in links] or [len(table.ids)]
    retired = [[table.ids[place] for place in link.retired] for link in links] or [[]]
    versions = [
        {"number": number, "items": size, "added": size - before, "retired": gone, "digest": digest.hex()}
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
