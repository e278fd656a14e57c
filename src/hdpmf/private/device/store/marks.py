"""The owner's marks of what is sensitive: rules that are kept, and applied when a weight is read.

A rule says that an item, or every item of a genre, weighs at most so much. Rules know nothing of
each other: an item weighs the least that any of them says, items that come later are under them,
too, and taking one away raises nothing that another one holds down. Genres are the recommenders'
word. An item has all genres that any catalogue here gives it, or gave it before it was forgotten.

An item without a genre could be of a marked one. As soon as any genre is marked, such items weigh
what the most private mark says, until the owner says otherwise (`MarkedItems.answer`).

Beside marks there is the owner's choice of what others may see: a level for each recommender. It
says what is hidden of a rating that takes part in a run: the item and the value (``hidden``), the
value (``seen``) or nothing (``open``). It is ``hidden`` until the owner raises it, for one
recommender at a time. Rules hold items, or all items of a genre, at a lower level for all
recommenders, also those that come later. They are applied when a level is read, so that lowering
counts at once; what was sent stays sent.

Whatever is marked as sensitive is hidden. So is an item to which the owner gave a weight below 1,
until the owner gives it a level of its own: who hides how much was liked seldom wants to show that
it was seen.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy.levels import HIDDEN, LEVELS, OPEN, USER_DEFAULT, Level, check_level
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import CatalogueVersion
from hdpmf.common.protocol.catalogue import digests_of
from hdpmf.private.device.store.catalogues import PinnedCatalogue
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.ratings_table import RatingsTable, SealedRatings
from hdpmf.private.device.store.schema import Mark, SharingRule
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


class SharingLevels:
    """The levels of one store. PRIVATE.

    Args:
        rated: The ratings, for weights that the owner gave to items.
    """

    def __init__(
        self, database: Database, tables: Tables, rated: SealedRatings, marks: MarkedItems
    ) -> None:
        self._database = database
        self._rules = tables.sharing
        self._rated = rated
        self._marks = marks

    def __repr__(self) -> str:
        return "SharingLevels(...)"

    def rows(self) -> list[SharingRule]:
        """Return all that the owner said."""
        return self._rules.rows()

    def of_user(self, recommender_id: int, user: str) -> Level:
        """Return what a user lets a recommender see at most."""
        rule = self._rules.find(
            SharingRule(kind="user", name=user, recommender_id=recommender_id).key
        )
        return USER_DEFAULT if rule is None else rule.level

    def people(self) -> set[str]:
        """Return the users who let any recommender see something."""
        return {row.name for row in self.rows() if row.kind == "user" and row.level != USER_DEFAULT}

    def set_user(self, recommender_id: int, user: str, level: Level) -> None:
        """Let a recommender see so much of a user's ratings from now on."""
        check_level(level, "sharing")
        rule = SharingRule(kind="user", name=user, level=level, recommender_id=recommender_id)
        with self._database.transaction():
            if level == USER_DEFAULT:
                self._rules.delete(rule.key)
            else:
                self._rules.put(rule)
            self._rated.touch()

    def put(self, kind: Literal["item", "genre"], name: str, level: Level | None) -> None:
        """Hold an item, or a genre's items, at this level or below; None takes the rule away.

        A mark, or another rule, may hold them lower.
        """
        self.put_all(kind, {name: level})

    def put_all(self, kind: Literal["item", "genre"], levels: Mapping[str, Level | None]) -> None:
        """Do as `put` for each name, in one commit."""
        with self._database.transaction():
            for name, level in levels.items():
                known_as = genre_key(name) if kind == "genre" else name
                if level is None:
                    self._rules.delete(SharingRule(kind=kind, name=known_as).key)
                else:
                    check_level(level, "sharing")
                    self._rules.put(SharingRule(kind=kind, name=known_as, level=level))
            self._rated.touch()

    def of_items(self, rows: Sequence[SharingRule] | None = None) -> dict[str, int]:
        """Return the levels of items that are held below ``open``.

        Args:
            rows: Rules that could be; those that are by default.
        """
        rows = self.rows() if rows is None else rows
        own = {row.name: LEVELS.index(row.level) for row in rows if row.kind == "item"}
        found = dict(own)
        for name, weight in self._rated.gammas().items():
            if weight < 1:
                found.setdefault(name, HIDDEN)
        by_genre = {row.name: LEVELS.index(row.level) for row in rows if row.kind == "genre"}
        if by_genre:
            # An item without a genre could be of any of these, as with marks.
            ordinary = self._marks.ordinary()
            without = by_genre.get(NO_GENRE, min(by_genre.values()))
            for name, genres in self._marks.genres_of().items():
                held = [by_genre[genre] for genre in genres if genre in by_genre]
                if not genres and (NO_GENRE in by_genre or not (name in own or ordinary(name))):
                    held.append(without)
                found[name] = min([*held, found.get(name, OPEN)])
        found |= dict.fromkeys(self._marks.weights(), HIDDEN)
        return {name: level for name, level in found.items() if level < OPEN}

    def for_users(self, recommender_id: int, users: Sequence[str]) -> np.ndarray | None:
        """Return the levels of users; None where all of them are hidden."""
        levels = [LEVELS.index(self.of_user(recommender_id, user)) for user in users]
        return np.array(levels, np.int8) if any(levels) else None

    def for_items(
        self, catalogue: PinnedCatalogue, rows: Sequence[SharingRule] | None = None
    ) -> np.ndarray:
        """Return the level of each item of a catalogue; rules are as in `of_items`."""
        levels = np.full(len(catalogue.positions), OPEN, np.int8)
        for name, level in self.of_items(rows).items():
            position = catalogue.positions.get(name)
            if position is not None:
                levels[position] = level
        return levels

    def applied(
        self, table: RatingsTable, catalogue: PinnedCatalogue, recommender_id: int
    ) -> RatingsTable:
        """Return ratings over a catalogue with the levels for a recommender in their weights.

        Where all users are hidden it is the same table.
        """
        users = self.for_users(recommender_id, table.weights.users.ids.tolist())
        if users is None:
            return table
        weights = table.weights.with_levels(users=users, items=self.for_items(catalogue))
        return replace(table, weights=weights)

    def set_table(
        self,
        recommender_id: int,
        weights: PrivacyWeights,
        ratings: Ratings,
        catalogue: PinnedCatalogue | None,
    ) -> None:
        """Set the levels of a table's users and items, for a simulation, if it has any."""
        if weights.user_levels is None:
            return
        users = weights.user_levels[weights.users.find(ratings.users.ids)]
        people, items = np.unique(ratings.user_codes), np.unique(ratings.item_codes)
        levels = np.full(ratings.n_items, OPEN, np.int8)
        known = weights.items.find(ratings.items.ids[items])
        if weights.item_levels is not None:
            levels[items] = weights.item_levels[known]
        if weights.rating_levels is not None:
            np.minimum.at(levels, ratings.item_codes, weights.rating_levels)
        # An item of less weight is hidden unless it has a level of its own.
        named = items[(levels[items] < OPEN) | (weights.gamma[known] < 1)].tolist()
        ids = [str(ratings.items.ids[code]) for code in named]
        names = ids if catalogue is None else [catalogue.name_of(item) for item in ids]
        with self._database.transaction():
            for code in people.tolist():
                user = str(ratings.users.ids[code])
                self.set_user(recommender_id, user, LEVELS[users[code]])
            chosen = [LEVELS[levels[code]] for code in named]
            self.put_all("item", dict(zip(names, chosen, strict=True)))

    def hide_from(self, recommender_id: int) -> None:
        """Let a recommender see nothing of anybody from now on."""
        with self._database.transaction():
            for row in self.rows():
                if row.kind == "user" and row.recommender_id == recommender_id:
                    self._rules.delete(row.key)
            self._rated.touch()

    def clear(self) -> None:
        """Take everything out of the file: all is hidden, and no rule is left."""
        with self._database.transaction():
            self._rules.clear()
            self._rated.touch()
