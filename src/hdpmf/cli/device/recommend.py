"""``hdpmf device recommend``: lists that the device makes by itself, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from hdpmf.cli.device.store import PlaceOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.lists import AllUsers, ListQuestion, print_lists
from hdpmf.cli.shared.output import note
from hdpmf.errors import ConfigError


@grouped
def recommend(
    target: PlaceOptions,
    question: ListQuestion,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="NAME", help="Whose, on a device of several users.", show_default="me"),
    ] = None,
    all_users: AllUsers = False,
) -> None:
    """Print the items that you would soonest choose and like, and why. Computed here; nothing is sent."""
    if user and all_users:
        raise ConfigError("say --user or --all-users, not both")
    names = user or ["me"]
    with target.open(moved=True) as store:
        from hdpmf.device.for_you import hidden_ids, without
        from hdpmf.device.local_model import kept_model, recommend_each

        model, hidden = kept_model(store), hidden_ids(store)
        run, method = ("", "") if model is None else (model.run, model.method)
        print_lists(
            without(
                hidden,
                question.number,
                recommend_each(
                    store,
                    None if all_users else names,
                    question.number + len(hidden),
                    keep_rated=question.keep_rated,
                    only=question.only(),
                ),
            ),
            question,
            {"method": method, "run": run},
            alone=names[0] if len(names) == 1 and not all_users else None,
            total=store.users if all_users else len(names),
        )
    if not (question.json or question.csv):
        note(f"From the model of run {run[:8]} ({method}) and your own ratings, on this device; nothing was sent.")
