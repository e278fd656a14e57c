"""The owner's choice of what others may see: a level for each recommender, and rules below it.

A level says what is hidden of a rating that takes part in a run: the item and the value
(``hidden``), the value (``seen``) or nothing (``open``). It is ``hidden`` until the owner raises
it, for one recommender at a time. Rules hold items, or all items of a genre, at a lower level for
all recommenders, also those that come later. They are applied when a level is read, so that
lowering counts at once; what was sent stays sent.

Whatever is marked as sensitive (``marks``) is hidden. So is an item to which the owner gave a
weight below 1, until the owner gives it a level of its own: who hides how much was liked seldom
wants to show that it was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy.levels import HIDDEN, LEVELS, OPEN, USER_DEFAULT, Level, check_level
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.private.device.store.catalogues import PinnedCatalogue
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.marks import NO_GENRE, MarkedItems, genre_key
from hdpmf.private.device.store.ratings_table import RatingsTable, SealedRatings
from hdpmf.private.device.store.schema import SharingRule
from hdpmf.private.device.store.tables import Tables


class SharingLevels:
    """The levels of one store. PRIVATE.

    Args:
        rated: The ratings, for weights that the owner gave to items.
        marks: What is sensitive.
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

    def of_items(
        self, names: Iterable[str] | None = None, rows: Sequence[SharingRule] | None = None
    ) -> dict[str, int]:
        """Return the levels of items that are held below ``open``.

        Args:
            names: Of which; of all by default.
            rows: Rules that could be; those that are by default.
        """
        few = None if names is None else set(names)
        rows = self.rows() if rows is None else rows
        own = {row.name: LEVELS.index(row.level) for row in rows if row.kind == "item"}
        found = {name: level for name, level in own.items() if few is None or name in few}
        for name, weight in self._rated.gammas(few).items():
            if weight < 1:
                found.setdefault(name, HIDDEN)
        by_genre = {row.name: LEVELS.index(row.level) for row in rows if row.kind == "genre"}
        if by_genre:
            # An item without a genre could be of any of these, as with marks.
            ordinary = self._marks.ordinary()
            without = by_genre.get(NO_GENRE, min(by_genre.values()))
            for name, genres in self._marks.genres_of(few).items():
                held = [by_genre[genre] for genre in genres if genre in by_genre]
                if not genres and (NO_GENRE in by_genre or not (name in own or ordinary(name))):
                    held.append(without)
                found[name] = min([*held, found.get(name, OPEN)])
        found |= dict.fromkeys(self._marks.weights(few), HIDDEN)
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
        for name, level in self.of_items(rows=rows).items():
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
