"""``hdpmf recommend``, ``predict`` and ``fold-in``: use a saved model; lists, also of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import (
    Columns,
    CsvOutput,
    ModelFolder,
    argument,
    command,
    option,
    read_text,
)
from hdpmf.cli.options.ratings import parse_columns
from hdpmf.cli.output import Block, Csv, Result, Table, claim_fields, privacy_line, wants_json
from hdpmf.common.base.progress import progress_bar
from hdpmf.errors import ConfigError, UnknownIdError, hint

if TYPE_CHECKING:
    from hdpmf.common.data import Id, IdIndex, ItemFilter
    from hdpmf.models import Estimator
    from hdpmf.private.client.ranking import Recommendation


AllUsers = Annotated[bool, option("A list for everybody.", None, "--all-users")]


def refuse_two_formats(csv: bool) -> None:
    """Raise ConfigError if both ``--csv`` and ``--json`` are given."""
    if csv and wants_json():
        raise ConfigError("print --csv or --json, not both")


@dataclass(frozen=True)
class ListOptions:
    """Length, filters and format of lists."""

    number: Annotated[int, option("How many items.", "N", "-n", "--number")] = 10
    keep_rated: Annotated[bool, option("Rated items may be in a list, too.")] = False
    genre: Annotated[list[str] | None, option("Only items of this genre; repeatable.", "NAME")] = (
        None
    )
    not_genre: Annotated[
        list[str] | None, option("No items of this genre; repeatable.", "NAME")
    ] = None
    from_year: Annotated[int | None, option("Of this year or later.", "YEAR")] = None
    to_year: Annotated[int | None, option("Of this year or earlier.", "YEAR")] = None
    item: Annotated[list[str] | None, option("Only this item; repeatable.", "ID")] = None
    items: Annotated[Path | None, option("Only items of this file, an id per line.", "FILE")] = None
    csv: CsvOutput = False

    def __post_init__(self) -> None:
        refuse_two_formats(self.csv)

    def only(self, parse: Callable[[str], Id] = str) -> ItemFilter:
        """Return the filter that the options describe; ``parse`` makes an id of its text."""
        from hdpmf.common.data import ItemFilter

        texts = [*(self.item or ()), *(read_ids(self.items) if self.items is not None else ())]
        everything = self.item is None and self.items is None
        return ItemFilter(
            genres=self.genre or (),
            not_genres=self.not_genre or (),
            from_year=self.from_year,
            to_year=self.to_year,
            items=None if everything else [parse(text) for text in texts],
        )

    def result(
        self,
        lists: Iterable[tuple[Id, Sequence[Recommendation]]],
        fields: Mapping[str, Any],
        *,
        alone: str | None,
        total: int,
        end: str = "",
        notes: Sequence[str] = (),
    ) -> Result:
        """Return lists in the format that was asked for.

        ``alone`` is the user, if one was named, and ``total`` how many there are.
        """
        if self.csv:
            rows = (row for user, found in lists for row in _csv_rows(user, found))
            return Result(fields, text=[Csv(_CSV, rows)])

        def text() -> Iterator[Block]:
            for user, found in lists:
                yield list_table(found, None if alone is not None else f"For {user}:")
                if alone is None:
                    yield ""
            if end:
                yield end

        def document() -> dict[str, Any]:
            if alone is not None:
                return {"user": alone, "items": item_fields(next(iter(lists))[1]), **fields}
            with progress_bar("recommending", total) as advance:
                everyone = []
                for done, (user, found) in enumerate(lists, start=1):
                    everyone.append({"user": user, "items": item_fields(found)})
                    advance(done, total)
            return {"lists": everyone, **fields}

        return Result(document, text(), notes=() if wants_json() else notes)


def with_titles(model: Estimator, file: Path | None) -> Estimator:
    """Return the model with titles, genres and years of items from a file, if there is one."""
    if file is None:
        return model
    from hdpmf.common.data.item_files import read_item_table

    table = read_item_table(file)
    items = model.catalogue_.items
    if table.index.is_integer and not items.is_integer:
        table = table.with_text_ids()
    if not (table.index.find(items.ids) >= 0).any():
        raise ConfigError(f"{file} has no item of this model; are its ids the same?")
    model.catalogue_ = replace(model.catalogue_, item_table=table)
    return model


def read_ids(path: Path) -> list[str]:
    """Return the ids in a file, one on each line."""
    found = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    if not found:
        raise ConfigError(f"there is no id in {path}; it should have one on each line")
    return found


def item_fields(recommended: Iterable[Recommendation]) -> list[dict[str, Any]]:
    """Return recommended items for JSON."""
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


def list_table(recommended: Sequence[Recommendation], title: str | None = None) -> Table:
    """Return recommended items as a table, the best first; empty columns are left out."""
    columns = {
        "rank": [str(rank) for rank in range(1, len(recommended) + 1)],
        "item": [str(entry.item) for entry in recommended],
        "expected": ["" if each.score is None else f"{each.score:.2f}" for each in recommended],
        "title": [entry.title or "" for entry in recommended],
        "year": [_year_apart(entry) for entry in recommended],
        "genres": [", ".join(entry.genres) for entry in recommended],
        "why": [entry.reason or "" for entry in recommended],
    }
    names = [name for name, cells in columns.items() if name in ("rank", "item") or any(cells)]
    rows = list(zip(*(columns[name] for name in names), strict=True))
    return Table(names, rows, numeric=("rank", "expected", "year"), title=title)


def _year_apart(entry: Recommendation) -> str:
    """Return the year, unless the title has it."""
    has_it = entry.year is None or str(entry.year) in (entry.title or "")
    return "" if has_it else str(entry.year)


_CSV = ("user", "rank", "item", "title", "year", "genres", "expected", "reason")


def _csv_rows(user: Id, recommended: Sequence[Recommendation]) -> Iterator[tuple[object, ...]]:
    for rank, entry in enumerate(recommended, start=1):
        genres = "|".join(entry.genres)
        expected = None if entry.score is None else f"{entry.score:.4f}"
        yield user, rank, entry.item, entry.title, entry.year, genres, expected, entry.reason


Titles = Annotated[
    Path | None,
    option("Titles, genres and years of items: CSV, TSV or Parquet.", "FILE", "--titles"),
]


@command
def recommend(
    folder: ModelFolder,
    options: ListOptions,
    users: Annotated[
        list[str] | None, argument("Ids of users, as in the ratings.", "[USER]...")
    ] = None,
    users_file: Annotated[
        Path | None, option("The users of this file, an id per line.", "FILE", "--users")
    ] = None,
    all_users: AllUsers = False,
    titles: Titles = None,
) -> Result:
    """Print the items that each USER would soonest choose and like, and the reasons."""
    from hdpmf.models import load_model

    if bool(users) + (users_file is not None) + all_users != 1:
        raise ConfigError("name the users: USER..., --users FILE or --all-users")
    model = with_titles(load_model(folder), titles)
    known = model.devices_.users
    if all_users:
        ids = known.ids.tolist()
    else:
        texts = users or (read_ids(users_file) if users_file is not None else [])
        ids = [_known_user(known, text) for text in texts]
    only = options.only(model.catalogue_.items.parse)
    return options.result(
        model.recommend_each(ids, options.number, keep_rated=options.keep_rated, only=only),
        {"model": type(model).__name__, **claim_fields(model.privacy)},
        alone=users[0] if users and len(users) == 1 else None,
        total=len(ids),
        end=privacy_line(model.privacy, "explain", folder),
    )


def _known_user(known: IdIndex, text: str) -> Id:
    try:
        return known.parse(text)
    except UnknownIdError as error:
        raise UnknownIdError(
            f"no such user in the model: {error}; {hint('fold-in')} takes new users in"
        ) from error


@command
def predict(
    folder: ModelFolder,
    user: Annotated[str, argument("The id of a user, as in the ratings.", "USER")],
    items: Annotated[list[str], argument("Ids of items, as in the ratings.", "ITEM...")],
    titles: Titles = None,
    csv: CsvOutput = False,
) -> Result:
    """Print the ratings that USER would give each ITEM, by a saved model.

    An item that was not in training gets the user's own mean, a user who was not the middle of the
    scale.
    """
    from hdpmf.models import load_model

    refuse_two_formats(csv)
    model = with_titles(load_model(folder), titles)
    if not model.predicts_ratings:
        raise ConfigError(
            f"{type(model).__name__} orders items and predicts no ratings; hdpmf recommend "
            "prints its lists"
        )
    catalogue = model.catalogue_
    user_id = _parse_id(user, model.devices_.users, "user")
    known_user = user_id in model.devices_.users
    ids = [_parse_id(text, catalogue.items, "item") for text in items]
    names: dict[Any, str] = {}
    if catalogue.item_table is not None:
        table = catalogue.item_table
        names = dict(zip(table.ids.tolist(), table.titles, strict=True))
    rows: list[dict[str, Any]] = [
        {
            "item": item,
            "title": names.get(item) or None,
            "expected": rating,
            "in_training": known_user and item in catalogue.items,
        }
        for item, rating in zip(ids, model.predict(user_id, ids).tolist(), strict=True)
    ]
    fields = {
        "user": user,
        "predictions": rows,
        "model": type(model).__name__,
        **claim_fields(model.privacy),
    }
    if csv:
        return Result(fields, [Csv(("user", *rows[0]), ((user, *row.values()) for row in rows))])
    unknown = "was not in training" if known_user else "this user was not in training"
    cells = [
        (
            str(row["item"]),
            row["title"] or "",
            f"{row['expected']:.2f}",
            "" if row["in_training"] else unknown,
        )
        for row in rows
    ]
    predictions = Table(("item", "title", "expected", ""), cells, numeric=("expected",))
    return Result(fields, [predictions, privacy_line(model.privacy, "explain", folder)])


def _parse_id(text: str, index: IdIndex, kind: str) -> Id:
    """Return an id of the index's type, known or not."""
    if not index.is_integer:
        return text
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{kind} {text!r}: the model's {kind} ids are integers") from None


