"""The item table and the roster that are pinned of each recommender.

Of item tables the first that came is pinned, and then only what follows from it; a roster is the
owner's word.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol import AnyCatalogue, CatalogueVersion
from hdpmf.common.protocol.catalogue import check_chain, is_newer, table_of
from hdpmf.errors import ProtocolError, StorageError
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.store.catalogues import (
    PLAIN,
    PinnedCatalogue,
    PinnedRoster,
    check_ids,
    contradict,
    pinned,
    pinned_by,
    same_items,
)
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.tables import FIRST, NamedValues, at_place

_CATALOGUE, _SHELF, _PLACES, _SCALE = "catalogue", "shelf", "places", "scale"

_Scale = tuple[float, float, float | None]


class PinnedItems:
    """The item table that is pinned at a place, and the scale that its items are rated on.

    Args:
        place: Whose.
    """

    def __init__(self, database: Database, values: NamedValues, place: int = FIRST) -> None:
        self._database = database
        self._values = values
        self._place = place
        self._kept: tuple[tuple[int, ...], PinnedCatalogue | None] = (), None

    @property
    def now(self) -> PinnedCatalogue | None:
        """The newest version that this device has seen, with all that is computed from it."""
        # Another command may have written it, a rollback undone it, and another thread may do the
        # same as this.
        at = (self._database.version(), self._database.rollbacks)
        read_at, known = self._kept
        if at != read_at:
            data, shelf = self._values.get(self._named(_CATALOGUE)), self.shelf
            find = pinned_by if self._database.in_memory else pinned
            known = None if data is None else find(data, shelf)
            self._kept = at, known
        return known

    @property
    def shelf(self) -> str:
        """Where its items are on this device."""
        data = self._values.get(self._named(_SHELF))
        try:
            return PLAIN if data is None else data.decode()
        except UnicodeDecodeError:
            raise StorageError("the place of items cannot be read: the store is damaged") from None

    @property
    def scale(self) -> RatingScale | None:
        """The scale that the owner rates them on, where it is known. No recommender's word
        changes it.
        """
        data = self._values.get(_scale_of(self.shelf))
        return None if data is None else RatingScale(*msgspec.msgpack.decode(data, type=_Scale))

    def set_scale(self, scale: RatingScale) -> None:
        """Rate on this scale from now on."""
        set_scale(self._values, scale, self.shelf)

    def pin(self, items: AnyCatalogue, own: bytes | None = None) -> PinnedCatalogue:
        """Take an item table that follows from the pinned one, or is the same; what is pinned then.

        Args:
            items: The table.
            own: The one that the owner loaded from a file before, and may have rated.

        Raises:
            DeclinedError: It does not follow from the pinned one, or is not signed as it says.
            ProtocolError: It cannot be used, or is for another scale.
        """
        check_ids(table_of(items))
        data = msgspec.msgpack.encode(items)
        with self._database.transaction():
            known = self.now
            try:
                if known is None and isinstance(items, CatalogueVersion):
                    check_chain(items)
                newer = known is None or is_newer(known.items, items)
            except ProtocolError as error:
                raise DeclinedError(
                    "catalogue",
                    f"{error}. If the recommender had a good reason, this device's owner forgets "
                    "the catalogue that is "
                    "here, and takes the new one with the next conversation (hdpmf device forget "
                    "--model)",
                ) from error
            if known is None:
                self._choose_shelf(pinned(data), None if own is None else pinned(own))
            catalogue, scale = pinned(data, self.shelf), self.scale
            other = catalogue.known.scale
            if scale is not None and (
                (scale.low, scale.high) != (other.low, other.high)
                or scale.step not in (None, other.step)
            ):
                raise ProtocolError(
                    f"refused: the item table is for ratings on the scale {other}; here it is "
                    f"{scale}"
                )
            if newer or known is None:
                # Thousands of simulated devices need not hold a copy each: there it is remembered
                # by its digest.
                self._values.set(
                    self._named(_CATALOGUE), catalogue.digest if self._database.in_memory else data
                )
                self._kept, known = (self._kept[0], catalogue), catalogue
        return known

    def forget(self) -> None:
        """Take it out of the file. The shelf stays, because there may be ratings of its items."""
        if (
            self.now is not None
        ):  # otherwise none was chosen yet: that is for the first table that comes
            self._values.set(self._named(_SHELF), self.shelf.encode())
        self._values.drop(self._named(_CATALOGUE))
        self._kept = (), None

    def _choose_shelf(self, catalogue: PinnedCatalogue, own: PinnedCatalogue | None) -> None:
        """Where the items of a first table are: with those that are the same, or by themselves."""
        if self._values.get(self._named(_SHELF)) is not None:
            return
        places = (
            PinnedItems(self._database, self._values, place) for place in places_of(self._values)
        )
        others = [
            other
            for other in (place.now for place in places if place._place != self._place)
            if other
        ]
        shelf = next((other.shelf for other in others if same_items(other, catalogue)), None)
        if shelf is None:
            # A file's items are on the plain shelf, where the first table that does not say
            # otherwise joins them.
            alone = (
                any(other.shelf == PLAIN for other in others) if own is not None else bool(others)
            )
            shelf = (
                str(self._place)
                if alone or (own is not None and contradict(own, catalogue))
                else PLAIN
            )
            if shelf != PLAIN:
                set_scale(self._values, catalogue.known.scale, shelf)
        self._values.set(self._named(_SHELF), shelf.encode())

    def _named(self, name: str) -> str:
        return at_place(self._place, name)


def places_of(values: NamedValues) -> range:
    """The places of recommenders in a file."""
    data = values.get(_PLACES)
    return range(FIRST, FIRST + (1 if data is None else msgspec.msgpack.decode(data, type=int)))


def add_place(values: NamedValues) -> int:
    """One more."""
    last = places_of(values)[-1] + 1
    values.set(_PLACES, msgspec.msgpack.encode(last))
    return last


def set_scale(values: NamedValues, scale: RatingScale, shelf: str = PLAIN) -> None:
    """Write down the scale that the items of a shelf are rated on."""
    values.set(_scale_of(shelf), msgspec.msgpack.encode((scale.low, scale.high, scale.step)))


def _scale_of(shelf: str) -> str:
    return _SCALE if shelf == PLAIN else f"{_SCALE} of {shelf}"


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

    def pin(
        self, keys: Sequence[bytes], counts: Sequence[int], own_key: bytes, own_users: int
    ) -> PinnedRoster:
        """Pin the devices with these keys and numbers of users, in place of those before.

        Raises:
            SecureSumError: It is no roster, or the own key is not on it.
            ProtocolError: It has another number of users for the own key.
        """
        data = PinnedRoster.bytes_of(keys, counts)
        roster = PinnedRoster.from_bytes(data)
        if roster.users[roster.roster.place(own_key)] != own_users:
            raise ProtocolError(
                f"the roster has another number of users for this device than {own_users}"
            )
        if self._in_memory:
            # As with the item table: thousands of simulated devices need not hold a copy each.
            self._kept, data = roster, sha256(data).digest()
        self._values.set(self._name, data)
        return roster
