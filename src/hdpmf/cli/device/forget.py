"""``hdpmf device forget``: take things out of a store, for good."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import confirm, note, print_json, print_lines
from hdpmf.errors import ConfigError

_LEDGER_STAYS = (
    "The ledger stays: it is what keeps a rating from being spent twice, should it come back. What was refused "
    "and receipts stay, too: they are about recommenders. None of it holds a rating."
)
_LEDGER_GOES = (
    "This deletes the ledger too. A new store knows nothing of what was sent: the same ratings would be spent a second "
    "time, and what recommenders have learned from both times adds up. The identity goes as well: a new device has to "
    "be enrolled anew."
)


@grouped
def forget(
    target: StoreOptions,
    ratings: Annotated[
        bool, typer.Option("--ratings", help="Ratings, weights, vectors and the run under way.")
    ] = False,
    vectors: Annotated[bool, typer.Option("--vectors", help="Your vectors, the model, the run under way.")] = False,
    model: Annotated[bool, typer.Option("--model", help="As --vectors, and the catalogue: to take a new one.")] = False,
    everything: Annotated[bool, typer.Option("--everything", help="The whole store: ledger and identity too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Take ratings, vectors, the model or everything out of the store, for good. There is no way back."""
    if not (ratings or vectors or model or everything):
        raise ConfigError("say what to forget: --ratings, --vectors, --model or --everything")
    what = "everything" if everything else ", ".join(
        word for word, chosen in (("ratings", ratings), ("vectors", vectors), ("model", model)) if chosen
    )  # fmt: skip
    with target.open(serving=True, moved=True) as store:  # not while a run is being answered
        note(_LEDGER_GOES if everything else _LEDGER_STAYS)
        if not yes:
            if not sys.stdin.isatty():
                raise ConfigError(f"forgetting cannot be undone: confirm with --yes that {what} should go")
            confirm(f"Forget {what} of {target.path}?")
        if everything:
            store.destroy()
        else:
            store.forget(ratings=ratings, model=model)
    if json:
        print_json({"store": str(target.path), "forgotten": what, "ledger_kept": not everything})  # fmt: skip
        return
    print_lines(f"Forgotten: {what}.")
