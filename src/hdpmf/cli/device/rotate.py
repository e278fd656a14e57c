"""``hdpmf device rotate``: new keys for a device that stays the same device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import confirm, note, print_json, print_lines
from hdpmf.errors import ConfigError


@grouped
def rotate(
    target: StoreOptions,
    card: Annotated[
        Path | None,
        typer.Option("--card", metavar="FILE", help="Where the signed card goes.", show_default="STORE.signed.json"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Give this device a new identity and a new node key, and write a card that the old identity has signed."""
    from hdpmf.device import rotation
    from hdpmf.files import atomic_write

    place = target.path.with_name(target.path.name + ".signed.json") if card is None else card
    with target.open(serving=True) as store:
        note("Until its new card is enrolled in place of the old one, this device cannot take part in anything.")
        if not yes:
            if not sys.stdin.isatty():
                raise ConfigError("new keys cannot be undone: confirm with --yes")
            confirm(f"Make new keys for {target.path}?")
        old = store.identity.public.hex()
        made = rotation.rotate(store)
        atomic_write(place, made.to_json())
    new = made.links[-1].card
    if json:
        facts = {"store": str(target.path), "card": str(place), "name": new.name, "identity": new.identity, "was": old}
        print_json(facts)
        return
    print_lines(
        f"{new.name} has new keys: identity {new.identity} (was {old[:16]}...).",
        f"Hand {place} to the recommender: hdpmf recommender enroll FOLDER {place.name} --replaces {new.name}",
        "That changes the roster, for every device: compare the new digest, then join with --roster FILE --new-roster",
    )