@command
def fold_in(
    folder: ModelFolder,
    ratings: Annotated[Path, argument("Ratings of new users, on the model's scale.", "FILE")],
    out: Annotated[
        Path | None,
        option("Where to save.", "FOLDER", "--out", "-o", default="in place of the model"),
    ] = None,
    weight: Annotated[
        float | None,
        option(
            "The privacy weight of these users, above 0 and at most 1.",
            "W",
            default="1; with --update known users keep theirs",
        ),
    ] = None,
    replace: Annotated[
        bool, option("Users may be in the model already; these are all their ratings then.")
    ] = False,
    update: Annotated[
        bool, option("Users may be in the model already; these ratings are added to theirs then.")
    ] = False,
    items: Annotated[
        Path | None,
        option(
            "With --update: new items, with titles, genres, years and features as for train. They "
            "join the catalogue.",
            "FILE",
        ),
    ] = None,
    column: Columns = None,
    force: Annotated[bool, option("Replace another model in the folder of --out.")] = False,
) -> Result:
    """Add the users of FILE to a model: each vector is fitted to its user's ratings, locally."""
    from hdpmf.common.data import Ratings
    from hdpmf.models import load_model
    from hdpmf.models.later_ratings import FoldIn

    model = load_model(folder)
    if items is not None and not update:
        raise ConfigError("--items describes items for --update; give both, or drop it")
    before = len(model.devices_.users)
    new = Ratings.read(ratings, scale=model.catalogue_.scale, columns=parse_columns(column))
    if update and replace:
        raise ConfigError("--update adds ratings and --replace replaces them; choose one")
    if update:
        model.update(new, weight, items=items)
    elif not isinstance(model, FoldIn):
        raise ConfigError(
            f"{type(model).__name__} has no vectors to fit to new users; --update takes their "
            "ratings in"
        )
    else:
        model.fold_in(new, 1.0 if weight is None else weight, replace=replace)
    added = new.n_users
    unknown = int((model.catalogue_.items.find(new.items.ids)[new.item_codes] < 0).sum())
    target = folder if out is None else out
    model.save(target, replace=force or target == folder)
    text: list[Block] = [
        f"new users taken in: {added:,}; the model in {target} has {len(model.devices_.users):,}"
    ]
    if unknown:
        text.append(f"Ratings of items that the model does not know, left out: {unknown:,}")
    text += [
        "It learned from these ratings: it has no privacy."
        if model.learns_items_from_ratings
        else "Nothing was sent: their vectors were fitted to the public model, beside their "
        "ratings.",
        privacy_line(model.privacy, "explain", target),
    ]
    fields = {
        "out": str(target),
        "n_users": added,
        "n_before": before,
        "n_ratings_of_unknown_items": unknown,
    }
    return Result(fields, text)
