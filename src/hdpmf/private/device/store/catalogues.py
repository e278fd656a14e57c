"""Pinned catalogues, and the names of items on this device. Nothing private is in here.

Recommenders number items as they like. Ratings, weights and the ledger know an item by its name on
this device: its id or, where another recommender has other items, its id with the namespace of this
recommender before it. So a rating is never about something else than its owner rated, and one of an
item that two recommenders have is paid for by one budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from hdpmf.common.data import IdIndex
from hdpmf.common.protocol import AnyCatalogue, CatalogueTable, CatalogueVersion
from hdpmf.common.protocol.catalogue import (
    KnownItems,
    digests_of,
    known_items,
    number_of,
    read_catalogue,
    table_of,
    version_at,
)
from hdpmf.errors import ProtocolError, StorageError

PLAIN = ""
"""The namespace whose items are called by their ids: that of the first catalogue."""

_MARK = "\x1f"  # between the namespace and the id: no id of a catalogue has it (`check_ids`)


def name_in(namespace: str, item: str) -> str:
    """Return this device's name of an item."""
    return f"{namespace}{_MARK}{item}" if namespace else item


def id_of(name: str) -> str:
    """The id that its recommender calls an item by, for people."""
    return name.rpartition(_MARK)[2]


def namespace_of(name: str) -> str:
    """The namespace of an item."""
    return name.rpartition(_MARK)[0]


def check_ids(table: CatalogueTable) -> None:
    """Refuse ids that look like names in another namespace, whose ratings they would take over."""
    if any(_MARK in item for item in table.ids):
        raise ProtocolError(
            "refused: an item's id has a control character that this device keeps for itself"
        )


class PinnedCatalogue:
    """An item table, checked, with what is computed from it once.

    Attributes:
        items: As it was sent, with all its versions.
        namespace: Whose items these are on this device.
        apart: Ids of items that are not in this namespace, each with its own one.
        table: The items in it, by their names here.
        known: The same, to compute with.
        by_id: The same, by the ids that people and the recommender know.
        digest: Of everything as it was sent.
        positions: The position of each item, by its name here.
    """

    def __init__(
        self,
        items: AnyCatalogue,
        digest: bytes = b"",
        namespace: str = PLAIN,
        apart: Mapping[str, str] | None = None,
    ) -> None:
        self.items = items
        self.digest = digest
        self.namespace = namespace
        self.apart = apart or {}
        self.table: CatalogueTable = table_of(items)
        self.by_id: KnownItems = known_items(items)
        self.known = self.by_id
        if namespace != PLAIN or self.apart:
            names = tuple(map(self.name_of, self.table.ids))
            self.table, self.known = _put_in(names, self.table, self.known)
        self.positions = {
            str(item): position for position, item in enumerate(self.known.items.ids.tolist())
        }
        self._earlier: dict[int, PinnedCatalogue] = {}

    def __repr__(self) -> str:
        return f"PinnedCatalogue({len(self.positions):,} items, scale {self.known.scale})"

    def name_of(self, item: str) -> str:
        """Return this device's name of the item with this id."""
        return name_in(self.apart.get(item, self.namespace), item)

    @property
    def number(self) -> int:
        """The number of the version."""
        return number_of(self.items)

    def in_words(self) -> str:
        """Say in plain English what was taken, and what of it is kept apart."""
        told = f"The catalogue is version {self.number}, {len(self.positions)} items."
        if not self.apart:
            return told
        return (
            f"{told} {len(self.apart)} of its ids are other items on this device (another title or "
            "year, or none): they are kept apart, and ratings of the others are not used for them."
        )

    @property
    def version_digest(self) -> str:
        """The digest that people compare, of this version and all before it."""
        return digests_of(self.items)[-1].hex()

    def named(self, fingerprint: str) -> PinnedCatalogue | None:
        """Return this or the earlier version with this fingerprint; None if there is none."""
        if fingerprint == self.known.fingerprint:
            return self
        names = [digest.hex() for digest in digests_of(self.items)]
        number = names.index(fingerprint) + 1 if fingerprint in names[1:] else 1
        earlier = self._at(number)
        return earlier if earlier.known.fingerprint == fingerprint else None

    def sized(self, n_items: int) -> PinnedCatalogue | None:
        """Return the newest version with ``n_items`` items; None if there is none."""
        sizes = [len(self.positions)]
        if isinstance(self.items, CatalogueVersion):
            sizes = [link.items for link in self.items.links]
        numbers = [number for number, size in enumerate(sizes, start=1) if size == n_items]
        return self._at(numbers[-1]) if numbers else None

    def _at(self, number: int) -> PinnedCatalogue:
        if number == self.number:
            return self
        if number not in self._earlier:
            self._earlier[number] = PinnedCatalogue(
                version_at(self.items, number), namespace=self.namespace, apart=self.apart
            )
        return self._earlier[number]

    def fit(self, values: np.ndarray) -> np.ndarray:
        """Return a mask of the ratings that are on a step of the scale."""
        scale = self.known.scale
        steps = (values - scale.low) / (scale.step or 1.0)
        # Ratings are float32 elsewhere.
        on_a_step = scale.step is None or np.abs(steps - np.round(steps)) < 1e-3
        return np.asarray((values >= scale.low) & (values <= scale.high) & on_a_step)

    def bring_in(self, values: np.ndarray) -> np.ndarray:
        """Return ratings on the scale: those off it are moved to the nearest value on it.

        None is left out for its value: a recommender chooses the scale, and must not learn from it
        which values ratings have.
        """
        scale = self.known.scale
        inside = np.clip(values, scale.low, scale.high)
        if scale.step is not None:
            last = np.floor(scale.width / scale.step + 1e-9)  # no mutant: any small number does
            inside = scale.low + scale.step * np.minimum(
                np.rint((inside - scale.low) / scale.step), last
            )
        return np.asarray(np.where(self.fit(values), values, inside))


def _put_in(
    names: tuple[str, ...], table: CatalogueTable, known: KnownItems
) -> tuple[CatalogueTable, KnownItems]:
    items = IdIndex(np.array(names), as_given=True)
    public = None if known.item_table is None else replace(known.item_table, index=items)
    table = msgspec.structs.replace(table, ids=names, integer_ids=False)
    return table, replace(known, items=items, item_table=public)


_Key = tuple[bytes, str, frozenset[tuple[str, str]]]
_KNOWN: WeakValueDictionary[_Key, PinnedCatalogue] = WeakValueDictionary()


def pinned(
    data: bytes, namespace: str = PLAIN, apart: Mapping[str, str] | None = None
) -> PinnedCatalogue:
    """The catalogue with these bytes. Thousands of simulated devices in one process share one."""
    digest = sha256(data).digest()
    catalogue = pinned_by(digest, namespace, apart)
    if catalogue is None:
        try:
            items = read_catalogue(data)
        except ProtocolError as error:
            raise StorageError(
                "the pinned item table cannot be read: the store is damaged"
            ) from error
        catalogue = PinnedCatalogue(items, digest, namespace, apart)
        _KNOWN[digest, namespace, frozenset(catalogue.apart.items())] = catalogue
    return catalogue


def pinned_by(
    digest: bytes, namespace: str = PLAIN, apart: Mapping[str, str] | None = None
) -> PinnedCatalogue | None:
    """Return the catalogue with this digest if this process holds it."""
    return _KNOWN.get((digest, namespace, frozenset((apart or {}).items())))
