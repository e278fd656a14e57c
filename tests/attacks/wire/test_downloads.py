"""A recommender that has devices load rubbish, again and again: 64 MB at every look."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from hdpmf.common.protocol import encode
from hdpmf.errors import TransportError
from hdpmf.private.device.published_files import BYTES_PER_DAY, MOST_CATALOGUE
from hdpmf.private.device.store.device_store import DeviceStore
from tests.unit.device.reporting_world import TABLE, World, make_store, reporter, table

LOOKS = 100
EVERY = 300.0
RUBBISH = b"\xc1" * (1 << 20)


class Wasteful(World):
    """Counts the bytes that it sends besides the index."""

    def __init__(self) -> None:
        super().__init__()
        del self.index["keys"]
        self.publish()
        self.bytes = 0
        self.fetched: list[str] = []
        self.at_every_look: Callable[[], None] = lambda: None
        self.cut: int | None = None

    def fetch(self, name: str, most: int) -> bytes:
        if name == "index.json":
            self.at_every_look()
            return super().fetch(name, most)
        self.fetched.append(name)
        if self.cut is not None:  # so many bytes come, and then the connection breaks
            self.bytes += min(self.cut, most)
            error = TransportError("longer than it may be, or broken off")
            error.received = min(self.cut, most)
            raise error
        data = super().fetch(name, most)
        self.bytes += len(data)
        return data

    def name(self, digest: str, data: bytes) -> None:
        """Say that the catalogue has this digest, and send this."""
        self.index["catalogue"] = {"sha256": digest}
        self.files[f"catalogue-{digest}.msgpack"] = data
        super().publish()


def looks(path: Path, world: Wasteful, count: int) -> None:
    """Look so often, over a store that is opened anew."""
    with DeviceStore.open(path) as store:
        device = reporter(store, world, every=EVERY)
        for _ in range(count):
            device.poll_soon()
            device.step()
            world.now += EVERY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "me.hdpmf"
    make_store(path=made).close()
    return made


@pytest.fixture
def world() -> Wasteful:
    return Wasteful()


@pytest.mark.parametrize("honest", [True, False], ids=["of-this-digest", "of-another-digest"])
def test_a_refused_catalogue_is_loaded_once(path: Path, world: Wasteful, honest: bool) -> None:
    world.name(sha256(RUBBISH).hexdigest() if honest else "ab" * 32, RUBBISH)
    for _ in range(4):  # restarts
        looks(path, world, LOOKS // 4)
    assert world.bytes == len(RUBBISH)
    assert len([line for line in world.logged if "refused" in line]) == 1
    world.publish(catalogue=encode(TABLE))  # another one is looked at at once
    looks(path, world, 1)
    assert world.logged[-1] == f"The catalogue is version 1, {len(TABLE.ids)} items."
    with DeviceStore.open(path) as store:
        assert store.pinned_catalogue is not None


def test_a_catalogue_that_the_index_does_not_name_is_not_taken(path: Path, world: Wasteful) -> None:
    """A good one: whoever compares the index with others' would not see what this device gets."""
    world.name("ab" * 32, encode(TABLE))
    looks(path, world, 1)
    assert [line for line in world.logged if "its SHA-256 differs" in line]
    with DeviceStore.open(path) as store:
        assert store.pinned_catalogue is None


def test_a_refusal_holds_for_a_week(path: Path, world: Wasteful) -> None:
    world.name(sha256(RUBBISH).hexdigest(), RUBBISH)
    looks(path, world, 1)
    world.now += 7 * 86_400 - 2 * EVERY
    looks(path, world, 1)
    assert len(world.fetched) == 1
    world.now += 2 * EVERY
    looks(path, world, 1)
    assert len(world.fetched) == 2


def test_a_file_that_never_ends_is_tried_less_and_less(path: Path, world: Wasteful) -> None:
    world.cut = 1 << 60
    looks(path, world, LOOKS)
    assert world.bytes <= 8 * MOST_CATALOGUE  # 100 times, before
    assert len(world.fetched) <= 9


def test_another_rubbish_at_every_look_has_a_budget_for_the_day(
    path: Path, world: Wasteful
) -> None:
    world.cut = MOST_CATALOGUE - 1
    numbers = iter(range(10_000))
    world.at_every_look = lambda: world.name(f"{next(numbers):064x}", b"")
    for _ in range(4):
        looks(path, world, LOOKS // 4)
    assert 0 < world.bytes <= BYTES_PER_DAY
    assert [line for line in world.logged if "bytes a day" in line]
    world.now += 86_400
    world.cut = None
    world.at_every_look = lambda: None
    world.publish(catalogue=encode(TABLE))
    looks(path, world, 1)
    with DeviceStore.open(path) as store:
        assert store.pinned_catalogue is not None
        (state,) = store.tables.recommender_states.rows()
        assert state.downloaded.size == len(encode(TABLE))  # a new day begins with nothing


@pytest.mark.slow
def test_the_list_of_refused_files_has_an_end(path: Path, world: Wasteful) -> None:
    numbers = iter(range(10_000))
    world.at_every_look = lambda: world.name(f"{next(numbers):064x}", b"x")
    looks(path, world, LOOKS)
    with DeviceStore.open(path) as store:
        (state,) = store.tables.recommender_states.rows()
        assert len(state.downloaded.refused) <= 64


def test_what_the_owner_changes_is_looked_at_again(path: Path, world: Wasteful) -> None:
    """A catalogue that does not follow is refused, unless the owner forgets the old one."""
    world.publish(catalogue=encode(TABLE))
    looks(path, world, 1)
    world.publish(catalogue=encode(table(genres=(("Drama",),) * len(TABLE.ids))))
    looks(path, world, 3)
    assert len(world.fetched) == 2
    with DeviceStore.open(path) as store:
        store.forget(model=True)
    looks(path, world, 3)
    assert len(world.fetched) == 3
