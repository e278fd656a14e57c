"""Versions of a catalogue: items are only ever added at the end or retired.

Each version is signed, and its digest covers the one before. A device takes a newer one only if it
follows from its own. Two different signed versions of one number prove that the recommender showed
people different things.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise

import msgspec
import numpy as np

from hdpmf.common.data import IdIndex, ItemTable, RatingScale
from hdpmf.common.data.item_features import ItemFeatures, fingerprint
from hdpmf.common.protocol.documents import (
    SIGNATURE_SIZE,
    Document,
    canonical,
    from_base64,
    labelled_digest,
    read_document,
    to_base64,
)
from hdpmf.common.protocol.messages import MAX_ITEMS, check_scale
from hdpmf.errors import ConfigError, ProtocolError, RatingsError

MAX_GENRES = 256

MAX_VERSIONS = 4096
"""Of a catalogue: one a week for 78 years."""

MAX_RATING = 1_000_000

KEY_SIZE = 32


_FACTS = ("titles", "genres", "years", "audiences")


class CatalogueTable(Document, frozen=True, tag="items"):
    """Recommender to device: the items, in their order, and public facts about them.

    Attributes:
        ids: Item ids; an item is known by its position.
        integer_ids: The ids are whole numbers.
        scale_step: Of the public rating scale, where it has one.
        titles: One per item, or none at all.
        genres: One list per item, or none at all.
        years: One per item (None where unknown), or none at all.
        audiences: One per item (empty where unknown), or none at all.
    """

    ids: tuple[str, ...]
    integer_ids: bool
    scale_low: float
    scale_high: float
    scale_step: float | None
    titles: tuple[str, ...] = ()
    genres: tuple[tuple[str, ...], ...] = ()
    years: tuple[int | None, ...] = ()
    audiences: tuple[str, ...] = ()

    def _check(self) -> None:
        n = len(self.ids)
        self._require(1 <= n <= MAX_ITEMS, f"a catalogue has 1 to {MAX_ITEMS} items")
        self._require(len(set(self.ids)) == n, "item ids must differ")
        for name in _FACTS:
            self._require(
                len(getattr(self, name)) in (0, n), f"{name} must be one per item or none"
            )
        low, high = self.scale_low, self.scale_high
        check_scale(self._require, low, high, self.scale_step)
        least = max(1.0, abs(low), abs(high)) / (1 << 20)
        self._require(high - low >= least, "the rating scale is too narrow for 32-bit floats")
        self._require(
            max(abs(low), abs(high)) <= MAX_RATING, f"no rating may be beyond {MAX_RATING:,}"
        )


class CatalogueLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A signed version of the catalogue; the items of earlier ones keep their positions.

    Attributes:
        number: From 1.
        previous: Digest of the version before; empty for the first.
        items: Number of items: those of the version before, and new ones after them.
        retired: Positions of the items that this version retires, ascending.
        content: Digest of the scale and of all that is said of these items.
        signature: Of the version's digest, by the recommender's catalogue key.
    """

    number: int
    previous: str
    items: int
    retired: tuple[int, ...]
    content: str
    signature: str

    @property
    def digest(self) -> bytes:
        """Of the version with an empty signature; so of all versions before, too."""
        plain = canonical(msgspec.structs.replace(self, signature=""))
        return labelled_digest("catalogue version", plain)


class CatalogueVersion(Document, frozen=True, tag="catalogue"):
    """Recommender to device: the newest version of the items, and the signed chain to it.

    ``catalogue.check_chain`` checks the chain; a device takes what follows from its own.

    Attributes:
        table: All items, retired ones included: positions never change.
        links: Every version, from the first.
        key: Ed25519 public key that they are signed by.
    """

    table: CatalogueTable
    links: tuple[CatalogueLink, ...]
    key: str

    def _check(self) -> None:
        self._require(
            1 <= len(self.links) <= MAX_VERSIONS, f"a catalogue has 1 to {MAX_VERSIONS} versions"
        )
        from_base64(self.key, KEY_SIZE)
        self._require(
            self.links[-1].items == len(self.table.ids),
            "the last version must have all of the items",
        )

    @property
    def number(self) -> int:
        """Of the newest version."""
        return len(self.links)

    @property
    def digests(self) -> list[bytes]:
        """Of every version, the first first."""
        return [link.digest for link in self.links]

    @property
    def retired(self) -> tuple[int, ...]:
        """Positions of all retired items, ascending."""
        return tuple(sorted(position for link in self.links for position in link.retired))

    def at(self, number: int) -> CatalogueVersion:
        """Return the catalogue as it was in an earlier version; ConfigError if there is none."""
        if not 1 <= number <= self.number:
            raise ConfigError(f"the catalogue has versions 1 to {self.number}, not {number}")
        links = self.links[:number]
        return msgspec.structs.replace(self, table=_cut(self.table, links[-1].items), links=links)


def read_catalogue(data: bytes) -> CatalogueVersion:
    """Return the catalogue in a document; its chain is not checked."""
    return read_document(CatalogueVersion, data, "a catalogue")


