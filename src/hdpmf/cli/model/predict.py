"""``hdpmf predict``: the ratings that a saved model expects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.shared.lists import titled
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import claim_fields, claim_sentence, print_csv, print_json, print_lines, print_table
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.ratings import Id, IdIndex


def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model that hdpmf train saved.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="The id of a user, as in the ratings.")],
    items: Annotated[list[str], typer.Argument(metavar="ITEM...", help="Ids of items, as in the ratings.")],
    titles: Annotated[
        Path | None, typer.Option("--titles", metavar="FILE", help="Titles of items: CSV, TSV or Parquet.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
) -> None:
    """Print the ratings that USER would give each ITEM, by a saved model.

    An item that was not in training gets the user's own mean, a user who was not the middle of the scale.
    """
    from hdpmf.models import load_model

    if csv and json:
        raise ConfigError("print --csv or --json, not both")
    model = titled(load_model(folder), titles)
    if not model.predicts_ratings:
        raise ConfigError(
            f"{type(model).__name__} orders items and predicts no ratings; hdpmf recommend prints its lists"
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
        print_json({"user": user, "predictions": rows, "model": type(model).__name__, **claim_fields(model.privacy)})
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
                "" if row["in_training"] else "was not in training" if known_user else "this user was not in training",
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
