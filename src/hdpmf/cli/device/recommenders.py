"""``hdpmf device recommenders``: those that were joined; pause one, go on, leave. And everything as JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import note, print_json, print_lines
from hdpmf.errors import ConfigError


@grouped
def recommenders(
    target: StoreOptions,
    address: Annotated[str | None, typer.Argument(metavar="[ADDRESS]", help="Which one.")] = None,
    pause: Annotated[bool, typer.Option("--pause", help="Answer it not at all for a while.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Answer it again.")] = False,
    leave: Annotated[bool, typer.Option("--leave", help="Answer it no more.")] = False,
    json: Json = False,
) -> None:
    """List the recommenders that you have joined, or pause, resume or leave one (hdpmf device open keeps to it)."""
    from hdpmf.device import joined as book

    if sum((pause, resume, leave)) != (address is not None):
        raise ConfigError("give an ADDRESS with one of --pause, --resume and --leave, or neither")
    with target.open() as store:
        if address is not None and leave:
            book.leave(store, address)
            note("What it was sent cannot be recalled; the ledger keeps it.")
        elif address is not None:
            book.pause(store, address, pause)
        known = book.joined(store)
    if json:
        fields = [
            {
                "address": each.address,
                "since": each.since,
                "paused": each.paused,
                "servers": None if each.servers is None else each.servers.digest,
            }
            for each in known
        ]
        print_json({"recommenders": fields})
        return
    if not known:
        print_lines("None. Join one: hdpmf device join STORE --invitation FILE")
    for each in known:
        sums = "sums by masks" if each.servers is None else f"{each.servers.names}, digest {each.servers.digest}"
        print_lines(f"{each.address}{' (paused)' if each.paused else ''}: {sums}")


@grouped
def everything(target: StoreOptions) -> None:
    """Print all that the store knows about you as JSON: ratings, wishes, answers, all that was sent. No keys."""
    from hdpmf.device.everything import everything_fields

    with target.open(moved=True) as store:
        print_json(everything_fields(store))
