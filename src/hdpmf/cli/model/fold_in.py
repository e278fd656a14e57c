"""``hdpmf fold-in``: take new users into a saved model, on this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared.options import Columns, Json
from hdpmf.cli.shared.output import print_json, print_lines
from hdpmf.cli.shared.ratings import pairs
from hdpmf.errors import ConfigError


def fold_in(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model that hdpmf train saved.")],
    ratings: Annotated[Path, typer.Argument(metavar="FILE", help="Ratings of new users, on the model's scale.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FOLDER", help="Where to save.", show_default="in place of the model"),
    ] = None,
    weight: Annotated[
        float, typer.Option("--weight", metavar="W", help="The privacy weight of these users, above 0 and at most 1.")
    ] = 1.0,
    replace: Annotated[
        bool, typer.Option("--replace", help="Users may be in the model already; these are all their ratings then.")
    ] = False,
    column: Columns = None,
    json: Json = False,
) -> None:
    """Take the users of FILE into a model: each one's vector is fitted to their ratings, and nothing is sent."""
    from hdpmf.models import load_model
    from hdpmf.models.factorization import Factorization
    from hdpmf.models.one_round import OneRound
    from hdpmf.ratings import Ratings

    model = load_model(folder)
    if not isinstance(model, Factorization | OneRound):
        raise ConfigError(f"{type(model).__name__} cannot take in users; train it again with their ratings")
    before = len(model.devices_.users)
    columns = dict(pairs(column, "--column", "user=customer")) if column else None
    new = Ratings.read(ratings, scale=model.catalogue_.scale, columns=columns)
    taken = len(model.fold_in(new, weight, replace=replace))
    unknown = int((model.catalogue_.items.find(new.items.ids)[new.item_codes] < 0).sum())
    target = folder if out is None else out
    model.save(target)
    if json:
        print_json({"out": str(target), "n_users": taken, "n_before": before, "n_ratings_of_unknown_items": unknown})
        return
    print_lines(f"new users taken in: {taken:,}; the model in {target} has {len(model.devices_.users):,}")
    if unknown:
        print_lines(f"Ratings of items that the model does not know, left out: {unknown:,}")
