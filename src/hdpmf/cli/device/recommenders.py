"""``hdpmf device recommenders``: those that were joined; pause one, go on, leave. And everything as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import note, print_json, print_lines
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.device.store import DeviceStore
    from hdpmf.protocol.servers import Servers


@grouped
def recommenders(
    target: StoreOptions,
    address: Annotated[str | None, typer.Argument(metavar="[ADDRESS]", help="Which one.")] = None,
    pause: Annotated[bool, typer.Option("--pause", help="Answer it not at all for a while.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Answer it again.")] = False,
    leave: Annotated[bool, typer.Option("--leave", help="Answer it no more.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Leave it, and take its catalogue, model and pins out of the store.")
    ] = False,
    json: Json = False,
) -> None:
    """List the recommenders that you have joined, or pause, resume, leave or forget one (device open keeps to it)."""
    from hdpmf.device import joined as book

    if sum((pause, resume, leave, forget)) != (address is not None):
        raise ConfigError("give an ADDRESS with one of --pause, --resume, --leave and --forget, or neither")
    with target.open() as store:
        if address is not None and (leave or forget):
            (book.forget if forget else book.leave)(store, address)
            note("What it was sent cannot be recalled; the ledger keeps it.")
        elif address is not None:
            book.pause(store, address, pause)
        known = [(each, *_at_its_place(store.at(each.place))) for each in book.joined(store)]
    if json:
        fields = [
            {
                "address": each.address,
                "since": each.since,
                "paused": each.paused,
                "servers": None if pair is None else pair.digest,
                **facts,
            }
            for each, pair, facts in known
        ]
        print_json({"recommenders": fields})
        return
    if not known:
        print_lines("None. Join one: hdpmf device join STORE --invitation FILE")
    for each, pair, facts in known:
        roster = facts["roster"]
        if each.two_servers and pair is not None:
            sums = f"{pair.names}, digest {pair.digest}"
        elif roster is None:
            sums = "sums by masks, waiting for the roster (hdpmf device join STORE --roster FILE)"
        else:
            sums = f"sums by masks among {roster['devices']:,} devices, digest {roster['digest']}"
        items = "no catalogue yet" if facts["items"] is None else f"{facts['items']:,} items"
        model = "no model yet" if facts["model"] is None else f"model of run {facts['model'][:8]}"
        print_lines(f"{each.address}{' (paused)' if each.paused else ''}: {sums}; {items}, {model}")


def _at_its_place(store: DeviceStore) -> tuple[Servers | None, dict[str, Any]]:
    """The servers of a recommender, and what is here of it."""
    from hdpmf.device.local_model import kept_model
    from hdpmf.device.pair import pinned_servers
    from hdpmf.device.rosters import roster_fields

    items, model = store.pinned_catalogue, kept_model(store)
    return pinned_servers(store), {
        "items": None if items is None else len(items.positions),
        "shelf": store.shelf,
        "model": None if model is None else model.run,
        "roster": roster_fields(store),
    }


@grouped
def everything(target: StoreOptions) -> None:
    """Print all that the store knows about you as JSON: ratings, wishes, answers, all that was sent. No keys."""
    from hdpmf.device.everything import everything_fields

    with target.open(moved=True) as store:
        print_json(everything_fields(store))
