"""The item table in a device's file: the first one that came, and from then on only what follows from it."""

from __future__ import annotations

import msgspec

from hdpmf.device.database import Database
from hdpmf.device.declined import DeclinedError
from hdpmf.device.named_values import NamedValues
from hdpmf.device.public import PinnedCatalogue, pinned, pinned_by
from hdpmf.errors import ProtocolError
from hdpmf.protocol import AnyCatalogue, CatalogueVersion
from hdpmf.protocol.versions import check_chain, is_newer
from hdpmf.ratings import RatingScale

_CATALOGUE = "catalogue"


class PinnedItems:
    """The pinned item table."""

    def __init__(self, database: Database, values: NamedValues) -> None:
        self._database = database
        self._values = values
        self._kept: tuple[tuple[int, ...], PinnedCatalogue | None] = (), None

    @property
    def now(self) -> PinnedCatalogue | None:
        """The newest version that this device has seen, with all that is computed from it."""
        # Another command may have written it, a rollback undone it, and another thread may do the same as this.
        at = (self._database.version(), self._database.rollbacks)
        read_at, known = self._kept
        if at != read_at:
            data = self._values.get(_CATALOGUE)
            known = None if data is None else pinned_by(data) if self._database.in_memory else pinned(data)
            self._kept = at, known
        return known

    def pin(self, items: AnyCatalogue, scale: RatingScale | None) -> PinnedCatalogue:
        """Take an item table that follows from the pinned one, or is the same; what is pinned then.

        Args:
            items: What a recommender sent.
            scale: The owner's, which no recommender's word changes.

        Raises:
            DeclinedError: It does not follow from the pinned one, or is not signed as it says.
            ProtocolError: It cannot be used, or is for another scale.
        """
        catalogue = pinned(msgspec.msgpack.encode(items))
        with self._database.transaction():
            known = self.now
            try:
                if known is None and isinstance(items, CatalogueVersion):
                    check_chain(items)
                newer = known is None or is_newer(known.items, items)
            except ProtocolError as error:
                raise DeclinedError(
                    "catalogue",
                    f"{error}. If the recommender had a good reason, this device's owner forgets the catalogue that is "
                    "here, and takes the new one with the next conversation (hdpmf device forget --model)",
                ) from error
            other = catalogue.known.scale
            if scale is not None and (
                (scale.low, scale.high) != (other.low, other.high) or scale.step not in (None, other.step)
            ):
                raise ProtocolError(f"refused: the item table is for ratings on the scale {other}; here it is {scale}")
            if newer or known is None:
                # Thousands of simulated devices need not hold a copy each: there it is remembered by its digest.
                data = catalogue.digest if self._database.in_memory else msgspec.msgpack.encode(items)
                self._values.set(_CATALOGUE, data)
                self._kept, known = (self._kept[0], catalogue), catalogue
        return known

    def forget(self) -> None:
        """Take it out of the file."""
        self._values.drop(_CATALOGUE)
        self._kept = (), None
