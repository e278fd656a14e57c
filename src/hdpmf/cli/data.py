"""``hdpmf data``: get data sets, list them, and describe a data set or a file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options import DATASETS, Columns, argument, command, option
from hdpmf.cli.output import Block, Result, Table
from hdpmf.cli.rating_options import RatingsOptions
from hdpmf.common.base.progress import progress_bar
from hdpmf.errors import ConfigError, DatasetError, hint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hdpmf.common.data import Ratings, RatingScale

_BAR_WIDTH = 40
_MAX_BARS = 11

# Scales that people are asked to rate on; the first that has room for the ratings is the guess.
_SCALES = ((1, 5), (0.5, 5), (0, 5), (1, 10), (0, 10), (-10, 10), (0, 100))
_MOST_STEPS = 201


@command
def get_dataset(
    name: Annotated[str, argument("A data set.", "NAME", words=DATASETS)],
    from_file: Annotated[
        Path | None, option("A local archive, instead of downloading.", "FILE", "--from")
    ] = None,
) -> Result:
    """Get a data set into the cache, checked: from its official address, or from a local file."""
    from hdpmf.common.data import dataset_info, fetch_dataset

    info = dataset_info(name)
    with progress_bar(f"getting {info.title}"):
        path = fetch_dataset(name, from_file)
    return Result(
        {"name": name, "title": info.title, "path": str(path), "bytes": path.stat().st_size},
        [f"{info.title} is at {path}", f"look at it with: hdpmf data info {name}"],
    )


@command
def describe(
    name: Annotated[
        str | None, argument("A data set, or a file.", "[NAME|FILE]", words=DATASETS)
    ] = None,
    column: Columns = None,
) -> Result:
    """Describe a data set or a file: size, scale, duplicates, times, distribution of ratings.

    Without either, list the data sets, and where they are or how to get them.
    """
    from hdpmf.common.data import load_dataset

    if name is None:
        return _list()
    if name in DATASETS:
        if column:
            raise ConfigError("--column describes files; a data set knows its own")
        facts = dataset_fields(name) | _ratings_facts(load_dataset(name))
    elif Path(name).exists():
        facts = {"name": name} | _file_facts(name, column)
    else:
        raise DatasetError(
            f"{name!r} is neither a file nor a data set; data sets are {', '.join(DATASETS)}"
        )
    return Result(facts, _facts_text(facts, column or ()))


def _list() -> Result:
    rows = [dataset_fields(name) for name in DATASETS]
    sizes = ("users", "items", "ratings")
    table = Table(
        ("name", "data set", *sizes, "where"),
        [
            (
                row["name"],
                row["title"],
                *("any" if row[size] is None else f"{row[size]:,}" for size in sizes),
                row["found"] or row["how_to_get"],
            )
            for row in rows
        ],
        numeric=sizes,
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


def _ratings_facts(ratings: Ratings) -> dict[str, Any]:
    """Return facts about ratings that were checked."""
    return _facts(
        ratings.user_counts(),
        ratings.item_counts(),
        ratings.values,
        ratings.timestamps,
        None if ratings.implicit else ratings.scale,
    )


def _file_facts(name: str, column: list[str] | None) -> dict[str, Any]:
    """Return facts about a file as it is: duplicates and gaps are counted, the scale is guessed."""
    import numpy as np

    from hdpmf.common.data.checks import codes, numbers, pair_keys, times
    from hdpmf.common.data.columns import Layout
    from hdpmf.common.data.readers import read_columns

    columns = RatingsOptions(train=Path(name), column=column).columns
    found = read_columns(name, Layout(columns, implicit=None, missing="drop"))
    rows, given, dated = len(found.frame), found.get("rating"), found.get("timestamp")
    users, user_index = codes(name, "user", found.frame["user"], None, rows)
    items, item_index = codes(name, "item", found.frame["item"], None, rows)
    values = numbers(name, () if given is None else given)
    finite = values[np.isfinite(values)]
    return {
        **_facts(
            np.bincount(users, minlength=len(user_index)),
            np.bincount(items, minlength=len(item_index)),
            finite,
            None if dated is None else times(name, dated),
            _guess_scale(finite) if len(finite) else None,
        ),
        "duplicates": rows - len(np.unique(pair_keys(users, items, len(item_index)))),
        "missing": dict(found.missing),
        "missing_rows": found.n_dropped,
        "not_finite": len(values) - len(finite),
        "id_kinds": {
            "users": "integers" if user_index.is_integer else "text",
            "items": "integers" if item_index.is_integer else "text",
        },
    }


def _facts(
    user_counts: NDArray[np.int64],
    item_counts: NDArray[np.int64],
    values: NDArray[np.float32],
    timestamps: NDArray[np.int64] | None,
    scale: RatingScale | None,
) -> dict[str, Any]:
    n_rows = int(user_counts.sum())
    dated = timestamps is not None and {
        "first": int(timestamps.min()),
        "last": int(timestamps.max()),
    }
    return {
        "users": len(user_counts),
        "items": len(item_counts),
        "ratings": n_rows,
        "density": n_rows / (len(user_counts) * len(item_counts)),
        "per_user": _spread(user_counts),
        "per_item": _spread(item_counts),
        "implicit": scale is None,
        "scale": scale and {"low": scale.low, "high": scale.high, "step": scale.step},
        "time": dated or None,
        "distribution": [] if scale is None else _distribution(values, scale),
    }


def _spread(counts: NDArray[np.int64]) -> dict[str, float]:
    import numpy as np

    return {"least": int(min(counts)), "median": float(np.median(counts)), "most": int(max(counts))}


def _guess_scale(values: NDArray[np.float32]) -> RatingScale:
    """Guess the scale: a common one that has room for the ratings, with the step between them."""
    import numpy as np

    from hdpmf.common.data import RatingScale

    low, high = float(values.min()), float(values.max())
    for bottom, top in _SCALES:
        if bottom <= low and high <= top and high > top / 2:
            low, high = bottom, top
            break
    distinct = np.unique(values).astype(np.float64)
    if not 1 < len(distinct) <= _MOST_STEPS:
        return RatingScale(low, high if high > low else low + 1.0)
    step = float(np.diff(distinct).min())
    levels = (distinct - low) / step
    regular = step <= high - low and bool((np.abs(levels - np.rint(levels)) < 1e-3).all())
    return RatingScale(low, high, step if regular else None)


def _distribution(values: NDArray[np.float32], scale: RatingScale) -> list[dict[str, Any]]:
    """Count each rating, or each range of ratings if there are too many different ones."""
    import numpy as np

    found, counts = np.unique(values, return_counts=True)
    labels = [f"{value:g}" for value in found]
    if len(found) > _MAX_BARS:
        counts, edges = np.histogram(values, bins=_MAX_BARS - 1, range=(scale.low, scale.high))
        labels = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    return [
        {"rating": label, "count": int(count)} for label, count in zip(labels, counts, strict=True)
    ]


def _facts_text(facts: dict[str, Any], column: Sequence[str]) -> Iterator[Block]:
    if "description" in facts:
        yield f"{facts['title']}: {facts['description']}"
    kind = "choices (no ratings: implicit feedback)" if facts["implicit"] else "ratings"
    yield (
        f"{facts['users']:,} users, {facts['items']:,} items, {facts['ratings']:,} {kind} "
        f"({facts['density']:.2%} of all pairs)"
    )
    per_user, per_item = (
        "{least:,} to {most:,}, median {median:g}".format(**facts[each])
        for each in ("per_user", "per_item")
    )
    yield f"per user {per_user}; per item {per_item}"
    if facts["time"] is not None:
        yield f"from {_day(facts['time']['first'])} to {_day(facts['time']['last'])}"
    if "id_kinds" in facts:
        yield from _file_lines(facts, column)
    elif facts["scale"] is not None:
        yield "scale {low:g}..{high:g}".format(**facts["scale"])
    bars = facts["distribution"]
    if bars:
        most, total = max(bar["count"] for bar in bars), sum(bar["count"] for bar in bars)
        rows = [
            (
                bar["rating"],
                f"{bar['count']:,}",
                f"{bar['count'] / total:.1%}",
                "#" * round(_BAR_WIDTH * bar["count"] / most),
            )
            for bar in bars
        ]
        columns = ("rating", "count", "share", "")
        yield Table(columns, rows, numeric=columns[:3])


def _day(seconds: int) -> str:
    import numpy as np

    return str(np.datetime64(seconds, "s"))[:10]


def _file_lines(facts: dict[str, Any], column: Sequence[str]) -> Iterator[str]:
    """Yield remarks about a file, and the command that uses it."""
    yield "ids: users are {users}, items are {items}".format(**facts["id_kinds"])
    if facts["missing_rows"]:
        where = ", ".join(f"{ours} in {count:,}" for ours, count in facts["missing"].items())
        yield (
            f"rows in which something is missing, not counted here: {facts['missing_rows']:,} "
            f"({where}); remove them, or leave them out by {hint('drop')}"
        )
    if facts["duplicates"]:
        yield (
            "rows about a pair of user and item that was there before: "
            f"{facts['duplicates']:,} (--duplicates)"
        )
    if facts["not_finite"]:
        yield f"{facts['not_finite']:,} ratings are no finite numbers: remove these rows"
    if facts["scale"] is not None:
        yield (
            "the ratings look like the scale {low:g} {high:g}; what counts is what people could "
            "give, not what they gave".format(**facts["scale"])
        )
    yield f"use it with: {shlex.join(_evaluation(facts, column))}"


def _evaluation(facts: dict[str, Any], column: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command that evaluates a method on the file as it is."""
    scale, timed = facts["scale"], facts["time"] is not None
    yield from ("hdpmf", "evaluate", "hdp-sum", "--train", facts["name"])
    for pair in column:
        yield from ("--column", pair)
    if scale is None:
        yield "--implicit"
    elif tuple(scale.values()) != (1.0, 5.0, 1.0):
        yield from ("--scale", f"{scale['low']:g}", f"{scale['high']:g}")
        if scale["step"] is not None:
            yield from ("--step", f"{scale['step']:g}")
    if facts["duplicates"] and scale is not None:
        yield from ("--duplicates", "last" if timed else "last-row")
    yield from ("--split", "time:0.2") if timed else ("--hold-out", "1")
