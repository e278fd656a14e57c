"""One budget for a title, under whatever names recommenders have it.

Ratings are known by names of items, and recommenders whose items differ have names of their own.
Whoever rates the same film for three of them, or takes a file in for each, has one secret and not
three. So a charge keeps keyed tags of what it was for: the title in the catalogue, and the row of
the owner's file that the rating came from. What was spent under another name with the same tag
counts, unless one catalogue has both names: then they are two items with one title.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from hdpmf.common.protocol.catalogue import plain
from hdpmf.private.device.store.encryption import TAG_BYTES
from hdpmf.private.device.store.item_identity import LONGEST, identity_of

if TYPE_CHECKING:
    from hdpmf.common.data import ItemTable, Ratings

NO_TAG = bytes(TAG_BYTES)
"""Of a charge for an item without a title, or a rating that came from no file."""

Tag = Callable[..., bytes]


class Subject(NamedTuple):
    """Tags of the thing that a rating is about.

    Attributes:
        title: Of its title, in the plainest form.
        year: 0 where it is not known.
        source: Of the row of a file that it came from.
    """

    title: bytes
    year: int
    source: bytes


def title_key(title: str, year: int | None = None) -> tuple[str, int]:
    """Return a title in the form in which budgets know it, and its year or 0.

    Case, accents, signs, spaces and the order of words do not matter, so that "Matrix, The" is "The
    Matrix". Unlike items, which must not be taken for one another, budgets are rather one too few.
    """
    known = identity_of(title[:LONGEST], year)
    text = "".join(letter if letter.isalnum() else " " for letter in plain(known.title))
    return " ".join(sorted(text.split())) or plain(known.title), known.year or 0


def subjects_of(ratings: Ratings, sources: Sequence[str], tag: Tag) -> list[Subject]:
    """Return what each rating is about.

    Args:
        ratings: Over the items of a catalogue.
        sources: The row of a file that each came from; empty for none.
        tag: Makes a keyed tag of a kind and texts.
    """
    titles = _titles(ratings)
    found = []
    for code, source in zip(ratings.item_codes.tolist(), sources, strict=True):
        key, year = ("", 0) if titles is None else titles.keys[code]
        found.append(
            Subject(
                tag(b"title", key) if key else NO_TAG,
                year,
                tag(b"source", source) if source else NO_TAG,
            )
        )
    return found


def spent_elsewhere(
    ratings: Ratings,
    pairs: Sequence[bytes],
    subjects: Sequence[Subject],
    charges: Iterable[tuple[bytes, Subject]],
    spent: dict[bytes, float],
    tag_of: Callable[[str], bytes],
) -> np.ndarray:
    """Return what was spent on the subject of each rating under names that its catalogue lacks.

    Args:
        ratings: Over the items of a catalogue.
        pairs: Their tags.
        charges: All that was ever charged: the tag of the rating that paid, and its subject.
        spent: What each rating has spent, by its tag.
        tag_of: The tag of a rating, by its item.
    """
    by_title: dict[bytes, set[tuple[bytes, int]]] = {}
    by_source: dict[bytes, set[bytes]] = {}
    for pair, subject in charges:
        if subject.title != NO_TAG:
            by_title.setdefault(subject.title, set()).add((pair, subject.year))
        if subject.source != NO_TAG:
            by_source.setdefault(subject.source, set()).add(pair)
    titles, codes = _titles(ratings), ratings.item_codes.tolist()
    total = np.zeros(len(ratings))
    for row, subject in enumerate(subjects):
        others = {
            pair
            for pair, year in by_title.get(subject.title, ())
            if 0 in (year, subject.year) or year == subject.year
        }
        others |= by_source.get(subject.source, set())
        others.discard(pairs[row])
        if others and titles is not None:
            namesakes = titles.names[titles.keys[codes[row]][0]]
            others -= set(map(tag_of, namesakes))
        if others:
            total[row] = sum(spent.get(pair, 0.0) for pair in others)
    return total


class _Titles:
    """The titles of a catalogue: the key of each item, and the names of items by their keys."""

    def __init__(self, table: ItemTable) -> None:
        self.keys = [
            title_key(title, year) for title, year in zip(table.titles, table.years, strict=True)
        ]
        self.names: dict[str, list[str]] = {}
        for name, (key, _) in zip(table.index.ids.tolist(), self.keys, strict=True):
            self.names.setdefault(key, []).append(str(name))


_KNOWN: WeakKeyDictionary[ItemTable, _Titles] = WeakKeyDictionary()


def _titles(ratings: Ratings) -> _Titles | None:
    """Return the titles of the catalogue that ratings are over, made once for each catalogue."""
    table = ratings.item_table
    if table is None:
        return None
    if table not in _KNOWN:
        _KNOWN[table] = _Titles(table)
    return _KNOWN[table]