@dataclass(frozen=True, slots=True, repr=False)
class KnownItems:
    """The items of a catalogue.

    Attributes:
        item_table: Titles, genres, years and audiences, if any.
        features: Genres and years as numbers, if any.
        fingerprint: Digest of the newest version; of an unsigned table the library's own.
        retired: Positions of items that are no longer recommended or asked about.
    """

    items: IdIndex
    scale: RatingScale
    item_table: ItemTable | None
    features: ItemFeatures | None
    fingerprint: str
    retired: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def __repr__(self) -> str:
        return f"KnownItems({len(self.items)} items)"


def catalogue_table(
    items: IdIndex, scale: RatingScale, table: ItemTable | None = None
) -> CatalogueTable:
    """Return the message for these items, with what ``table`` says of them."""
    titles: tuple[str, ...] = ()
    genres: tuple[tuple[str, ...], ...] = ()
    years: tuple[int | None, ...] = ()
    audiences: tuple[str, ...] = ()
    if table is not None:
        rows = table.index.find(items.ids).tolist()
        titles = tuple(table.titles[row] if row >= 0 else "" for row in rows)
        genres = tuple(table.genres[row] if row >= 0 else () for row in rows)
        years = tuple(table.years[row] if row >= 0 else None for row in rows)
        if any(table.audiences):
            audiences = tuple(table.audiences[row] if row >= 0 else "" for row in rows)
    return CatalogueTable(
        ids=tuple(map(str, items.ids.tolist())),
        integer_ids=items.is_integer,
        scale_low=scale.low,
        scale_high=scale.high,
        scale_step=scale.step,
        titles=titles,
        genres=genres,
        years=years,
        audiences=audiences,
    )


def known_items(catalogue: CatalogueVersion | CatalogueTable) -> KnownItems:
    """The items of a catalogue, or of a table in a file; ProtocolError where it cannot be one."""
    table = catalogue if isinstance(catalogue, CatalogueTable) else catalogue.table
    try:
        ids = (
            np.array([int(item) for item in table.ids], np.int64)
            if table.integer_ids
            else np.array(table.ids)
        )
        items = IdIndex(ids, as_given=True)
        scale = RatingScale(table.scale_low, table.scale_high, table.scale_step)
    except (ValueError, OverflowError, RatingsError) as error:
        raise ProtocolError(f"the catalogue cannot be used: {type(error).__name__}") from None
    if tuple(map(str, ids.tolist())) != table.ids:
        raise ProtocolError(
            "the catalogue says that its ids are integers, but they are not written as integers are"
        )
    if len({genre for genres in table.genres for genre in genres}) > MAX_GENRES:
        raise ProtocolError(
            f"the catalogue has more than {MAX_GENRES} genres; as features they would fill "
            "the memory"
        )
    public: ItemTable | None = None
    dated = any(year is not None for year in table.years)
    if dated or any(table.titles) or any(table.genres) or any(table.audiences):
        public = ItemTable(items, *_columns(table)[:3], table.audiences)
    features = None if public is None else ItemFeatures.of_table(public, items)
    if isinstance(catalogue, CatalogueTable):
        return KnownItems(items, scale, public, features, fingerprint(items, features))
    name, retired = to_base64(catalogue.links[-1].digest), np.array(catalogue.retired, np.int64)
    return KnownItems(items, scale, public, features, name, retired)


Sign = Callable[[bytes], bytes]


def signed_first(table: CatalogueTable, sign: Sign, key: bytes) -> CatalogueVersion:
    """The first version of a catalogue, with its signature."""
    n_items = len(table.ids)
    content = next(_contents(table, [n_items]))
    first = CatalogueLink(
        number=1, previous="", items=n_items, retired=(), content=content, signature=""
    )
    return CatalogueVersion(table=table, links=(_signed(first, sign),), key=to_base64(key))


def next_version(
    items: CatalogueVersion,
    sign: Sign,
    *,
    added: CatalogueTable | None = None,
    retired: Collection[int] = (),
) -> CatalogueVersion:
    """Return the version after the newest one.

    Args:
        added: New items for its end; on the same scale, with ids of the same kind.
        retired: Positions of items that are no longer recommended or asked about.

    Raises:
        ConfigError: Nothing would change, or an item is there already or retired already.
    """
    table = items.table if added is None else _grown(items.table, added)
    known = set(items.retired)
    if known & set(retired):
        raise ConfigError("an item is retired already; it stays so")
    if table is items.table and not retired:
        raise ConfigError(
            "say which items are added or retired; a new version must change something"
        )
    if len(items.links) == MAX_VERSIONS:
        raise ConfigError(
            f"a catalogue has {MAX_VERSIONS:,} versions at most; add items in larger parts"
        )
    last = items.links[-1]
    link = CatalogueLink(
        number=last.number + 1,
        previous=to_base64(last.digest),
        items=len(table.ids),
        retired=tuple(sorted(retired)),
        content=next(_contents(table, [len(table.ids)])),
        signature="",
    )
    return CatalogueVersion(table=table, links=(*items.links, _signed(link, sign)), key=items.key)


