"""The roster of a recommender that sums by masks, looked at and pinned by the owner: among whom one is hidden."""

from __future__ import annotations

from typing import Any

from hdpmf.device.store import DeviceStore
from hdpmf.errors import ConfigError
from hdpmf.protocol.enrolled import Enrolled

_DIGEST = "roster-digest"


def pinned_digest(store: DeviceStore) -> str:
    """What people compare of the pinned roster; empty where none is pinned."""
    return (store.get(_DIGEST) or b"").decode()


def roster_fields(store: DeviceStore) -> dict[str, Any] | None:
    """The pinned roster, for the owner; None where none is pinned."""
    roster = store.roster
    if roster is None:
        return None
    return {"devices": len(roster), "users": roster.n_users, "digest": pinned_digest(store) or None}


def look_at_roster(store: DeviceStore, data: bytes) -> Enrolled:
    """The roster in a file, if it could be pinned here. Nothing is changed.

    Raises:
        ConfigError: It is none, was changed by hand, or counts other users for this device.
        SecureSumError: It is too short or too long to sum over, or this device is not on it.
    """
    enrolled = Enrolled.from_json(data)
    own = enrolled.cards[enrolled.roster.place(store.identity.public)]
    if own.users != store.users:
        raise ConfigError(f"the roster counts {own.users:,} users for this device, which has {store.users:,}")
    return enrolled


def pin_roster(store: DeviceStore, data: bytes, *, new: bool = False) -> str:
    """Pin the roster in a file; the digest of the one before, empty if there was none.

    Args:
        store: The device, at the recommender's place.
        data: The file.
        new: In place of another roster that was pinned before.

    Raises:
        ConfigError: As in ``look_at_roster``, or another one is pinned.
        SecureSumError: As in ``look_at_roster``.
    """
    enrolled = look_at_roster(store, data)
    with store.transaction():
        before = pinned_digest(store)
        if before not in ("", enrolled.digest) and not new:
            raise ConfigError(
                f"another roster is pinned here (digest {before}; the new one has {enrolled.digest}): whoever "
                "chooses the roster chooses among whom you are hidden. If other participants have the new one too, "
                "add --new-roster; otherwise leave --roster out"
            )
        store.pin_roster(enrolled.roster.keys, [card.users for card in enrolled.cards])
        store.put(_DIGEST, enrolled.digest.encode())
    return before
