"""Which items of several recommenders are the same thing, and what the device calls those that are not.

Recommenders number items as they like. Ratings, weights and the ledger know an item by its name on this device: its id
or, where another recommender has other items, its id with the shelf of this recommender before it. So a rating is
never about something else than its owner rated, and one of an item that two recommenders have is paid for by one
budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hdpmf.errors import ProtocolError
from hdpmf.protocol.versions import table_of

if TYPE_CHECKING:
    from hdpmf.device.public import PinnedCatalogue
    from hdpmf.protocol import CatalogueTable

PLAIN = ""
"""The shelf whose items are called by their ids: that of the first catalogue."""

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

    Where ids are shared and titles are missing nobody can tell, and only equal catalogues are the same.
    """
    if left.known.scale != right.known.scale:
        return False
    if table_of(left.items) == table_of(right.items):  # a fingerprint knows no titles
        return True
    said, told = _facts(left), _facts(right)
    shared = said.keys() & told.keys()
    return bool(shared) and all(said[item][0] and said[item] == told[item] for item in shared)


def _facts(catalogue: PinnedCatalogue) -> dict[str, tuple[str, int | None]]:
    """Title and year of each item, by its id."""
    table, n = catalogue.table, len(catalogue.positions)
    titles, years = table.titles or ("",) * n, table.years or (None,) * n
    return {id_of(name): (title, year) for name, title, year in zip(table.ids, titles, years, strict=True)}
