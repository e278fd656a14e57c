"""The page "Recommenders": join after comparing a digest, pause, leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from hdpmf.common.net.certificates import check_authority
from hdpmf.common.protocol.invitation import Invitation
from hdpmf.errors import ConfigError
from hdpmf.private.device.device_identity import card_of
from hdpmf.private.device.joined import (
    Joined,
    ever_joined,
    forget,
    join,
    joined,
    leave,
    pause,
    with_catalogue,
)
from hdpmf.private.device.pinned_servers import (
    look_at_roster,
    pin_roster,
    pinned_digest,
    pinned_servers,
    roster_fields,
)
from hdpmf.private.device.recommendations import kept_model
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.page.request import PageRequest, short

_ROSTER = "roster"


@dataclass(frozen=True, slots=True)
class _Looked:
    """A roster that the owner looks at.

    Attributes:
        address: The recommender that it is for.
        data: The file.
    """

    address: str
    devices: int
    users: int
    digest: str
    data: bytes = field(repr=False)


def recommenders_page(visit: PageRequest) -> dict[str, Any]:
    """Those that are joined, and the invitation that is looked at."""
    with visit.owner.store() as store:
        invited = visit.session.held.get("invitation")
        return {
            "joined": [
                _known(store.at(known.place), known) | _at_the_moment(visit, known)
                for known in joined(store)
            ],
            "left": [
                known.address
                for known in ever_joined(store)
                if known.left and _anything(store.at(known.place))
            ],
            "invited": invited,
            "why_not": visit.owner.answering.why_not,
            "log": visit.owner.answering.said(),
        }


def _known(store: DeviceStore, known: Joined) -> dict[str, Any]:
    """A recommender, and what is here of it. Items that others have, too, are rated once and
    paid for once.
    """
    pair = pinned_servers(store) if known.two_servers else None
    items, model = store.pinned_catalogue, kept_model(store)
    others = (
        each
        for each, place in with_catalogue(store)
        if each != known and place.shelf == store.shelf
    )
    return {
        "address": known.address,
        "since": known.since,
        "paused": known.paused,
        "masks": not known.two_servers,
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


def _at_the_moment(visit: PageRequest, known: Joined) -> dict[str, Any]:
    """How the connection is, and the roster that the owner looks at, if it is for this
    recommender.
    """
    looked = visit.session.held.get(_ROSTER)
    given = looked if isinstance(looked, _Looked) and looked.address == known.address else None
    return {"now": visit.owner.answering.state(known.address), "roster_given": given}


def _anything(store: DeviceStore) -> bool:
    """Whether something of a recommender that was left is still here."""
    return store.pinned_catalogue is not None or kept_model(store) is not None


def choose(visit: PageRequest) -> str:
    """Show the items of another recommender."""
    back = visit.text("back")
    if not visit.place or back not in ("/rate", "/for-you", "/privacy"):
        raise ConfigError(visit.t("recommenders.no_such"))
    visit.choose(visit.place)
    return back


def look_at_invitation(visit: PageRequest) -> str:
    """An invitation from a file or a link: who, and what to compare. Nothing is pinned yet."""
    found = Invitation.read(visit.body or visit.text("link", 100_000).encode())
    if found.authority:
        check_authority(found.authority.encode())
    visit.session.held["invitation"] = found
    return "/recommenders"


def answer_invitation(visit: PageRequest) -> str:
    """Join the recommender whose digest was compared, or not."""
    found = visit.session.held.get("invitation")
    if not isinstance(found, Invitation) or found.digest != visit.text(
        "digest"
    ):  # another tab may look at another one
        raise ConfigError(visit.t("recommenders.no_invitation"))
    del visit.session.held["invitation"]
    if visit.text("answer") == "yes":
        with visit.owner.store() as store:
            join(store, found)
        visit.owner.answering.refresh()
        visit.session.note(
            visit.t(
                "recommenders.joined_masks" if found.servers is None else "recommenders.joined_now"
            )
        )
    return "/recommenders"


def look_into_roster(visit: PageRequest) -> str:
    """A roster from a file: how many there are, and what to compare. Nothing is pinned yet."""
    address = visit.text("address")
    visit.session.held.pop(_ROSTER, None)
    with visit.owner.store() as store:
        found = look_at_roster(_by_masks(visit, store, address), visit.body)
    users = found.count_users(found.users)
    visit.session.held[_ROSTER] = _Looked(address, len(found), users, found.digest, visit.body)
    return "/recommenders"


def answer_roster(visit: PageRequest) -> str:
    """Pin the roster whose digest was compared, or not; another one than before only with one
    more yes.
    """
    looked = visit.session.held.get(_ROSTER)
    if not isinstance(looked, _Looked) or looked.digest != visit.text("digest"):
        raise ConfigError(visit.t("recommenders.no_roster"))
    if visit.text("answer") == "yes":
        with visit.owner.store() as store:
            place, sure = _by_masks(visit, store, looked.address), visit.text("sure") == "yes"
            if pinned_digest(place) not in ("", looked.digest) and not sure:
                raise ConfigError(visit.t("recommenders.other_roster_sure"))
            pin_roster(place, looked.data, new=sure)
        visit.owner.answering.refresh()
        visit.session.note(visit.t("recommenders.roster_pinned"))
    visit.session.held.pop(_ROSTER, None)
    return "/recommenders"


def _by_masks(visit: PageRequest, store: DeviceStore, address: str) -> DeviceStore:
    """The store at the place of a recommender that sums by masks."""
    known = next(
        (each for each in joined(store) if each.address == address and not each.two_servers), None
    )
    if known is None:
        raise ConfigError(visit.t("recommenders.no_such"))
    return store.at(known.place)


def card(visit: PageRequest) -> bytes:
    """The device's card, for recommenders that want to know who takes part. There is no secret
    in it.
    """
    with visit.owner.store() as store:
        return msgspec.json.format(msgspec.json.encode(card_of(store)), indent=1)


def change(visit: PageRequest) -> str:
    """Pause, go on, or leave."""
    address, wanted = visit.text("address"), visit.text("change")
    with visit.owner.store() as store:
        if wanted in ("pause", "resume"):
            pause(store, address, wanted == "pause")
        elif wanted == "leave":
            leave(store, address)
        elif wanted == "forget":
            forget(store, address)
        else:
            raise ConfigError(visit.t("recommenders.no_such"))
    visit.owner.answering.refresh()
    visit.session.note(visit.t(f"recommenders.done.{wanted}"))
    return "/recommenders"
