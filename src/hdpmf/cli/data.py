"""``hdpmf data``: list data sets, get them, and describe a data set or a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import DATASET_NAMES, Columns, Json, complete_dataset
from hdpmf.cli.options.ratings import RatingsOptions
from hdpmf.cli.output import print_json, print_lines, print_table, progress_bar
from hdpmf.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from hdpmf.common.data import DatasetInfo
    from hdpmf.common.data.overview import Overview


_BAR_WIDTH = 40

_MOST_BARS = 11


def print_overview(name: str, column: list[str] | None, plot: Path | None, json: bool) -> None:
    """Look, and say what is there."""
    about: dict[str, Any] = {"name": name}
    if name in DATASET_NAMES:
        if column:
            raise ConfigError("--column describes files; a data set knows its own")
        found, about = _of_dataset(name)
    else:
        if not Path(name).exists():
            raise DatasetError(
                f"{name!r} is neither a file nor a data set; data sets are "
                f"{', '.join(DATASET_NAMES)}"
            )
        from hdpmf.common.data.overview import overview_of_file

        found = overview_of_file(name, RatingsOptions(train=Path(name), column=column).columns)
    spread = _spread(found)
    if plot is not None:
        from hdpmf.common.base.files import atomic_write
        from hdpmf.lab.plots import spread_png

        picture = spread_png(
            _size(found), spread, found.user_counts, found.item_counts, found.timestamps
        )
        atomic_write(plot, picture)
    if json:
        print_json({**about, **_fields(found, spread), "plot": None if plot is None else str(plot)})
        return
    if "description" in about:
        print_lines(f"{about['title']}: {about['description']}")
    print_lines(_size(found), *_lines(found, about, name))
    if spread:
        most = max(count for _, count in spread)
        print_table(
            ("rating", "count", "share", ""),
            [
                (
                    label,
                    f"{count:,}",
                    f"{count / len(found.values):.1%}",
                    "#" * round(_BAR_WIDTH * count / most),
                )
                for label, count in spread
            ],
            numeric=("rating", "count", "share"),
        )
    if plot is not None:
        print_lines(f"Picture: {plot}")


def _of_dataset(name: str) -> tuple[Overview, dict[str, Any]]:
    from hdpmf.common.data import dataset_info, load_dataset
    from hdpmf.common.data.overview import overview_of

    info = dataset_info(name)
    about = {"name": name, "title": info.title, "description": info.description, "page": info.page}
    return overview_of(load_dataset(name)), {**about, "ready_split": info.split}


def _size(found: Overview) -> str:
    what = "choices (no ratings: implicit feedback)" if found.scale is None else "ratings"
    users, items = len(found.user_counts), len(found.item_counts)
    return (
        f"{found.name}: {users:,} users, {items:,} items, {found.n_rows:,} {what} "
        f"({found.density:.2%} of all pairs)"
    )


def _lines(found: Overview, about: dict[str, Any], name: str) -> list[str]:
    lines = [f"per user {_counts(found.user_counts)}; per item {_counts(found.item_counts)}"]
    if found.timestamps is not None:
        lines.append(f"from {_day(found.timestamps.min())} to {_day(found.timestamps.max())}")
    if found.scale is not None and "description" in about:
        lines.append(
            f"scale {found.scale}"
            + ("; comes with a ready-made split" if about["ready_split"] else "")
        )
    if "description" in about:
        return lines
    lines.append(f"ids: users are {found.id_kinds[0]}, items are {found.id_kinds[1]}")
    if found.n_duplicates:
        lines.append(
            "rows about a pair of user and item that was there before: "
            f"{found.n_duplicates:,} (--duplicates)"
        )
    if found.off_scale:
        lines.append(f"{found.off_scale:,} ratings are no finite numbers: remove these rows")
    options = ""
    if found.scale is not None:
        step = "" if found.scale.step is None else f" --step {found.scale.step:g}"
        if (found.scale.low, found.scale.high) != (1.0, 5.0):
            options = f" --scale {found.scale.low:g} {found.scale.high:g}"
        lines.append(
            f"the ratings look like the scale {found.scale.low:g} "
            f"{found.scale.high:g}{step and ' with' + step}; what "
            "counts is what people could give, not what they gave"
        )
    else:
        options = " --implicit"
    split = "--hold-out 1" if found.timestamps is None else "--split time:0.2"
    method = "private-popular" if found.scale is None else "hdp-sum"
    options += " --duplicates last" if found.n_duplicates and found.scale is not None else ""
    return [*lines, f"use it with: hdpmf evaluate {method} --train {name}{options} {split}"]


def _fields(found: Overview, spread: list[tuple[str, int]]) -> dict[str, Any]:
    scale = found.scale
    times = found.timestamps
    return {
        "users": len(found.user_counts),
        "items": len(found.item_counts),
        "ratings": found.n_rows,
        "density": found.density,
        "duplicates": found.n_duplicates,
        "not_finite": found.off_scale,
        "implicit": scale is None,
        "id_kinds": {"users": found.id_kinds[0], "items": found.id_kinds[1]},
        "scale": None
        if scale is None
        else {"low": scale.low, "high": scale.high, "step": scale.step},
        "time": None if times is None else {"first": int(times.min()), "last": int(times.max())},
        "per_user": _summary(found.user_counts),
        "per_item": _summary(found.item_counts),
        "distribution": [{"rating": label, "count": count} for label, count in spread],
    }


def _summary(counts: Any) -> dict[str, float]:
    import numpy as np

    return {
        "least": int(counts.min()),
        "median": float(np.median(counts)),
        "most": int(counts.max()),
    }


def _counts(counts: Any) -> str:
    said = _summary(counts)
    return f"{said['least']:,} to {said['most']:,}, median {said['median']:g}"


def _day(seconds: Any) -> str:
    import numpy as np

    return str(np.datetime64(int(seconds), "s"))[:10]


def _spread(found: Overview) -> list[tuple[str, int]]:
    """How often each rating was given; ranges where there are too many different ones to list."""
    import numpy as np

    if found.scale is None:
        return []
    values, counts = np.unique(found.values, return_counts=True)
    if len(values) <= _MOST_BARS:
        return [(f"{value:g}", int(count)) for value, count in zip(values, counts, strict=True)]
    counts, edges = np.histogram(
        found.values, bins=_MOST_BARS - 1, range=(found.scale.low, found.scale.high)
    )
    return [
        (f"{low:g} to {high:g}", int(count))
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]


app = typer.Typer(help="Data sets: list them, get them, look at them.")

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A data set.", autocompletion=complete_dataset)
]


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
        typer.Option(
            "--from", metavar="FILE", help="A local archive or file, instead of downloading."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Get a data set into the cache, checked: from its official address, or from a file at hand."""
    from hdpmf.common.data import dataset_info, fetch_dataset

    info = dataset_info(name)
    with progress_bar(f"getting {info.title}", in_bytes=True) as advance:
        place = fetch_dataset(name, from_file, advance if from_file is None else None)
    if json:
        print_json(
            {"name": name, "title": info.title, "path": str(place), "bytes": place.stat().st_size}
        )
        return
    print_lines(f"{info.title} is at {place}", f"look at it with: hdpmf data info {name}")


@app.command("info")
def describe(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE", help="A data set, or a file.", autocompletion=complete_dataset
        ),
    ],
    column: Columns = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Save a picture as PNG.")
    ] = None,
    json: Json = False,
) -> None:
    """Look at a data set or a file: its size, its scale, duplicates, times, and how its ratings
    are spread.
    """
    print_overview(name, column, plot, json)


def listed(name: str) -> dict[str, Any]:
    """What is known about a data set without loading it, as plain values."""
    from hdpmf.common.data import dataset_info, find_dataset

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
