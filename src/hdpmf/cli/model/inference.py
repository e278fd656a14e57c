"""``hdpmf recommend``, ``hdpmf predict`` and ``hdpmf fold-in``: use a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import Columns, Json, with_option_groups
from hdpmf.cli.options.ratings import pairs
from hdpmf.cli.output import (
    claim_fields,
    claim_sentence,
    print_csv,
    print_json,
    print_lines,
    print_table,
)
from hdpmf.cli.recommendations import AllUsers, RecommendationOptions, print_lists, read_ids, titled
from hdpmf.common.base.hints import say
from hdpmf.errors import ConfigError, UnknownIdError

if TYPE_CHECKING:
    from hdpmf.common.data import Id, IdIndex


@with_option_groups
def recommend(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A model that hdpmf train saved.")
    ],
    question: RecommendationOptions,
    users: Annotated[
        list[str] | None,
        typer.Argument(metavar="[USER]...", help="Ids of users, as in the ratings."),
    ] = None,
    users_file: Annotated[
        Path | None,
        typer.Option("--users", metavar="FILE", help="The users of this file, an id on each line."),
    ] = None,
    all_users: AllUsers = False,
    titles: Annotated[
        Path | None,
        typer.Option(
            "--titles",
            metavar="FILE",
            help="Titles, genres and years of items: CSV, TSV or Parquet.",
        ),
    ] = None,
) -> None:
    """Print the items that each USER would soonest choose and like, and why: the largest part of
    the score.
    """
    from hdpmf.models import load_model

    if bool(users) + (users_file is not None) + all_users != 1:
        raise ConfigError("say for whom: USER, several of them, --users FILE or --all-users")
    model = titled(load_model(folder), titles)
    known = model.devices_.users
    texts = users or (read_ids(users_file) if users_file is not None else [])
    ids = known.ids.tolist() if all_users else [_user(known, text) for text in texts]
    only = question.only(model.catalogue_.items.parse)
    print_lists(
        model.recommend_each(ids, question.number, keep_rated=question.keep_rated, only=only),
        question,
        {"model": type(model).__name__, **claim_fields(model.privacy)},
        alone=users[0] if users and len(users) == 1 else None,
        total=len(ids),
    )
    if not (question.json or question.csv):
        print_lines(claim_sentence(model.privacy))


def _user(known: IdIndex, text: str) -> Id:
    try:
        return known.parse(text)
    except UnknownIdError as error:
        raise UnknownIdError(
            f"no such user in the model: {error}; {say('fold-in')} takes new users in"
        ) from error


def predict(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A model that hdpmf train saved.")
    ],
    user: Annotated[
        str, typer.Argument(metavar="USER", help="The id of a user, as in the ratings.")
    ],
    items: Annotated[
        list[str], typer.Argument(metavar="ITEM...", help="Ids of items, as in the ratings.")
    ],
    titles: Annotated[
        Path | None,
        typer.Option("--titles", metavar="FILE", help="Titles of items: CSV, TSV or Parquet."),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
) -> None:
    """Print the ratings that USER would give each ITEM, by a saved model.

    An item that was not in training gets the user's own mean, a user who was not the middle of the
    scale.
    """
    from hdpmf.models import load_model

    if csv and json:
        raise ConfigError("print --csv or --json, not both")
    model = titled(load_model(folder), titles)
    if not model.predicts_ratings:
        raise ConfigError(
            f"{type(model).__name__} orders items and predicts no ratings; hdpmf recommend "
            "prints its lists"
        )
    users, catalogue = model.devices_.users, model.catalogue_
    user_id = _id(user, users, "user")
    known_user = user_id in users
    ids = [_id(text, catalogue.items, "item") for text in items]
    expected = model.predict(user_id, ids).tolist()
    names = (
        {}
        if catalogue.item_table is None
        else dict(zip(catalogue.item_table.ids.tolist(), catalogue.item_table.titles, strict=True))
    )
    rows: list[dict[str, Any]] = [
        {
            "item": item,
            "title": names.get(item) or None,
            "expected": rating,
            "in_training": known_user and item in catalogue.items,
        }
        for item, rating in zip(ids, expected, strict=True)
    ]
    if json:
        print_json(
            {
                "user": user,
                "predictions": rows,
                "model": type(model).__name__,
                **claim_fields(model.privacy),
            }
        )
        return
    if csv:
        print_csv(("user", *rows[0]), ((user, *row.values()) for row in rows))
        return
    print_table(
        ("item", "title", "expected", ""),
        [
            (
                str(row["item"]),
                row["title"] or "",
                f"{row['expected']:.2f}",
                ""
                if row["in_training"]
                else "was not in training"
                if known_user
                else "this user was not in training",
            )
            for row in rows
        ],
        numeric=("expected",),
    )
    print_lines(claim_sentence(model.privacy))


def _id(text: str, index: IdIndex, what: str) -> Id:
    """An id of the index's kind, known or not."""
    if not index.is_integer:
        return text
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{what} {text!r}: the model's {what} ids are integers") from None


def fold_in(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A model that hdpmf train saved.")
    ],
    ratings: Annotated[
        Path, typer.Argument(metavar="FILE", help="Ratings of new users, on the model's scale.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Where to save.",
            show_default="in place of the model",
        ),
    ] = None,
    weight: Annotated[
        float,
        typer.Option(
            "--weight",
            metavar="W",
            help="The privacy weight of these users, above 0 and at most 1.",
        ),
    ] = 1.0,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Users may be in the model already; these are all their ratings then."
        ),
    ] = False,
    column: Columns = None,
    json: Json = False,
) -> None:
    """Take the users of FILE into a model: each one's vector is fitted to their ratings, and
    nothing is sent.
    """
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
    columns = dict(pairs(column, "--column", "user=customer")) if column else None
    new = Ratings.read(ratings, scale=model.catalogue_.scale, columns=columns)
    taken = len(model.fold_in(new, weight, replace=replace))
    unknown = int((model.catalogue_.items.find(new.items.ids)[new.item_codes] < 0).sum())
    target = folder if out is None else out
    model.save(target)
    if json:
        print_json(
            {
                "out": str(target),
                "n_users": taken,
                "n_before": before,
                "n_ratings_of_unknown_items": unknown,
            }
        )
        return
    print_lines(
        f"new users taken in: {taken:,}; the model in {target} has {len(model.devices_.users):,}"
    )
    if unknown:
        print_lines(f"Ratings of items that the model does not know, left out: {unknown:,}")
