"""``hdpmf data``: get data sets, list them, and describe a data set or a file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import DATASET_NAMES, Columns, argument, command, option
from hdpmf.cli.options.ratings import RatingsOptions
from hdpmf.cli.output import Block, Result, Table
from hdpmf.common.base.progress import progress_bar
from hdpmf.errors import ConfigError, DatasetError, hint

if TYPE_CHECKING:
    from hdpmf.common.data.overview import Overview

_BAR_WIDTH = 40
_MAX_BARS = 11


@command
def get_dataset(
    name: Annotated[str, argument("A data set.", "NAME", words=DATASET_NAMES)],
    from_file: Annotated[
        Path | None, option("A local archive, instead of downloading.", "FILE", "--from")
    ] = None,
) -> Result:
    """Get a data set into the cache, checked: from its official address, or from a local file."""
    from hdpmf.common.data import dataset_info, fetch_dataset

    info = dataset_info(name)
    with progress_bar(f"getting {info.title}", in_bytes=True) as advance:
        path = fetch_dataset(name, from_file, advance if from_file is None else None)
    return Result(
        {"name": name, "title": info.title, "path": str(path), "bytes": path.stat().st_size},
        [f"{info.title} is at {path}", f"look at it with: hdpmf data info {name}"],
    )


@command
def describe(
    name: Annotated[
        str | None, argument("A data set, or a file.", "[NAME|FILE]", words=DATASET_NAMES)
    ] = None,
    column: Columns = None,
) -> Result:
    """Describe a data set or a file: size, scale, duplicates, times, distribution of ratings.

    Without either, list the data sets, and where they are or how to get them.
    """
    if name is None:
        return _list()
    overview, about = _overview(name, column)
    counts = _rating_counts(overview)
    text = _overview_text(overview, counts, about, column or ())
    return Result({**about, **_overview_fields(overview, counts)}, text)


def _list() -> Result:
    rows = [dataset_fields(name) for name in DATASET_NAMES]
    table = Table(
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
    return Result({"datasets": rows}, [table])


def dataset_fields(name: str) -> dict[str, Any]:
    """Return facts about a data set, without loading it."""
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
        "how_to_get": "made here, any size" if info.read is None else info.how_to_get(),
    }


def _count(value: int | None) -> str:
    return "any" if value is None else f"{value:,}"


def _overview(name: str, column: list[str] | None) -> tuple[Overview, dict[str, Any]]:
    from hdpmf.common.data import dataset_info, load_dataset
    from hdpmf.common.data.overview import summarize, summarize_file

    if name in DATASET_NAMES:
        if column:
            raise ConfigError("--column describes files; a data set knows its own")
        info = dataset_info(name)
        return summarize(load_dataset(name)), {
            "name": name,
            "title": info.title,
            "description": info.description,
            "page": info.page,
            "ready_split": info.split,
        }
    if not Path(name).exists() and not has_magic(name):
        raise DatasetError(
            f"{name!r} is neither a file nor a data set; data sets are {', '.join(DATASET_NAMES)}"
        )
    columns = RatingsOptions(train=Path(name), column=column).columns
    return summarize_file(name, columns), {"name": name}


def _overview_text(
    overview: Overview,
    counts: list[tuple[str, int]],
    about: dict[str, Any],
    column: Sequence[str],
) -> Iterator[Block]:
    if "description" in about:
        yield f"{about['title']}: {about['description']}"
    yield _size(overview)
    yield f"per user {_range(overview.user_counts)}; per item {_range(overview.item_counts)}"
    if overview.timestamps is not None:
        yield f"from {_day(overview.timestamps.min())} to {_day(overview.timestamps.max())}"
    if "description" not in about:
        yield from _file_lines(overview, about["name"], column)
    elif overview.scale is not None:
        split = "; comes with a ready-made split" if about["ready_split"] else ""
        yield f"scale {overview.scale}{split}"
    if counts:
        most = max(count for _, count in counts)
        rows = [
            (
                label,
                f"{count:,}",
                f"{count / len(overview.values):.1%}",
                "#" * round(_BAR_WIDTH * count / most),
            )
            for label, count in counts
        ]
        columns = ("rating", "count", "share", "")
        yield Table(columns, rows, numeric=columns[:3])


def _size(overview: Overview) -> str:
    kind = "choices (no ratings: implicit feedback)" if overview.scale is None else "ratings"
    return (
        f"{overview.name}: {len(overview.user_counts):,} users, {len(overview.item_counts):,} "
        f"items, {overview.n_rows:,} {kind} ({overview.density:.2%} of all pairs)"
    )


def _file_lines(overview: Overview, name: str, column: Sequence[str]) -> Iterator[str]:
    """Yield remarks about a file, and the command that uses it."""
    scale = overview.scale
    yield f"ids: users are {overview.id_kinds[0]}, items are {overview.id_kinds[1]}"
    if overview.n_dropped:
        where = ", ".join(f"{ours} in {count:,}" for ours, count in overview.missing.items())
        yield (
            f"rows in which something is missing, not counted here: {overview.n_dropped:,} "
            f"({where}); remove them, or leave them out by {hint('drop')}"
        )
    if overview.n_duplicates:
        yield (
            "rows about a pair of user and item that was there before: "
            f"{overview.n_duplicates:,} (--duplicates)"
        )
    if overview.off_scale:
        yield f"{overview.off_scale:,} ratings are no finite numbers: remove these rows"
    if scale is not None:
        step = "" if scale.step is None else f" with --step {scale.step:g}"
        yield (
            f"the ratings look like the scale {scale.low:g} {scale.high:g}{step}; what counts is "
            "what people could give, not what they gave"
        )
    yield f"use it with: {shlex.join(_evaluation(overview, name, column))}"


def _evaluation(overview: Overview, name: str, column: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command that evaluates a method on the file as it is."""
    scale, timed = overview.scale, overview.timestamps is not None
    yield from ("hdpmf", "evaluate", "private-popular" if scale is None else "hdp-sum")
    yield from ("--train", name)
    for pair in column:
        yield from ("--column", pair)
    if scale is None:
        yield "--implicit"
    elif (scale.low, scale.high, scale.step) != (1.0, 5.0, 1.0):
        yield from ("--scale", f"{scale.low:g}", f"{scale.high:g}")
        if scale.step is not None:
            yield from ("--step", f"{scale.step:g}")
    if overview.n_duplicates and scale is not None:
        yield from ("--duplicates", "last" if timed else "last-row")
    yield from ("--split", "time:0.2") if timed else ("--hold-out", "1")


