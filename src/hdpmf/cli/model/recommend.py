"""``hdpmf recommend``: the best items for a user of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared import options
from hdpmf.cli.shared.output import claim_fields, claim_sentence, hdpmf_version, print_json, print_lines, print_table


def recommend(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model that hdpmf train saved.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="The user's id, as in the ratings.")],
    n: Annotated[int, typer.Option("-n", "--number", metavar="N", help="How many items.")] = 10,
    json: options.Json = False,
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
                "items": [{"item": one.item, "title": one.title, "score": one.score} for one in found],
                **claim_fields(model.privacy),
                "hdpmf_version": hdpmf_version(),
            }
        )
        return
    with_titles = any(one.title for one in found)
    columns = ("rank", "item", "expected", "title")[: 4 if with_titles else 3]
    rows = [
        (str(rank), str(one.item), f"{one.score:.2f}", one.title or "")[: len(columns)]
        for rank, one in enumerate(found, start=1)
    ]
    print_table(columns, rows, numeric=("rank", "expected"))
    print_lines(claim_sentence(model.privacy))
