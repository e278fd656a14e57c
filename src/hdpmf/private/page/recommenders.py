"""The page "Recommenders": join after comparing a digest, pause, leave."""

from __future__ import annotations

from typing import Any

import msgspec

from hdpmf.common.net.certificates import check_authority
from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.errors import ConfigError
from hdpmf.private.device.device_identity import card_of
from hdpmf.private.device.memberships import (
    forget,
    join,
    joined_recommenders,
    known_recommenders,
    leave,
    pause,
    with_catalogue,
)
from hdpmf.private.device.pinned_servers import pinned_servers, roster_fields
from hdpmf.private.device.recommendations import kept_model
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Recommender
from hdpmf.private.page.request import PageRequest, short


def recommenders_page(request: PageRequest) -> dict[str, Any]:
    """Return the joined recommenders and the invitation under review."""
    with request.owner.store() as store:
        invited = request.session.state.get("invitation")
        return {
            "joined": [
                _known(store.at(known.id), known)
                | {"now": request.owner.background.state(known.address)}
                for known in joined_recommenders(store)
            ],
            "left": [
                known.address
                for known in known_recommenders(store)
                if known.left and _anything(store.at(known.id))
            ],
            "invited": invited,
            "why_not": request.owner.background.problem,
            "log": request.owner.background.log_lines(),
        }


def _known(store: DeviceStore, known: Recommender) -> dict[str, Any]:
    """Return a recommender and its data on this device."""
    pair = pinned_servers(store)
    items = store.pinned_catalogue
    model = kept_model(store)
    others = (
        each
        for each, view in with_catalogue(store)
        if each != known and view.item_namespace == store.item_namespace
    )
    return {
        "address": known.address,
        "since": known.since,
        "paused": known.paused,
        "roster": roster_fields(store),
        "names": "" if pair is None else pair.names,
        "digest": "" if pair is None else pair.digest,
        "runs": len(
            {entry.run for entry in store.ledger.entries() if entry.recommender == known.address}
        ),
        "n_items": None if items is None else len(items.positions),
        "model": "" if model is None else model.run[:8],
        "shared_with": [] if items is None else [short(each.address) for each in others],
    }


def _anything(store: DeviceStore) -> bool:
    """Return True if the store still has data of a recommender that was left."""
    return store.pinned_catalogue is not None or kept_model(store) is not None


def choose(request: PageRequest) -> str:
    """Show the items of another recommender."""
    back = request.text("back")
    if not request.recommender_id or back not in ("/rate", "/recommendations", "/privacy"):
        raise ConfigError(request.t("recommenders.no_such"))
    request.choose(request.recommender_id)
    return back


def preview_invitation(request: PageRequest) -> str:
    """Preview an invitation from a file or a link. Nothing is pinned yet."""
    found = Invitation.read(request.body or request.text("link", 100_000).encode())
    if found.authority:
        check_authority(found.authority.encode())
    request.session.state["invitation"] = found
    return "/recommenders"


def answer_invitation(request: PageRequest) -> str:
    """Join the recommender of the previewed invitation, or drop it."""
    found = request.session.state.get("invitation")
    # Another tab may look at another one.
    if not isinstance(found, Invitation) or found.digest != request.text("digest"):
        raise ConfigError(request.t("recommenders.no_invitation"))
    del request.session.state["invitation"]
    if request.text("answer") == "yes":
        with request.owner.store() as store:
            join(store, found)
        request.owner.background.refresh()
        request.session.note(
            request.t(
                "recommenders.joined_direct" if found.servers is None else "recommenders.joined_now"
            )
        )
    return "/recommenders"


def card(request: PageRequest) -> bytes:
    """Return the device's public card."""
    with request.owner.store() as store:
        return msgspec.json.format(msgspec.json.encode(card_of(store)), indent=1)


def change(request: PageRequest) -> str:
    """Pause, resume or leave a recommender."""
    address = request.text("address")
    wanted = request.text("change")
    with request.owner.store() as store:
        if wanted in ("pause", "resume"):
            pause(store, address, wanted == "pause")
        elif wanted == "leave":
            leave(store, address)
        elif wanted == "forget":
            forget(store, address)
        else:
            raise ConfigError(request.t("recommenders.no_such"))
    request.owner.background.refresh()
    request.session.note(request.t(f"recommenders.done.{wanted}"))
    return "/recommenders"
