"""``hdpmf data``: which data sets there are, getting them, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.shared.options import DATASET_NAMES, Json, complete_dataset
from hdpmf.cli.shared.output import print_json, print_lines, print_table, progress_bar

if TYPE_CHECKING:
    from hdpmf.ratings import DatasetInfo, Ratings

app = typer.Typer(help="Data sets: list them, get them, look at them.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="A data set.", autocompletion=complete_dataset)]
_BAR_WIDTH = 40
_MOST_BARS = 11


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
def describe_dataset(name: _Name, json: Json = False) -> None:
    """Load a data set and print its size, its scale and how its ratings are spread."""
    from hdpmf.ratings import dataset_info, load_dataset

    info = dataset_info(name)
    ratings = load_dataset(name)
    spread = _spread(ratings)
    if json:
        print_json(
            {
                "name": name,
                "title": info.title,
                "description": info.description,
                "page": info.page,
                "users": ratings.n_users,
                "items": ratings.n_items,
                "ratings": len(ratings),
                "density": ratings.density,
                "scale": {"low": ratings.scale.low, "high": ratings.scale.high},
                "ready_split": info.split,
                "distribution": [{"rating": label, "count": count} for label, count in spread],
            }
        )
        return
    print_lines(
        f"{info.title}: {info.description}",
        f"{ratings.n_users:,} users, {ratings.n_items:,} items, {len(ratings):,} ratings "
        f"({ratings.density:.2%} of all pairs)",
        f"scale {ratings.scale}" + ("; comes with a ready-made split" if info.split else ""),
    )
    most = max(count for _, count in spread)
    print_table(
        ("rating", "count", "share", ""),
        [
            (label, f"{count:,}", f"{count / len(ratings):.1%}", "#" * round(_BAR_WIDTH * count / most))
            for label, count in spread
        ],
        numeric=("rating", "count", "share"),
    )


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


def _spread(ratings: Ratings) -> list[tuple[str, int]]:
    """How often each rating was given; ranges where there are too many different ones to list."""
    import numpy as np

    values, counts = np.unique(ratings.values, return_counts=True)
    if len(values) <= _MOST_BARS:
        return [(f"{value:g}", int(count)) for value, count in zip(values, counts, strict=True)]
    counts, edges = np.histogram(ratings.values, bins=_MOST_BARS - 1, range=(ratings.scale.low, ratings.scale.high))
    return [
        (f"{low:g} to {high:g}", int(count)) for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
