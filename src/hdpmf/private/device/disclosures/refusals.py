"""Refusals: what this device refused, to whom and why, kept in its store for the owner.

A recommender may send any number of offers to refuse. Repeated refusals only raise a count, the
number of different ones is limited for each recommender, and many at once are written in batches.
Recording a refusal never changes or delays an answer: what cannot be written immediately is written
with the next one, or dropped. Refusals hold no ratings.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from hdpmf.errors import HdpmfError
from hdpmf.private.device.disclosures.journal import utc_now
from hdpmf.private.device.errors import Reason
from hdpmf.private.device.policy import Terms
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import RefusalRecord, Refusals
from hdpmf.private.device.store.tables import ONLY

MOST_KEPT = 50
"""Different refusals of a recommender that are kept; the others are counted."""

BURST, EVERY = 16, 60.0
"""So many are written as they come; after that there is one write in so many seconds."""

_LONGEST = 300  # characters of the words


def merged(
    kept: Refusals, more: Iterable[RefusalRecord], dropped: Mapping[str, int] = MappingProxyType({})
) -> Refusals:
    """Return refusals with more of them: equal ones are counted, and new ones get room."""
    known = {entry.key: entry for entry in kept.refused}
    lost = Counter(kept.dropped) + Counter(dropped)
    for entry in more:
        before = known.pop(entry.key, None)
        if before is not None:
            count = before.count + entry.count
            entry = msgspec.structs.replace(entry, first=before.first, count=count)
        known[entry.key] = entry
        own = [other for other in known.values() if other.recommender == entry.recommender]
        if len(own) > MOST_KEPT:
            del known[own[0].key]
            lost[entry.recommender] += own[0].count
    return Refusals(refused=tuple(known.values()), dropped=dict(lost))


class RefusalBook:
    """Writes down what is refused to one recommender.

    Args:
        clock: Seconds that only go forward.
    """

    def __init__(
        self, store: DeviceStore, recommender: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._recommender, self._clock = store, recommender, clock
        self._lock = threading.Lock()
        self._waiting = Refusals()
        self._writes, self._counted_at = float(BURST), clock()

    def __repr__(self) -> str:
        return f"RefusalBook({len(self._waiting.refused)} to be written)"

    def note(
        self, reason: Reason, words: str, terms: Terms | None = None, run: bytes = b""
    ) -> None:
        """Keep a refusal. Nothing is raised, and nobody is waited for."""
        at = utc_now()
        asked = (
            {}
            if terms is None
            else {"method": terms.method, "view": terms.view, "epsilon": terms.epsilon}
        )
        entry = RefusalRecord(
            recommender=self._recommender,
            reason=reason,
            words=words if len(words) <= _LONGEST else words[: _LONGEST - 3] + "...",
            run=run.hex(),
            first=at,
            last=at,
            **asked,  # type: ignore[arg-type]
        )
        with self._lock:
            self._waiting = merged(self._waiting, [entry])
            now = self._clock()
            self._writes = min(self._writes + (now - self._counted_at) / EVERY, float(BURST))
            self._counted_at = now
            if self._writes >= 1:
                self._writes -= 1
                self._write()

    def settle(self) -> None:
        """Write what is left: nobody is answered any more."""
        with self._lock:
            if self._waiting.refused:
                self._write()

    def _write(self) -> None:
        try:
            with self._store.at_once():
                kept = load_refusals(self._store)
                kept = merged(kept, self._waiting.refused, self._waiting.dropped)
                self._store.tables.refusals.put(kept)
        except HdpmfError:
            # A full disk, or somebody else is writing: the next one takes these along.
            return
        self._waiting = Refusals()


def load_refusals(store: DeviceStore) -> Refusals:
    """Return the refusals that are kept."""
    return store.tables.refusals.find(ONLY) or Refusals()


def refusal_fields(store: DeviceStore) -> dict[str, Any]:
    """The same for JSON, the oldest first."""
    kept = load_refusals(store)
    return {
        "refused": [
            msgspec.to_builtins(entry) | {"epsilon": entry.epsilon or None}
            for entry in kept.refused
        ],
        "dropped": kept.dropped,
    }
