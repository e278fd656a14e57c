"""Attack 28: what is left on the disk of what the owner has taken back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import Record
from hdpmf.private.device.store.schema import HiddenItem

NAMES = [f"a film about {number:03d}" for number in range(400)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "me.hdpmf"
    with DeviceStore.create(path) as store:
        store.rated.put([Record(name, 3.0) for name in NAMES], None)
    return path


def written(path: Path) -> bytes:
    """Return all bytes of a store and of what lies beside it."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()))


def remove(store: DeviceStore) -> None:
    store.remove(NAMES[7])


def remove_many(store: DeviceStore) -> None:
    for name in NAMES[::2]:
        store.remove(name)


def forget(store: DeviceStore) -> None:
    store.forget(ratings=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "gone"),
    [(remove, NAMES[7:8]), (remove_many, NAMES[::2]), (forget, NAMES)],
    ids=["one", "many", "all"],
)
def test_nothing_of_a_removed_rating_is_left(
    path: Path, act: Callable[[DeviceStore], None], gone: list[str]
) -> None:
    """It stayed in the -wal, for as long as a process had the store open; without secure_delete it
    would stay in the file for good.
    """
    with DeviceStore.open(path) as store, DeviceStore.open(path) as page:
        assert page.n_ratings == len(NAMES)
        store.rate(NAMES[7], 4.0)  # once in the -wal, too
        assert all(name.encode() in written(path) for name in gone)
        act(store)
        found = written(path)
        assert not [name for name in gone if name.encode() in found]
        assert all(name.encode() in found for name in NAMES if name not in gone)
    assert not [name for name in gone if name.encode() in written(path)]


def test_what_another_reader_keeps_goes_when_it_has_read(path: Path) -> None:
    with DeviceStore.open(path) as store, DeviceStore.open(path) as page:
        store.rate(NAMES[7], 4.0)
        reader = page._database._connection
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM ratings").fetchall()
        store.remove(NAMES[7])  # waits a little, and does not fail
        assert NAMES[7].encode() in written(path)
        reader.execute("ROLLBACK")
        store.rate("another film", 3.0)
        assert NAMES[7].encode() not in written(path)


def test_nothing_of_an_old_value_or_a_shown_item_is_left(path: Path) -> None:
    with DeviceStore.open(path) as store:
        store.set_weight(item="what I take", gamma=0.25)
        store.tables.hidden_items.put(HiddenItem(item="what I hid"))
        store.tables.hidden_items.delete("what I hid")
        store.rated.clear()
        found = written(path)
        assert b"what I hid" not in found
        assert b"what I take" not in found


def test_nothing_of_a_mark_that_was_taken_away_is_left(path: Path) -> None:
    """What somebody finds sensitive is sensitive."""
    item = NAMES[7].encode()
    with DeviceStore.open(path) as store:
        store.remove(NAMES[7])
        store.set_weight(item=item.decode(), gamma=0.1)
        assert item in written(path)
        store.set_weight(item=item.decode(), gamma=1.0)
        assert item not in written(path)
