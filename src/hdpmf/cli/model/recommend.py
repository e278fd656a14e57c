"""``hdpmf recommend``: the best items for users of a saved model, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.lists import AllUsers, ListQuestion, print_lists, read_ids, titled
from hdpmf.cli.shared.output import claim_fields, claim_sentence, print_lines
from hdpmf.errors import ConfigError, UnknownIdError
from hdpmf.wording import say

if TYPE_CHECKING:
    from hdpmf.ratings import Id, IdIndex


@grouped
def recommend(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model that hdpmf train saved.")],
    question: ListQuestion,
    users: Annotated[
        list[str] | None, typer.Argument(metavar="[USER]...", help="Ids of users, as in the ratings.")
    ] = None,
    users_file: Annotated[
        Path | None, typer.Option("--users", metavar="FILE", help="The users of this file, an id on each line.")
    ] = None,
    all_users: AllUsers = False,
    titles: Annotated[
        Path | None,
        typer.Option("--titles", metavar="FILE", help="Titles, genres and years of items: CSV, TSV or Parquet."),
    ] = None,
) -> None:
    """Print the items that each USER would soonest choose and like, and why: the largest part of the score."""
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
        raise UnknownIdError(f"no such user in the model: {error}; {say('fold-in')} takes new users in") from error
