"""Lists of recommended items: the options that ask for them, and their output as text, CSV or
JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import Json, read_text
from hdpmf.cli.output import print_csv, print_json, print_lines, print_table, progress_bar
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.data import Id, ItemFilter
    from hdpmf.models import Estimator
    from hdpmf.private.client.ranking import Recommendation

AllUsers = Annotated[bool, typer.Option("--all-users", help="A list for everybody.")]


@dataclass(frozen=True)
class RecommendationOptions:
    """What lists are asked for, and in which form."""

    number: Annotated[int, typer.Option("-n", "--number", metavar="N", help="How many items.")] = 10
    keep_rated: Annotated[
        bool, typer.Option("--keep-rated", help="Rated items may be in a list, too.")
    ] = False
    genre: Annotated[
        list[str] | None,
        typer.Option(
            "--genre", metavar="NAME", help="Only items of this genre, or of another given."
        ),
    ] = None
    not_genre: Annotated[
        list[str] | None, typer.Option("--not-genre", metavar="NAME", help="None of this genre.")
    ] = None
    from_year: Annotated[
        int | None, typer.Option("--from-year", metavar="YEAR", help="Of this year or later.")
    ] = None
    to_year: Annotated[
        int | None, typer.Option("--to-year", metavar="YEAR", help="Of this year or earlier.")
    ] = None
    item: Annotated[
        list[str] | None,
        typer.Option("--item", metavar="ID", help="Only this item, or another given; repeatable."),
    ] = None
    items: Annotated[
        Path | None,
        typer.Option(
            "--items", metavar="FILE", help="Only items of this file, an id on each line."
        ),
    ] = None
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV: a line for each item of each user.")
    ] = False
    json: Json = False

    def __post_init__(self) -> None:
        if self.csv and self.json:
            raise ConfigError("print --csv or --json, not both")

    def only(self, parse: Callable[[str], Id] = str) -> ItemFilter:
        """What items have to be like; ``parse`` makes an id of its text."""
        from hdpmf.common.data import ItemFilter

        texts = [*(self.item or ()), *(read_ids(self.items) if self.items is not None else ())]
        return ItemFilter(
            genres=self.genre or (),
            not_genres=self.not_genre or (),
            from_year=self.from_year,
            to_year=self.to_year,
            items=None
            if self.item is None and self.items is None
            else [parse(text) for text in texts],
        )


def titled(model: Estimator, file: Path | None) -> Estimator:
    """The model with titles, genres and years of items from a file, if there is one."""
    if file is None:
        return model
    from dataclasses import replace

    from hdpmf.common.data.item_features import read_item_table

    table, items = read_item_table(file), model.catalogue_.items
    if table.index.is_integer and not items.is_integer:
        table = table.with_text_ids()
    if not (table.index.find(items.ids) >= 0).any():
        raise ConfigError(f"{file} has no item of this model; are its ids the same?")
    model.catalogue_ = replace(model.catalogue_, item_table=table)
    return model


def read_ids(path: Path) -> list[str]:
    """The ids in a file, one on each line."""
    found = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    if not found:
        raise ConfigError(f"there is no id in {path}; it should have one on each line")
    return found


def print_lists(
    lists: Iterable[tuple[Id, Sequence[Recommendation]]],
    question: RecommendationOptions,
    facts: Mapping[str, Any],
    *,
    alone: str | None,
    total: int,
) -> None:
    """Print lists in the form that was asked for.

    Args:
        lists: Users with their lists.
        question: What was asked for.
        facts: What the JSON document says beside them.
        alone: The user, where it is one whose list was asked for.
        total: How many users.
    """
    if question.csv:
        print_csv(_CSV, (row for user, found in lists for row in _csv_rows(user, found)))
    elif alone is not None:
        found = next(iter(lists))[1]
        if question.json:
            print_json({"user": alone, "items": item_fields(found), **facts})
        else:
            print_items(found)
    elif question.json:
        everyone = [
            {"user": user, "items": item_fields(found)} for user, found in _watched(lists, total)
        ]
        print_json({"lists": everyone, **facts})
    else:
        for user, found in lists:
            print_items(found, title=f"For {user}:")
            print_lines("")


def _watched(
    lists: Iterable[tuple[Id, Sequence[Recommendation]]], total: int
) -> Iterator[tuple[Id, Sequence[Recommendation]]]:
    with progress_bar("recommending", total) as advance:
        for done, pair in enumerate(lists, start=1):
            yield pair
            advance(done, total)


def item_fields(recommended: Iterable[Recommendation]) -> list[dict[str, Any]]:
    """Recommended items for JSON."""
    return [
        {
            "item": entry.item,
            "title": entry.title,
            "year": entry.year,
            "genres": list(entry.genres),
            "score": entry.score,
            "rank_score": entry.rank_score,
            "reason": entry.reason,
        }
        for entry in recommended
    ]


def print_items(recommended: Sequence[Recommendation], title: str | None = None) -> None:
    """Recommended items, the best first, with what is known about them."""
    columns = {
        "rank": [str(rank) for rank in range(1, len(recommended) + 1)],
        "item": [str(entry.item) for entry in recommended],
        "expected": ["" if entry.score is None else f"{entry.score:.2f}" for entry in recommended],
        "title": [entry.title or "" for entry in recommended],
        "year": [_year_apart(entry) for entry in recommended],
        "genres": [", ".join(entry.genres) for entry in recommended],
        "why": [entry.reason or "" for entry in recommended],
    }
    shown = [name for name, cells in columns.items() if name in ("rank", "item") or any(cells)]
    rows = list(zip(*(columns[name] for name in shown), strict=True))
    print_table(shown, rows, numeric=("rank", "expected", "year"), title=title)


def _year_apart(entry: Recommendation) -> str:
    """The year, where the title does not say it."""
    return "" if entry.year is None or str(entry.year) in (entry.title or "") else str(entry.year)


_CSV = ("user", "rank", "item", "title", "year", "genres", "expected", "reason")


def _csv_rows(user: Id, recommended: Sequence[Recommendation]) -> Iterator[tuple[object, ...]]:
    for rank, entry in enumerate(recommended, start=1):
        genres = "|".join(entry.genres)
        expected = None if entry.score is None else f"{entry.score:.4f}"
        yield user, rank, entry.item, entry.title, entry.year, genres, expected, entry.reason
