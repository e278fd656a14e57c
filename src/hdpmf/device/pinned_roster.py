"""The roster of each recommender in a device's file: the devices that may take part, by the owner's word."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from hdpmf.device.database import Database
from hdpmf.device.named_values import FIRST, NamedValues, at_place
from hdpmf.device.public import PinnedRoster
from hdpmf.errors import ProtocolError

_ROSTER = "roster"


class RosterPin:
    """The roster that is pinned at a place.

    Args:
        place: Whose.
    """

    def __init__(self, database: Database, values: NamedValues, place: int = FIRST) -> None:
        self._in_memory = database.in_memory
        self._values = values
        self._name = at_place(place, _ROSTER)
        self._kept: PinnedRoster | None = None

    @property
    def now(self) -> PinnedRoster | None:
        """The pinned roster."""
        if self._kept is not None:
            return self._kept
        data = self._values.get(self._name)
        if data is None:
            return None
        return PinnedRoster.by_digest(data) if self._in_memory else PinnedRoster.from_bytes(data)

    def forget(self) -> None:
        """Take it out of the file."""
        self._values.drop(self._name)
        self._kept = None

    def pin(self, keys: Sequence[bytes], counts: Sequence[int], own_key: bytes, own_users: int) -> PinnedRoster:
        """Pin the devices with these keys and numbers of users, in place of those before.

        Raises:
            SecureSumError: It is no roster, or the own key is not on it.
            ProtocolError: It has another number of users for the own key.
        """
        data = PinnedRoster.bytes_of(keys, counts)
        roster = PinnedRoster.from_bytes(data)
        if roster.users[roster.roster.place(own_key)] != own_users:
            raise ProtocolError(f"the roster has another number of users for this device than {own_users}")
        if self._in_memory:
            # As with the item table: thousands of simulated devices need not hold a copy each.
            self._kept, data = roster, sha256(data).digest()
        self._values.set(self._name, data)
        return roster