def _overview_fields(overview: Overview, counts: list[tuple[str, int]]) -> dict[str, Any]:
    scale = overview.scale
    times = overview.timestamps
    return {
        "users": len(overview.user_counts),
        "items": len(overview.item_counts),
        "ratings": overview.n_rows,
        "density": overview.density,
        "duplicates": overview.n_duplicates,
        "missing": dict(overview.missing),
        "missing_rows": overview.n_dropped,
        "not_finite": overview.off_scale,
        "implicit": scale is None,
        "id_kinds": {"users": overview.id_kinds[0], "items": overview.id_kinds[1]},
        "scale": scale and {"low": scale.low, "high": scale.high, "step": scale.step},
        "time": None if times is None else {"first": int(times.min()), "last": int(times.max())},
        "per_user": _summary(overview.user_counts),
        "per_item": _summary(overview.item_counts),
        "distribution": [{"rating": label, "count": count} for label, count in counts],
    }


def _summary(counts: Any) -> dict[str, float]:
    import numpy as np

    return {"least": int(min(counts)), "median": float(np.median(counts)), "most": int(max(counts))}


def _range(counts: Any) -> str:
    summary = _summary(counts)
    return f"{summary['least']:,} to {summary['most']:,}, median {summary['median']:g}"


def _day(seconds: Any) -> str:
    import numpy as np

    return str(np.datetime64(int(seconds), "s"))[:10]


def _rating_counts(overview: Overview) -> list[tuple[str, int]]:
    """Count each rating, or each range of ratings if there are too many different ones."""
    import numpy as np

    if overview.scale is None:
        return []
    values, counts = np.unique(overview.values, return_counts=True)
    if len(values) <= _MAX_BARS:
        return [(f"{value:g}", int(count)) for value, count in zip(values, counts, strict=True)]
    limits = (overview.scale.low, overview.scale.high)
    counts, edges = np.histogram(overview.values, bins=_MAX_BARS - 1, range=limits)
    return [
        (f"{low:g} to {high:g}", int(count))
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
