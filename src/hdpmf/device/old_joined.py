"""The recommenders in a store of version 0.2.0, which kept one catalogue and one model for all of them."""

from __future__ import annotations

import msgspec

from hdpmf.device.store import DeviceStore
from hdpmf.errors import StorageError
from hdpmf.protocol.servers import Servers

_BEFORE = "recommenders"


class JoinedBefore(msgspec.Struct, frozen=True, kw_only=True):
    """A recommender as version 0.2.0 kept it."""

    address: str
    authority: bytes = b""
    servers: Servers | None = None
    since: str = ""
    paused: bool = False


def joined_before(store: DeviceStore) -> dict[int, JoinedBefore]:
    """Give each recommender of version 0.2.0 its place, with the catalogue that was for all; them by their places."""
    data = store.get(_BEFORE)
    if data is None:
        return {}
    try:
        before = msgspec.msgpack.decode(data, type=list[JoinedBefore])
    except msgspec.MsgspecError:
        raise StorageError("the recommenders cannot be read: the store is damaged") from None
    found: dict[int, JoinedBefore] = {}
    with store.transaction():
        items = store.at(store.places[0]).pinned_catalogue
        for old in before:
            place = store.new_place() if found else store.at(store.places[0])
            if old.authority != (place.get("authority") or b""):
                place.put("authority", old.authority)
            if old.servers is not None:
                place.put("servers", old.servers.to_json())
            if items is not None and place.pinned_catalogue is None:
                place.pin_catalogue(items.items)
            found[place.place] = old
    return found
