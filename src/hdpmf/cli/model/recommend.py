"""``hdpmf recommend``: the best items for a user of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import (
    claim_fields,
    claim_sentence,
    item_fields,
    print_items,
    print_json,
    print_lines,
)


def recommend(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model that hdpmf train saved.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="The user's id, as in the ratings.")],
    n: Annotated[int, typer.Option("-n", "--number", metavar="N", help="How many items.")] = 10,
    json: Json = False,
) -> None:
    """Print the items that USER has not rated and would rate best."""
    from hdpmf.models import load_model

    model = load_model(folder)
    found = model.recommend(model.devices_.users.parse(user), n)
    if json:
        print_json(
            {
                "user": user,
                "model": type(model).__name__,
                "items": item_fields(found),
                **claim_fields(model.privacy),
            }
        )
        return
    print_items(found)
    print_lines(claim_sentence(model.privacy))
