"""``hdpmf recommend``, ``hdpmf predict`` and ``hdpmf fold-in``: use a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import Columns, CsvOutput, ModelFolder, argument, command, option
from hdpmf.cli.options.ratings import parse_columns
from hdpmf.cli.output import Block, Csv, Result, Table, claim_fields, claim_sentence
from hdpmf.cli.recommendations import (
    AllUsers,
    ListOptions,
    read_ids,
    refuse_two_formats,
    with_titles,
)
from hdpmf.common.base.hints import hint
from hdpmf.errors import ConfigError, UnknownIdError

if TYPE_CHECKING:
    from hdpmf.common.data import Id, IdIndex

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
        raise ConfigError("say for whom: USER, several of them, --users FILE or --all-users")
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
        end=claim_sentence(model.privacy),
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
    return Result(fields, [predictions, claim_sentence(model.privacy)])


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
        float, option("The privacy weight of these users, above 0 and at most 1.", "W")
    ] = 1.0,
    replace: Annotated[
        bool, option("Users may be in the model already; these are all their ratings then.")
    ] = False,
    column: Columns = None,
) -> Result:
    """Add the users of FILE to a model: each vector is fitted to its user's ratings, locally."""
    from hdpmf.common.data import Ratings
    from hdpmf.models import load_model
    from hdpmf.models.factorization import Factorization
    from hdpmf.models.one_round import OneRound

    model = load_model(folder)
    if not isinstance(model, Factorization | OneRound):
        raise ConfigError(
            f"{type(model).__name__} cannot take in users; train it again with their ratings"
        )
    before = len(model.devices_.users)
    new = Ratings.read(ratings, scale=model.catalogue_.scale, columns=parse_columns(column))
    added = len(model.fold_in(new, weight, replace=replace))
    unknown = int((model.catalogue_.items.find(new.items.ids)[new.item_codes] < 0).sum())
    target = folder if out is None else out
    model.save(target)
    text: list[Block] = [
        f"new users taken in: {added:,}; the model in {target} has {len(model.devices_.users):,}"
    ]
    if unknown:
        text.append(f"Ratings of items that the model does not know, left out: {unknown:,}")
    fields = {
        "out": str(target),
        "n_users": added,
        "n_before": before,
        "n_ratings_of_unknown_items": unknown,
    }
    return Result(fields, text)
