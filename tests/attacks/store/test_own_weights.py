"""Attack 29: a file of ratings makes a rating of weight 0.05 one of weight 1."""

from __future__ import annotations

import pytest

from hdpmf.private.device.own_items import preview_file, take_file
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import Record
from tests.attacks.hostile import STARS, device
from tests.world import table

ITEMS = sorted(STARS)[:3]


@pytest.fixture
def store() -> DeviceStore:
    store = device(catalogue=table()).store
    catalogue = store.pinned_catalogue
    store.rated.put([Record(ITEMS[0], 2.0, 0.05)], catalogue)
    return store


def own_weights(store: DeviceStore) -> dict[str, float | None]:
    return {one.item: one.weight for one in store.records() if one.item in ITEMS}


def test_a_file_of_ratings_keeps_what_the_owner_said_about_one(store: DeviceStore) -> None:
    assert own_weights(store) == {ITEMS[0]: 0.05, ITEMS[1]: 1.0, ITEMS[2]: 1.0}
    rows = "".join(f"{item},{4}\n" for item in ITEMS)
    assert take_file(store, preview_file(store, f"item,rating\n{rows}".encode())) == len(ITEMS)
    assert {one.value for one in store.records() if one.item in ITEMS} == {4.0}
    assert own_weights(store)[ITEMS[0]] == 0.05
    store.add(store.ratings())  # a table, as `rate --file` takes one
    assert own_weights(store) == {ITEMS[0]: 0.05, ITEMS[1]: 1.0, ITEMS[2]: 1.0}


def test_weights_that_come_with_ratings_are_taken(store: DeviceStore) -> None:
    records = [Record(item, 3.0, 0.5) for item in ITEMS]
    store.rated.put(records, store.pinned_catalogue)
    assert own_weights(store) == dict.fromkeys(ITEMS, 0.5)
