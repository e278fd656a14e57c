"""The identity of items: what an id stands for, so that no rating is sent as one of something else.

Recommenders that share a namespace share the names of items on this device. Ids are their word, and
a later version of a catalogue may bring an id that another recommender has for something else. An
id is the same item only where both say the same title and year, or where both catalogues grew from
one. In every other case the item of the newcomer is *apart*: it gets a name of its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from hdpmf.common.protocol import CatalogueVersion
from hdpmf.common.protocol.catalogue import digests_of, plain, table_of
from hdpmf.private.device.store.catalogues import PinnedCatalogue, id_of, name_in, namespace_of
from hdpmf.private.device.store.schema import OWN_FILE, PastItem

LONGEST = 512
"""Characters of a title that are compared in its plain form."""

_WITH_YEAR = re.compile(r"^(.*\S)\s*\((\d{4})\)$")


class Identity(NamedTuple):
    """The title of an item in its plain form, empty where it has none, and its year."""

    title: str
    year: int | None


def identity_of(title: str, year: int | None) -> Identity:
    """Return what a title and a year stand for.

    Case, spaces and ways of writing a letter make no other item, and a year behind the title is its
    year. Accents do: in many languages they make other words.
    """
    if len(title) > LONGEST:
        # Normal forms can be eighteen times as long; of such a title only itself is the same.
        return Identity(sha256(title.encode(errors="replace")).hexdigest(), year)
    text = " ".join(unicodedata.normalize("NFKC", title).casefold().split())
    parts = _WITH_YEAR.match(text)
    if parts is None or year not in (None, int(parts[2])):
        return Identity(text, year)
    return Identity(parts[1], int(parts[2]))


def identities(catalogue: PinnedCatalogue) -> list[Identity]:
    """Return the identity of each item, in the order of the catalogue."""
    table, n = catalogue.table, len(catalogue.positions)
    titles, years = table.titles or ("",) * n, table.years or (None,) * n
    return [identity_of(title, year) for title, year in zip(titles, years, strict=True)]


def same_items(left: PinnedCatalogue, right: PinnedCatalogue) -> bool:
    """Return True if two catalogues have one scale and the same titles under all common ids.

    Versions of one catalogue are the same, too. Other catalogues are different if they have no id
    in common, or titles are missing.
    """
    if left.known.scale != right.known.scale:
        return False
    versions = zip(digests_of(left.items), digests_of(right.items), strict=False)
    if table_of(left.items) == table_of(right.items) or all(
        mine == theirs for mine, theirs in versions
    ):
        return True  # a fingerprint knows no titles; these do
    said, told = _by_id(left), _by_id(right)
    shared = said.keys() & told.keys()
    return bool(shared) and all(said[item].title and said[item] == told[item] for item in shared)


def contradict(own: Identity, other: Identity) -> bool:
    """Return True if an item of the owner's file has another title or year in a catalogue.

    A file is written in its own way, and may have no titles at all.
    """
    titles = own.title and other.title and plain(own.title) != plain(other.title)
    return bool(titles or (own.year and other.year and own.year != other.year))


def file_contradicts(own: PinnedCatalogue, catalogue: PinnedCatalogue) -> bool:
    """Return True if an id that both have is another item in each."""
    said, told = _by_id(own), _by_id(catalogue)
    return any(contradict(said[item], told[item]) for item in said.keys() & told.keys())


class KnownNames:
    """The items that names on this device mean before a catalogue comes.

    Args:
        recommender_id: Whose catalogue comes.
        others: Catalogues of all other recommenders.
        own: The owner's file.
        past: Items of forgotten catalogues.
    """

    def __init__(
        self,
        recommender_id: int,
        namespace: str,
        *,
        others: Sequence[PinnedCatalogue],
        own: PinnedCatalogue | None,
        past: Mapping[str, PastItem],
        rated: Collection[str],
    ) -> None:
        self._id = recommender_id
        self._namespace = namespace
        self._others = [(other, identities(other)) for other in others]
        self._own = {} if own is None else _by_id(own)
        self._past = past
        self._rated = rated
        self._shared = any(other.namespace == namespace for other in others)
        self._most: dict[str, int] = {}
        for name in past:
            whose, _, number = namespace_of(name).partition(".")
            if whose == str(recommender_id) and number:
                item = id_of(name)
                self._most[item] = max(self._most.get(item, 0), int(number))

    def apart(
        self, catalogue: PinnedCatalogue, first: int, known: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the ids that stand for something else here, each with its namespace's number.

        Args:
            catalogue: The one that comes, by its ids.
            first: The position of its first new item.
            known: The ids that are apart already.
        """
        found = dict(known)
        if not (self._others or self._own or self._past):
            return found
        common = [_common_items(catalogue, other) for other, _ in self._others]
        said = identities(catalogue)
        for position in range(first, len(said)):
            item = catalogue.table.ids[position]
            number = self._number(item, position, said[position], common)
            found.pop(item, None)
            if number:
                found[item] = number
        return found

    def _number(self, item: str, position: int, identity: Identity, common: Sequence[int]) -> int:
        """Return the number of the namespace that an item is in, or of the first free one."""
        free = None
        for number in range(self._most.get(item, 0) + 2):
            name = self._name(item, number)
            same = self._is_same(name, position, identity, common)
            if same:
                return number
            if same is None and free is None and (number or not self._claimed(name)):
                free = number
        return self._most.get(item, 0) + 1 if free is None else free

    def _name(self, item: str, number: int) -> str:
        return name_in(apart_namespace(self._id, number) if number else self._namespace, item)

    def _claimed(self, name: str) -> bool:
        """Return True if it was rated before anybody said what it is.

        That is for the first recommender of a namespace.
        """
        return self._shared and name in self._rated

    def _is_same(
        self, name: str, position: int, identity: Identity, common: Sequence[int]
    ) -> bool | None:
        """Return whether a name stands for this item; None where it stands for nothing yet."""
        told = []
        for (other, said), size in zip(self._others, common, strict=True):
            index = other.positions.get(name)
            if index is not None:
                grown_from_one = index == position < size
                told.append(grown_from_one or (bool(identity.title) and said[index] == identity))
        past = None if told else self._past.get(name)  # who is here was compared with it
        own = self._own.get(name)
        if own is not None:
            nobody_can_tell = self._shared and not (own.title and identity.title)
            told.append(not nobody_can_tell and not contradict(own, identity))
        if past is not None:
            was = Identity(past.title, past.year)
            if past.recommender_id == OWN_FILE:
                told.append(not contradict(was, identity))
            else:
                told.append(
                    was == identity and (bool(was.title) or past.recommender_id == self._id)
                )
        return all(told) if told else None


def apart_namespace(recommender_id: int, number: int) -> str:
    """Return the namespace of items that have the ids of others in their recommender's one."""
    return f"{recommender_id}.{number}"


def _by_id(catalogue: PinnedCatalogue) -> dict[str, Identity]:
    names = map(id_of, catalogue.table.ids)
    return dict(zip(names, identities(catalogue), strict=True))


def _common_items(left: PinnedCatalogue, right: PinnedCatalogue) -> int:
    """Return how many items two catalogues have in common because they grew from one."""
    if table_of(left.items) == table_of(right.items):
        return len(left.positions)
    common = 0
    for mine, theirs, size in zip(
        digests_of(left.items), digests_of(right.items), _sizes(left), strict=False
    ):
        if mine != theirs:
            break
        common = size
    return common


def _sizes(catalogue: PinnedCatalogue) -> list[int]:
    """Return how many items each version has."""
    items = catalogue.items
    if isinstance(items, CatalogueVersion):
        return [link.items for link in items.links]
    return [len(catalogue.positions)]