def check_chain(items: CatalogueVersion) -> None:
    """Raise ProtocolError unless the versions follow from each other and are signed."""
    from hdpmf.common.protocol.identity import verifies  # the library does without its extra

    retired: set[int] = set()
    before = ""
    key = from_base64(items.key, KEY_SIZE)
    n_items = 0
    contents = _contents(items.table, [link.items for link in items.links])
    for number, link in enumerate(items.links, start=1):
        _require(
            link.number == number, f"version {number} is missing, and {link.number} is in its place"
        )
        _require(
            link.previous == before, f"version {number} does not follow from the one before it"
        )
        _require(
            link.items >= max(n_items, 1),
            f"version {number} has fewer items than the one before it",
        )
        _require(
            link.items <= len(items.table.ids), f"version {number} has items that are not there"
        )
        _require(link.items > n_items or bool(link.retired), f"version {number} changes nothing")
        _require(number > 1 or not link.retired, "the first version retires items")
        inside = all(0 <= position < link.items for position in link.retired) and not retired & set(
            link.retired
        )
        _require(inside and _ascending(link.retired), f"version {number} retires what it cannot")
        _require(
            next(contents) == link.content,
            f"the items are not those that version {number} is about",
        )
        signature = from_base64(link.signature)
        good = len(signature) == SIGNATURE_SIZE and verifies(key, signature, link.digest)
        _require(good, f"version {number} is not signed by the key of the catalogue")
        retired |= set(link.retired)
        before = to_base64(link.digest)
        n_items = link.items


def is_newer(known: CatalogueVersion, offered: CatalogueVersion) -> bool:
    """Return whether a catalogue has more versions than the known one, from which it follows.

    Raises:
        ProtocolError: It does not.
    """
    check_chain(offered)
    ours, theirs = known.digests, offered.digests
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=False), start=1):
        _require(
            mine == other,
            f"version {number} is another one than the version {number} that is pinned here",
        )
    _require(
        len(theirs) >= len(ours),
        f"it is version {len(theirs)}, and version {len(ours)} is pinned here",
    )
    newer = len(theirs) > len(ours)
    _require(
        not newer or known.key == offered.key,
        "it is signed by another key than the one that is pinned here",
    )
    return newer


def _signed(link: CatalogueLink, sign: Sign) -> CatalogueLink:
    return msgspec.structs.replace(link, signature=to_base64(sign(link.digest)))


def _contents(table: CatalogueTable, sizes: Sequence[int]) -> Iterator[str]:
    """Yield the digest of the scale and the first items, for each of these ascending numbers.

    Of lines of canonical JSON: ``[integer_ids, low, high, step]``, and ``[id, title, genres,
    year]`` for each item, with its audience after these where that is known.
    """
    scale = [table.integer_ids, table.scale_low, table.scale_high, table.scale_step]
    state = sha256(canonical(scale))
    titles, genres, years, audiences = _columns(table)
    done = 0
    for size in sizes:
        for position in range(done, min(size, len(table.ids))):
            item = [table.ids[position], titles[position], genres[position], years[position]]
            item += [audiences[position]] if audiences[position] else []
            state.update(b"\n" + canonical(item))
        done = max(done, size)
        yield to_base64(state.digest())


def _columns(
    table: CatalogueTable,
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[int | None, ...], tuple[str, ...]]:
    """Return what is said of each item; none at all is the same as empty ones."""
    n = len(table.ids)
    empty = ("",) * n
    years = table.years or (None,) * n
    return table.titles or empty, table.genres or ((),) * n, years, table.audiences or empty


def _cut(table: CatalogueTable, n_items: int) -> CatalogueTable:
    parts = {name: getattr(table, name)[:n_items] for name in ("ids", *_FACTS)}
    return msgspec.structs.replace(table, **parts)


def _grown(table: CatalogueTable, added: CatalogueTable) -> CatalogueTable:
    """A table with more items after its last one."""
    if table.integer_ids != added.integer_ids:
        kinds = ("whole numbers", "texts") if table.integer_ids else ("texts", "whole numbers")
        raise ConfigError(
            f"ids of this catalogue are {kinds[0]}, those of the new items are {kinds[1]}"
        )
    again = sorted(set(table.ids) & set(added.ids))
    if again:
        raise ConfigError(
            f"{len(again)} of the {len(added.ids)} items are in the catalogue already (such "
            f"as {again[0]!r}); the description of an item never changes: retire it, and add it "
            "again under another id"
        )
    old = _columns(table)
    new = _columns(added)
    return msgspec.structs.replace(
        table,
        ids=table.ids + added.ids,
        titles=old[0] + new[0],
        genres=old[1] + new[1],
        years=old[2] + new[2],
        audiences=old[3] + new[3],
    )


def _ascending(positions: tuple[int, ...]) -> bool:
    return all(first < second for first, second in pairwise(positions))


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ProtocolError(f"refused: the catalogue cannot be taken: {what}")
