"""The page "Recommenders": join with a digest to compare, pause, leave."""

from __future__ import annotations

from typing import Any

import msgspec

from hdpmf.device.card import card_of
from hdpmf.device.joined import Joined, join, joined, leave, pause, with_catalogue
from hdpmf.device.local_model import kept_model
from hdpmf.device.pair import pinned_servers
from hdpmf.device.store import DeviceStore
from hdpmf.errors import ConfigError
from hdpmf.page.visit import Visit, short
from hdpmf.protocol.invitation import Invitation
from hdpmf.transport.certificates import check_authority


def recommenders_page(visit: Visit) -> dict[str, Any]:
    """Those that are joined, and the invitation that is looked at."""
    with visit.owner.store() as store:
        invited = visit.session.held.get("invitation")
        return {
            "joined": [_known(store.at(known.place), known) for known in joined(store)],
            "invited": invited,
            "why_not": visit.owner.answering.why_not,
            "log": visit.owner.answering.said(),
        }


def _known(store: DeviceStore, known: Joined) -> dict[str, Any]:
    """A recommender, and what is here of it. Items that others have, too, are rated once and paid for once."""
    pair, items, model = pinned_servers(store), store.pinned_catalogue, kept_model(store)
    others = (each for each, place in with_catalogue(store) if each != known and place.shelf == store.shelf)
    return {
        "address": known.address,
        "since": known.since,
        "paused": known.paused,
        "names": "" if pair is None else pair.names,
        "digest": "" if pair is None else pair.digest,
        "runs": len({entry.run for entry in store.ledger.entries() if entry.recommender == known.address}),
        "n_items": None if items is None else len(items.positions),
        "model": "" if model is None else model.run[:8],
        "shared_with": [] if items is None else [short(each.address) for each in others],
    }


def choose(visit: Visit) -> str:
    """Show the items of another recommender."""
    back = visit.text("back")
    if not visit.place or back not in ("/rate", "/for-you", "/privacy"):
        raise ConfigError(visit.t("recommenders.no_such"))
    visit.choose(visit.place)
    return back


def look_at_invitation(visit: Visit) -> str:
    """An invitation from a file or a link: who, and what to compare. Nothing is pinned yet."""
    found = Invitation.read(visit.body or visit.text("link", 100_000).encode())
    if found.authority:
        check_authority(found.authority.encode())
    visit.session.held["invitation"] = found
    return "/recommenders"


def answer_invitation(visit: Visit) -> str:
    """Join the recommender whose digest was compared, or not."""
    found = visit.session.held.pop("invitation", None)
    if not isinstance(found, Invitation):
        raise ConfigError(visit.t("recommenders.no_invitation"))
    if visit.text("answer") == "yes":
        with visit.owner.store() as store:
            join(store, found)
        visit.owner.answering.refresh()
        visit.session.note(visit.t("recommenders.joined_now"))
    return "/recommenders"


def card(visit: Visit) -> bytes:
    """The device's card, for recommenders that want to know who takes part. There is no secret in it."""
    with visit.owner.store() as store:
        return msgspec.json.format(msgspec.json.encode(card_of(store)), indent=1)


def change(visit: Visit) -> str:
    """Pause, go on, or leave."""
    address, wanted = visit.text("address"), visit.text("change")
    with visit.owner.store() as store:
        if wanted in ("pause", "resume"):
            pause(store, address, wanted == "pause")
        elif wanted == "leave":
            leave(store, address)
        else:
            raise ConfigError(visit.t("recommenders.no_invitation"))
    visit.owner.answering.refresh()
    visit.session.note(visit.t(f"recommenders.done.{wanted}"))
    return "/recommenders"
