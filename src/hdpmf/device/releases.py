"""What has become of ratings that were released: what was sent stays sent. For this device's owner only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hdpmf.device.ledger import Charged, Entry
from hdpmf.device.rated import Record
from hdpmf.device.store import DeviceStore
from hdpmf.methods import METHODS

_STAYS = "What was sent stays sent and cannot be recalled."


@dataclass(frozen=True, slots=True)
class Afterwards:
    """What the owner did with the ratings of a run after it had sent them.

    Attributes:
        changed: Ratings whose value is another one, or was given anew.
        removed: Ratings that are not here any more.
    """

    changed: int
    removed: int

    def in_words(self, method: str) -> str:
        """For the owner; empty where nothing happened."""
        if not (self.changed or self.removed):
            return ""
        done = [f"changed {self.changed}"] if self.changed else []
        done += [f"removed {self.removed}"] if self.removed else []
        return (
            f"Of these ratings you {' and '.join(done)} on this device afterwards. {_STAYS}"
            f"{_next(method) if self.changed else ''}"
        )


def afterwards(store: DeviceStore) -> dict[str, Afterwards]:
    """By run, for every run that something has left in."""
    since = {store.ledger.tag_of(record.user, record.item): record.since for record in store.records()}
    told = {}
    for run in store.ledger.charged():
        here = [since[tag] for tag in run.pairs if tag in since]
        told[run.entry.run] = Afterwards(sum(number >= run.number for number in here), len(run.pairs) - len(here))
    return told


def releases(store: DeviceStore, user: str, item: str) -> list[Charged]:
    """The runs that a rating was part of, oldest first, whether it is still here or not."""
    tag = store.ledger.tag_of(user, item)
    return [run for run in store.ledger.charged() if tag in run.pairs]


def by_rating(store: DeviceStore) -> Iterator[tuple[Record, list[Charged]]]:
    """Every rating here with the runs that it was part of."""
    runs = [(run, frozenset(run.pairs)) for run in store.ledger.charged()]
    for record in store.records():
        tag = store.ledger.tag_of(record.user, record.item)
        yield record, [run for run, pairs in runs if tag in pairs]


def released_words(entry: Entry, *, removed: bool) -> str:
    """What the owner hears who changes or removes a rating that was sent."""
    return (
        f"It was released on {entry.at[:10]} to {entry.recommender} ({entry.method}, run {entry.run[:8]}). {_STAYS}"
        f"{'' if removed else _next(entry.method)}"
    )


def _next(method: str) -> str:
    """What becomes of a new value."""
    if method in METHODS and METHODS[method].one_round:
        return " The new value is not sent to this recommender: a rating answers it once."
    return " A later run may use the new value, as far as the rating's budget reaches."
