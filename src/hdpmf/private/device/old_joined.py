"""The recommenders in a store of version 0.2.0, which kept one catalogue, one model and one
roster for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from hdpmf.common.protocol import AnyCatalogue, Terms
from hdpmf.common.protocol.catalogue import known_items, number_of, table_of, version_at
from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import ProtocolError, SecureSumError, StorageError
from hdpmf.private.device.recommendations import kept_model
from hdpmf.private.device.recommender_state import ReportBook, kept
from hdpmf.private.device.store.device_store import MODEL, DeviceStore
from hdpmf.private.device.store.tables import FIRST

_BEFORE, _LAST = "recommenders", "address"
_AUTHORITY, _CHANGED, _DIGEST = "authority", "authority-changed", "roster-digest"


class JoinedBefore(msgspec.Struct, frozen=True, kw_only=True):
    """A recommender as version 0.2.0 kept it."""

    address: str
    authority: bytes = b""
    servers: Servers | None = None
    since: str = ""
    paused: bool = False


def joined_before(store: DeviceStore) -> list[JoinedBefore] | None:
    """Those of version 0.2.0 that its owner had not left, the oldest first; None where that
    version was not here.
    """
    data = store.get(_BEFORE)
    try:
        return None if data is None else msgspec.msgpack.decode(data, type=list[JoinedBefore])
    except msgspec.MsgspecError:
        raise StorageError("the recommenders cannot be read: the store is damaged") from None


def give_places(store: DeviceStore, before: Sequence[JoinedBefore]) -> dict[int, JoinedBefore]:
    """Inside a transaction give each its place, with the catalogue that was for all; them by
    their places.
    """
    first, found = store.at(FIRST), dict[int, JoinedBefore]()
    pinned = first.pinned_catalogue
    items = None if pinned is None else pinned.items
    for old in sorted(before, key=lambda old: _has_first_version(store, old, items)):
        place = store.new_place() if found else first
        if old.servers is not None:
            place.put("servers", old.servers.to_json())
        if items is not None and place is not first:
            place.pin_catalogue(
                table_of(version_at(items, 1)) if _has_first_version(store, old, items) else items
            )
        found[place.place] = old
    _share_out(store, found)
    return found


def _has_first_version(store: DeviceStore, old: JoinedBefore, items: AnyCatalogue | None) -> bool:
    """Whether a recommender has shown the first version of the catalogue that was for all, and no
    later one.

    A catalogue is signed by one of its recommenders, and only that one's can follow from it.
    Others' do from its first version, without the signature.
    """
    if items is None or number_of(items) == 1:
        return True
    standing = ReportBook(store, old.address).standing()
    terms = kept(standing.terms, Terms)
    first = known_items(table_of(version_at(items, 1)))
    return terms is not None and not standing.task and terms.catalogue == first.fingerprint


def _share_out(store: DeviceStore, found: dict[int, JoinedBefore]) -> None:
    """Put what there was one of where it belongs: authority, roster and model."""
    first, last = store.at(FIRST), (store.get(_LAST) or b"").decode()
    authority, changed, digest = first.get(_AUTHORITY), first.get(_CHANGED), first.get(_DIGEST)
    roster, model, made = first.roster, kept_model(first), first.get(MODEL)
    for number, old in found.items():
        place = store.at(number)
        # What has followed an authority since was kept on the command line, and so of the
        # recommender of last time.
        followed = old.address == last and changed is not None and changed.decode() >= old.since
        if followed:
            place.put(_AUTHORITY, authority)
        elif old.authority != (place.get(_AUTHORITY) or b""):
            place.put(_AUTHORITY, old.authority)
        if place is first:
            continue
        if followed:
            place.put(_CHANGED, changed)
            first.put(_CHANGED, None)
        if old.servers is None and roster is not None and digest is not None:
            with suppress(
                ProtocolError, SecureSumError
            ):  # of keys before these: the next roster is given by the owner
                place.pin_roster(roster.roster.keys, roster.users)
                place.put(_DIGEST, digest)
        if model is not None and made is not None and model.recommender == old.address:
            place.put(MODEL, made)
            first.put(MODEL, None)
    if (
        not last and model is not None
    ):  # joined on the page alone: the list of before is the one that is shown
        store.put(_LAST, model.recommender.encode())
