"""Entries of the ledger that version 0.1.0 wrote: they do not speak of labels, and ratings paid when it agreed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hdpmf.methods import METHODS

if TYPE_CHECKING:
    from hdpmf.device.ledger import Entry


def as_of_today(entry: Entry) -> Entry:
    """An entry as this version writes it."""
    if entry.labels is not None:
        return entry
    labelled = METHODS[entry.method].labelled if entry.method in METHODS else None
    return msgspec.structs.replace(entry, labels=labelled is not None and entry.rounds == labelled.rounds)


def is_held(entry: Entry) -> bool:
    """Whether what ratings are charged by an entry, as it was written, is held until numbers are sent."""
    return entry.action == "agreed" and entry.labels is not None
