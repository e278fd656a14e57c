"""``hdpmf data``: which data sets there are, getting them, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.shared.options import DATASET_NAMES, Columns, Json, complete_dataset
from hdpmf.cli.shared.output import print_json, print_lines, print_table, progress_bar

if TYPE_CHECKING:
    from hdpmf.ratings import DatasetInfo

app = typer.Typer(help="Data sets: list them, get them, look at them.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="A data set.", autocompletion=complete_dataset)]


@app.command("list")
def list_datasets(json: Json = False) -> None:
    """List the data sets, their sizes, and where they are or how to get them."""
    rows = [listed(name) for name in DATASET_NAMES]
    if json:
        print_json({"datasets": rows})
        return
    print_table(
        ("name", "data set", "users", "items", "ratings", "where"),
        [
            (
                row["name"],
                row["title"],
                *(_count(row[column]) for column in ("users", "items", "ratings")),
                row["found"] or row["how_to_get"],
            )
            for row in rows
        ],
        numeric=("users", "items", "ratings"),
    )


@app.command("get")
def get_dataset(
    name: _Name,
    from_file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A local archive or file, instead of downloading."),
    ] = None,
    json: Json = False,
) -> None:
    """Get a data set into the cache, checked: from its official address, or from a file at hand."""
    from hdpmf.ratings import dataset_info, fetch_dataset

    info = dataset_info(name)
    with progress_bar(f"getting {info.title}", in_bytes=True) as advance:
        place = fetch_dataset(name, from_file, advance if from_file is None else None)
    if json:
        print_json({"name": name, "title": info.title, "path": str(place), "bytes": place.stat().st_size})
        return
    print_lines(f"{info.title} is at {place}", f"look at it with: hdpmf data info {name}")


@app.command("info")
def describe(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A data set, or a file.", autocompletion=complete_dataset)
    ],
    column: Columns = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Save a picture as PNG.")] = None,
    json: Json = False,
) -> None:
    """Look at a data set or a file: its size, its scale, duplicates, times, and how its ratings are spread."""
    from hdpmf.cli.data.overview import print_overview

    print_overview(name, column, plot, json)


def listed(name: str) -> dict[str, Any]:
    """What is known about a data set without loading it, as plain values."""
    from hdpmf.ratings import dataset_info, find_dataset

    info = dataset_info(name)
    found = find_dataset(name)
    return {
        "name": name,
        "title": info.title,
        "description": info.description,
        "users": info.counts.users if info.counts else None,
        "items": info.counts.items if info.counts else None,
        "ratings": info.counts.ratings if info.counts else None,
        "page": info.page,
        "found": None if found is None else str(found),
        "how_to_get": _how_to_get(info),
    }


def _how_to_get(info: DatasetInfo) -> str:
    return "made here, any size" if info.read is None else info.how_to_get()


def _count(value: int | None) -> str:
    return "any" if value is None else f"{value:,}"
