"""A rating that was changed or removed after it was released: what was sent stays sent, and the
device says so.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.private.device.disclosures.history import Afterwards, afterwards, by_rating, releases
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.store.device_store import DeviceStore

from .federated import TABLE

A, B, C = TABLE.ids[:3]


@pytest.fixture
def store() -> DeviceStore:
    """Three ratings."""
    made = DeviceStore.create(":memory:")
    made.pin_catalogue(TABLE)
    for item, value in ((A, 1), (B, 5), (C, 3)):
        made.rate(item, value)
    return made


def entry(run: str, action: str, recommender: str = "here:9443") -> Entry:
    return Entry(
        recommender=recommender,
        run=run * 32,
        number=0,
        method="hdp-sum",
        view="sums",
        epsilon=0.5,
        status="proved",
        action=action,
        words="",
        labels=False,
    )  # type: ignore[arg-type]


def pay(store: DeviceStore, run: str, action: str = "sent") -> None:
    ratings = store.ratings()
    store.ledger.charge(
        entry(run, action), ratings, np.arange(len(ratings)), np.full(len(ratings), 0.25)
    )


def test_nothing_was_released_nothing_is_said(store: DeviceStore) -> None:
    store.rate(A, 2)
    store.remove(B)
    assert afterwards(store) == {}
    assert releases(store, "me", A) == []
    assert Afterwards(0, 0).in_words("hdp-sum") == ""


def test_changed_removed_and_given_anew(store: DeviceStore) -> None:
    pay(store, "a")
    assert afterwards(store) == {"a" * 32: Afterwards(0, 0)}
    store.rate(A, 1)  # the same value again is no change
    store.set_weight(item=A, gamma=0.5)
    assert afterwards(store) == {"a" * 32: Afterwards(0, 0)}
    store.rate(A, 2)
    assert afterwards(store) == {"a" * 32: Afterwards(1, 0)}
    store.remove(B)
    assert afterwards(store) == {"a" * 32: Afterwards(1, 1)}
    store.rate(B, 5)  # what is given anew is not what was sent, as far as anybody knows
    assert afterwards(store) == {"a" * 32: Afterwards(2, 0)}
    store.forget(ratings=True)
    assert afterwards(store) == {"a" * 32: Afterwards(0, 3)}


def test_a_new_value_is_in_the_runs_after_it_and_not_in_those_before(store: DeviceStore) -> None:
    pay(store, "a")
    store.rate(A, 2)
    pay(store, "b")
    assert afterwards(store) == {"a" * 32: Afterwards(1, 0), "b" * 32: Afterwards(0, 0)}
    assert [run.sent.run[0] for run in releases(store, "me", A)] == ["a", "b"]
    changed = {
        record.item: [record.since >= run.number for run in runs]
        for record, runs in by_rating(store)
    }
    assert changed == {A: [True, False], B: [False, False], C: [False, False]}


def test_what_is_held_has_not_left_and_what_was_given_back_never_did(store: DeviceStore) -> None:
    pay(store, "a", "agreed")
    store.rate(A, 2)
    assert afterwards(store) == {}
    store.ledger.note(entry("a", "sent"), first=True)
    assert afterwards(store) == {
        "a" * 32: Afterwards(1, 0)
    }  # the numbers were made before the change
    pay(store, "b", "agreed")
    store.ledger.give_back(entry("b", "returned"), 1.0)
    assert set(afterwards(store)) == {"a" * 32}


def test_many_at_once_know_what_they_replace(store: DeviceStore) -> None:
    pay(store, "a")
    records = {record.item: record.value for record in store.records()}
    from hdpmf.common.data import Ratings

    known = store.ratings()
    store.add(Ratings.from_arrays(["me", "me"], [A, B], [records[A], 4.0], scale=known.scale))
    assert afterwards(store) == {"a" * 32: Afterwards(1, 0)}
