"""The owner's marks of what is sensitive: rules that are kept, and applied when a weight is read.

A rule says that an item, or every item of a genre, weighs at most so much. Rules know nothing of
each other: an item weighs the least that any of them says, items that come later are under them,
too, and taking one away raises nothing that another one holds down. Genres are the recommenders'
word. An item has all genres that any catalogue here gives it, or gave it before it was forgotten.

An item without a genre could be of a marked one. As soon as any genre is marked, such items weigh
what the most private mark says, until the owner says otherwise (`MarkedItems.answer`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import lru_cache

from hdpmf.common.protocol import CatalogueVersion
from hdpmf.common.protocol.catalogue import digests_of
from hdpmf.private.device.store.catalogues import PinnedCatalogue
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.schema import Mark
from hdpmf.private.device.store.tables import Tables

NO_GENRE = ""
"""In place of a genre: items that have none."""

_SAY_NOTHING = frozenset({"", "unknown", "none", "(no genres listed)"})


@lru_cache(maxsize=4096)
def genre_key(genre: str) -> str:
    """Return what a genre is known by: case, spaces and ways of writing a letter do not matter.

    A genre that says that there is none is ``NO_GENRE``.
    """
    key = " ".join(unicodedata.normalize("NFKC", genre).casefold().split())
    return NO_GENRE if key in _SAY_NOTHING else key


class MarkedItems:
    """The marks of one store.

    Args:
        catalogues: Returns all catalogues that are here, of recommenders and of the owner's file.
        changed: Is told that weights may have changed.
    """

    def __init__(
        self,
        database: Database,
        tables: Tables,
        catalogues: Callable[[], Sequence[PinnedCatalogue]],
        changed: Callable[[], None],
    ) -> None:
        self._database = database
        self._tables = tables
        self._catalogues = catalogues
        self._told = changed
        self._changes = 0
        self._kept_at: tuple[int, ...] = ()
        self._kept_of: Sequence[PinnedCatalogue] = ()
        self._kept: dict[str, float] = {}

    def __repr__(self) -> str:
        return "MarkedItems(...)"

    def rows(self) -> list[Mark]:
        """Return all rules."""
        return self._tables.marks.rows()

    def put(self, kind: str, name: str, weight: float) -> None:
        """Hold an item (``item``) or a genre's items (``genre``) at this weight or below.

        A weight of 1 takes this rule away, and no other.
        """
        with self._database.transaction():
            if kind == "genre":
                self._put_genre(genre_key(name), weight)
            elif weight < 1:
                self._tables.marks.put(Mark(kind="item", name=name, weight=weight))
                self._tables.marks.delete(Mark(kind="ordinary", name=name).key)
            else:
                self._tables.marks.delete(Mark(kind="item", name=name).key)
                if self.genres() and not self.genres_of({name})[name]:
                    self._tables.marks.put(Mark(kind="ordinary", name=name))
            self._changed()

    def genres(self) -> dict[str, float]:
        """Return the marked genres with their weights."""
        return {row.name: row.weight for row in self.rows() if row.kind == "genre"}

    def clear(self) -> None:
        """Take all rules out of the file."""
        self._tables.marks.clear()
        self._tables.past_items.clear()
        self._changed()

    def weights(self, names: Iterable[str] | None = None) -> dict[str, float]:
        """Return what items weigh at most, of all or of these, where a rule holds them below 1."""
        if names is not None:
            return self._weights(set(names))
        catalogues = self._catalogues()
        at = (self._database.version(), self._database.rollbacks, self._changes)
        if at != self._kept_at or [*map(id, catalogues)] != [*map(id, self._kept_of)]:
            self._kept_at, self._kept_of, self._kept = at, catalogues, self._weights(None)
        return dict(self._kept)

    def _weights(self, names: Set[str] | None) -> dict[str, float]:
        rows = self.rows()
        found = {
            row.name: row.weight
            for row in rows
            if row.kind == "item" and (names is None or row.name in names)
        }
        by_genre = {row.name: row.weight for row in rows if row.kind == "genre"}
        if not by_genre:
            return found
        ordinary = None if NO_GENRE in by_genre else self.ordinary(rows)
        without = by_genre.get(NO_GENRE, min(by_genre.values()))
        for name, genres in self.genres_of(names).items():
            held = [by_genre[genre] for genre in genres if genre in by_genre]
            if not genres and (ordinary is None or not ordinary(name)):
                held.append(without)
            if held:
                found[name] = min(*held, found.get(name, 1.0))
        return found

    def unanswered(self, names: Iterable[str]) -> set[str]:
        """Return those that are held down until the owner says what they are: without a genre."""
        rows, marked = self.rows(), self.genres()
        if not marked or NO_GENRE in marked:
            return set()
        ordinary = self.ordinary(rows)
        genres = self.genres_of(set(names))
        return {name for name, own in genres.items() if not own and not ordinary(name)}

    def genres_of(self, names: Set[str] | None = None) -> dict[str, set[str]]:
        """Return the genres of all items, or of these, as any catalogue says or one said before."""
        found: dict[str, set[str]] = {} if names is None else {name: set() for name in names}
        for catalogue in self._catalogues():
            table = catalogue.table
            positions = catalogue.positions
            for name in table.ids if names is None else names & positions.keys():
                own = found.setdefault(name, set())
                if table.genres:
                    own.update(map(genre_key, table.genres[positions[name]]))
        for name, past in self._past().items():
            if name in found:
                found[name].update(past)
        for genres in found.values():
            genres.discard(NO_GENRE)
        return found

    def _changed(self) -> None:
        self._changes += 1
        self._told()

    def _put_genre(self, genre: str, weight: float) -> None:
        if weight < 1:
            self._tables.marks.put(Mark(kind="genre", name=genre, weight=weight))
            return
        self._tables.marks.delete(Mark(kind="genre", name=genre).key)
        if genre == NO_GENRE:
            self.answer()

    def answer(self) -> None:
        """Let items without a genre that are here now weigh as others do; later ones ask again."""
        known = (digest.hex() for each in self._catalogues() for digest in digests_of(each.items))
        self._tables.marks.put(Mark(kind="answer", name=NO_GENRE, versions=tuple(sorted(known))))
        self._changed()

    def ordinary(self, rows: Sequence[Mark] | None = None) -> Callable[[str], bool]:
        """Return what says whether an item is ordinary by the owner's word, without a genre.

        Args:
            rows: All rules, where they were read already.
        """
        rows = self.rows() if rows is None else rows
        named = {row.name for row in rows if row.kind == "ordinary"}
        seen = {version for row in rows if row.kind == "answer" for version in row.versions}
        sizes = [
            (catalogue.positions, _items_seen(catalogue, seen))
            for catalogue in (self._catalogues() if seen else ())
        ]

        def ordinary(name: str) -> bool:
            return name in named or any(positions.get(name, n) < n for positions, n in sizes)

        return ordinary

    def _past(self) -> Mapping[str, Sequence[str]]:
        rows = self._tables.past_items.rows()
        return {name: about.genres for row in rows for name, about in row.items.items()}


def _items_seen(catalogue: PinnedCatalogue, seen: set[str]) -> int:
    """Return how many items a catalogue had in the newest of these versions."""
    items = catalogue.items
    sizes = (
        [link.items for link in items.links]
        if isinstance(items, CatalogueVersion)
        else [len(catalogue.table.ids)]
    )
    versions = zip(digests_of(items), sizes, strict=True)
    return max((size for digest, size in versions if digest.hex() in seen), default=0)
