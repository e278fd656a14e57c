"""The item table that is pinned of each recommender: the first one, or what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol import AnyCatalogue, CatalogueVersion
from hdpmf.common.protocol.catalogue import check_chain, is_newer, table_of
from hdpmf.errors import ProtocolError
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.store.catalogues import (
    PLAIN,
    PinnedCatalogue,
    check_ids,
    name_in,
    pinned,
    pinned_by,
)
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.item_identity import (
    KnownNames,
    apart_namespace,
    file_contradicts,
    identities,
    same_items,
)
from hdpmf.private.device.store.schema import (
    FIRST,
    ItemsApart,
    PastItem,
    PastItems,
    PublicData,
    Recommender,
)
from hdpmf.private.device.store.tables import ONLY, Tables


class PinnedItems:
    """The item table that is pinned of a recommender, and the scale that its items are rated on."""

    def __init__(self, database: Database, tables: Tables, recommender_id: int = FIRST) -> None:
        self._database = database
        self._tables = tables
        self._id = recommender_id
        self._kept: tuple[tuple[int, ...], PinnedCatalogue | None] = (), None

    @property
    def now(self) -> PinnedCatalogue | None:
        """The newest version that this device has seen, with all that is computed from it."""
        # Another command may have written it, a rollback undone it, and another thread may do the
        # same as this.
        at = (self._database.version(), self._database.rollbacks)
        read_at, known = self._kept
        if at != read_at:
            row = self._tables.catalogues.find(self._id)
            find = pinned_by if self._database.in_memory else pinned
            known = None if row is None else find(row.data, self.namespace, self._apart)
            self._kept = at, known
        return known

    @property
    def namespace(self) -> str:
        """The namespace of its items on this device."""
        return self._chosen or PLAIN

    def name_of(self, item: str) -> str:
        """Return this device's name of the item with this id."""
        return name_in(self._apart.get(item, self.namespace), item)

    @property
    def _chosen(self) -> str | None:
        row = self._tables.recommenders.find(self._id)
        return None if row is None else row.item_namespace

    @property
    def _apart(self) -> dict[str, str]:
        row = self._tables.items_apart.find(self._id)
        numbers = {} if row is None else row.numbers
        return {item: apart_namespace(self._id, number) for item, number in numbers.items()}

    @property
    def scale(self) -> RatingScale | None:
        """The scale that the owner rates them on; None if it is not known.

        No recommender can change it.
        """
        found = self._tables.device.need(ONLY).scales.get(self.namespace)
        return None if found is None else RatingScale(*found)

    def set_scale(self, scale: RatingScale) -> None:
        """Rate on this scale from now on."""
        with self._database.transaction():
            device = self._tables.device.need(ONLY)
            scales = device.scales | {self.namespace: (scale.low, scale.high, scale.step)}
            self._tables.device.put(msgspec.structs.replace(device, scales=scales))

    def pin(
        self,
        items: AnyCatalogue,
        own: bytes | None = None,
        rated: Callable[[], Collection[str]] = frozenset,
    ) -> PinnedCatalogue:
        """Take an item table that follows from the pinned one, or is the same; what is pinned then.

        An id that stands for something else on this device gets a name of its own there: nothing
        that was rated is sent as a rating of it.

        Args:
            own: The one that the owner loaded from a file before, and may have rated.
            rated: Returns the names of all items that have a rating.

        Raises:
            DeclinedError: It does not follow from the pinned one, or is not signed as it says.
            ProtocolError: It cannot be used, or is for another scale.
        """
        check_ids(table_of(items))
        data = items.to_bytes()
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
                    "the catalogue that is here, and takes the new one with the next conversation "
                    "(hdpmf device forget --model)",
                ) from error
            if newer or known is None:
                by_id, file = pinned(data), None if own is None else pinned(own)
                others = self._others()
                if known is None:
                    self._choose_namespace(by_id, others, file)
                self._set_apart(by_id, known, others, file, rated)
            catalogue, scale = pinned(data, self.namespace, self._apart), self.scale
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
                data = catalogue.digest if self._database.in_memory else data
                self._tables.catalogues.put(PublicData(recommender_id=self._id, data=data))
                self._kept, known = (self._kept[0], catalogue), catalogue
        return known

    def forget(self, kept: Collection[str]) -> None:
        """Take it out of the file.

        Names stay, and what those in ``kept`` stand for: there are ratings or weights of them.
        """
        if self.now is not None:  # otherwise the namespace is for the first table that comes
            self._change(item_namespace=self.namespace)
            remember(self._tables, self.now, self._id, kept)
        self._tables.catalogues.delete(self._id)
        self._kept = (), None

    def _others(self) -> list[PinnedCatalogue]:
        ids = [row.id for row in self._tables.recommenders.rows() if row.id != self._id]
        if self._id != FIRST and FIRST not in ids:
            ids.append(FIRST)
        pins = (PinnedItems(self._database, self._tables, other) for other in sorted(ids))
        return [other for other in (pin.now for pin in pins) if other is not None]

    def _set_apart(
        self,
        by_id: PinnedCatalogue,
        known: PinnedCatalogue | None,
        others: Sequence[PinnedCatalogue],
        own: PinnedCatalogue | None,
        rated: Callable[[], Collection[str]],
    ) -> None:
        """Keep items apart whose ids stand for something else here."""
        row = self._tables.items_apart.find(self._id) or ItemsApart(recommender_id=self._id)
        past = self._tables.past_items.find(ONLY)
        names = KnownNames(
            self._id,
            self.namespace,
            others=others,
            own=own,
            past={} if past is None else past.items,
            rated=rated() if others else (),
        )
        apart = names.apart(by_id, 0 if known is None else len(known.positions), row.numbers)
        if apart != row.numbers:
            self._tables.items_apart.put(ItemsApart(recommender_id=self._id, numbers=apart))

    def _choose_namespace(
        self,
        catalogue: PinnedCatalogue,
        others: Sequence[PinnedCatalogue],
        own: PinnedCatalogue | None,
    ) -> None:
        """Choose the namespace of a first table: that of equal items, or its own."""
        if self._chosen is not None:
            return
        same = (other.namespace for other in others if same_items(other, catalogue))
        namespace = next(same, None)
        if namespace is None:
            # A file's items are in the plain namespace, where the first table that does not say
            # otherwise joins them.
            taken = bool(others)
            if own is not None:
                taken = any(other.namespace == PLAIN for other in others)
            alone = taken or (own is not None and file_contradicts(own, catalogue))
            namespace = str(self._id) if alone else PLAIN
        self._change(item_namespace=namespace)
        if namespace != PLAIN and self.scale is None:
            self.set_scale(catalogue.known.scale)

    def _change(self, **changes: object) -> None:
        known = self._tables.recommenders.find(self._id) or Recommender(id=self._id)
        self._tables.recommenders.put(msgspec.structs.replace(known, **changes))


def remember(
    tables: Tables, catalogue: PinnedCatalogue, recommender_id: int, kept: Collection[str]
) -> None:
    """Keep what some items of a catalogue are, when all else of it goes."""
    past = tables.past_items.find(ONLY) or PastItems()
    table = catalogue.table
    about = {
        name: PastItem(
            recommender_id=recommender_id,
            title=identity.title,
            year=identity.year,
        )
        for name, identity in zip(table.ids, identities(catalogue), strict=True)
        if name in kept and name not in past.items
    }
    if about:
        tables.past_items.put(PastItems(items=past.items | about))
