"""Which items of several recommenders are the same thing, and what the device calls those that are not.

Recommenders number items as they like. Ratings, weights and the ledger know an item by its name on this device: its id
or, where another recommender has other items, its id with the shelf of this recommender before it. So a rating is
never about something else than its owner rated, and one of an item that two recommenders have is paid for by one
budget.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hdpmf.errors import ProtocolError
from hdpmf.protocol.versions import digests_of, table_of
from hdpmf.public.title_search import plain

if TYPE_CHECKING:
    from hdpmf.device.public import PinnedCatalogue
    from hdpmf.protocol import CatalogueTable

PLAIN = ""
"""The shelf whose items are called by their ids: that of the first catalogue."""

_YEAR = re.compile(r"\s*\(\d{4}\)\s*$")
_MARK = "\x1f"  # between the shelf and the id: no id of a catalogue has it (`check_ids`)


def name_on(shelf: str, item: str) -> str:
    """What this device calls an item of a shelf."""
    return f"{shelf}{_MARK}{item}" if shelf else item


def id_of(name: str) -> str:
    """The id that its recommender calls an item by, for people."""
    return name.rpartition(_MARK)[2]


def shelf_of(name: str) -> str:
    """The shelf of an item."""
    return name.rpartition(_MARK)[0]


def check_ids(table: CatalogueTable) -> None:
    """Refuse ids that look like names on another shelf: they would take over that one's ratings."""
    if any(_MARK in item for item in table.ids):
        raise ProtocolError("refused: an item's id has a control character that this device keeps for itself")


def same_items(left: PinnedCatalogue, right: PinnedCatalogue) -> bool:
    """Whether two catalogues are about the same things: one scale, and every id that both have has one title.

    Where ids are shared and titles are missing nobody can tell, and only equal ones or versions of one are the same.
    """
    if left.known.scale != right.known.scale:
        return False
    versions = zip(digests_of(left.items), digests_of(right.items), strict=False)
    if table_of(left.items) == table_of(right.items) or all(mine == theirs for mine, theirs in versions):
        return True  # a fingerprint knows no titles; these do
    said, told = _facts(left), _facts(right)
    shared = said.keys() & told.keys()
    return bool(shared) and all(said[item][0] and said[item] == told[item] for item in shared)


def contradict(left: PinnedCatalogue, right: PinnedCatalogue) -> bool:
    """Whether an id that both have is something else in each: another title, or another year.

    A file is written in its own way: case, signs and a year behind the title make no other title.
    """
    said, told = _facts(left), _facts(right)
    for item in said.keys() & told.keys():
        (title, year), (name, when) = said[item], told[item]
        if (title and name and _words(title) != _words(name)) or (year and when and year != when):
            return True
    return False


def _words(title: str) -> str:
    return plain(_YEAR.sub("", title))


def _facts(catalogue: PinnedCatalogue) -> dict[str, tuple[str, int | None]]:
    """Title and year of each item, by its id."""
    table, n = catalogue.table, len(catalogue.positions)
    titles, years = table.titles or ("",) * n, table.years or (None,) * n
    return {id_of(name): (title, year) for name, title, year in zip(table.ids, titles, years, strict=True)}
