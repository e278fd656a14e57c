"""Attack 24: a recommender that shows people different catalogues, or changes its own behind
their backs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hdpmf.common.protocol import (
    CatalogueTable,
    CatalogueVersion,
    encode,
)
from hdpmf.common.protocol.catalogue import known_items, next_version, signed_first
from hdpmf.common.protocol.identity import Identity
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from tests.unit.device.reporting_world import PERIOD, World, make_store, make_task, reporter
from tests.unit.device.reporting_world import survey as survey_for_servers
from tests.unit.device.reporting_world import table as table_for_servers
from tests.world import Device, live, table, terms

from .hostile import N_ITEMS, STARS, device

pytestmark = pytest.mark.slow

KEY, OTHER = Identity(b"k" * 32), Identity(b"o" * 32)
FIRST = signed_first(table(), KEY.sign, KEY.public)
replace = msgspec.structs.replace


def with_item(
    name: str, items: CatalogueVersion = FIRST, *, retired: tuple[int, ...] = (), key: Any = KEY
) -> Any:
    """The next version, with one item more."""
    added = CatalogueTable(
        ids=(name,), integer_ids=False, scale_low=1.0, scale_high=5.0, scale_step=1.0
    )
    return next_version(items, key.sign, added=added, retired=retired)


COMMON = with_item("for everybody", retired=(7,))


def state(store: DeviceStore) -> tuple[Any, ...]:
    pinned = store.pinned_catalogue
    assert pinned is not None
    return pinned.number, pinned.version_digest, store.ledger.entries()


@pytest.fixture(params=["memory", "disk"])
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Device:
    """A device that has seen version 2."""
    made = device(STARS, path=":memory:" if request.param == "memory" else tmp_path / "me.hdpmf")
    assert made.learn(FIRST)
    assert made.learn(COMMON)
    return made


def test_the_next_version_is_taken_from_wherever_one_is(agent: Device) -> None:
    third = with_item("later", COMMON)
    for _ in range(2):
        assert agent.learn(third)
    assert agent.store.fingerprint == known_items(third).fingerprint
    newcomer = device(STARS)
    assert newcomer.learn(third)
    assert state(newcomer.store)[:2] == state(agent.store)[:2]


THIRD = with_item("later", COMMON)
LIES: dict[str, CatalogueVersion | CatalogueTable] = {
    "an item for this person alone, in place of the common one": with_item(
        "for you alone", retired=(7,)
    ),
    "the same after it": with_item("later", with_item("for you alone", retired=(7,))),
    "the version of before": FIRST,
    "the items of before, without a signature": table(),
    "the new items, without a signature": COMMON.table,
    "nothing is retired any more": with_item("for everybody"),
    "two items have changed places": replace(
        THIRD,
        table=replace(
            THIRD.table, ids=(THIRD.table.ids[1], THIRD.table.ids[0], *THIRD.table.ids[2:])
        ),
    ),
    "an item is gone": signed_first(table(N_ITEMS - 1), KEY.sign, KEY.public),
    "an item has another title": replace(
        THIRD, table=replace(THIRD.table, titles=("x",) * (N_ITEMS + 2))
    ),
    "a version is left out": replace(THIRD, links=(THIRD.links[0], THIRD.links[2])),
    "it is signed by nobody": replace(
        THIRD, links=(*THIRD.links[:2], replace(THIRD.links[2], signature=b"\1" * 64))
    ),
    "it is signed by somebody else": with_item(
        "later",
        with_item(
            "for everybody",
            signed_first(table(), OTHER.sign, OTHER.public),
            retired=(7,),
            key=OTHER,
        ),
        key=OTHER,
    ),
}


@pytest.mark.parametrize("lie", LIES, ids=[name.replace(" ", "-") for name in LIES])
def test_what_does_not_follow_is_refused_and_changes_nothing(agent: Device, lie: str) -> None:
    before = state(agent.store)
    agent = Device(agent.store)
    assert not agent.learn(LIES[lie])
    assert state(agent.store) == before
    assert "refused" in agent.said[0]
    assert "hdpmf device forget --model" in agent.said[0]
    assert agent.learn(THIRD)  # and the true one is still taken


@pytest.mark.parametrize(
    "lie", ["it is signed by nobody", "a version is left out", "two items have changed places"]
)
def test_a_first_catalogue_has_to_be_signed_as_it_says(lie: str) -> None:
    made = device(STARS)
    assert not made.learn(LIES[lie])
    assert made.store.pinned_catalogue is None


def test_after_a_restart_a_device_knows_what_it_has_seen(tmp_path: Path) -> None:
    made = device(STARS, path=tmp_path / "me.hdpmf")
    assert made.learn(COMMON)
    made.store.close()
    with DeviceStore.open(tmp_path / "me.hdpmf") as store:
        again = Device(store)
        assert not again.learn(FIRST)
        assert not again.learn(LIES["the same after it"])
        assert again.learn(THIRD)


def test_a_task_for_two_servers_is_about_the_items_that_its_id_says() -> None:
    """Who reports in a task has the same items as all who do: they are in its digest. There is
    none for one person.
    """
    first = signed_first(table_for_servers(), KEY.sign, KEY.public)
    common, alone = with_item("for everybody", first), with_item("for you alone", first)

    def task(items: CatalogueVersion, **changes: Any) -> bytes:
        asked = survey_for_servers(
            catalogue=known_items(items).fingerprint, n_items=len(items.table.ids)
        )
        return make_task(asked, **changes)

    assert task(common) != task(alone)
    for shown, asked, sent in (
        (common, common, 1),
        (alone, common, 0),
        (common, alone, 0),
        (first, common, 0),
    ):
        world, store = World(), make_store()
        world.publish(catalogue=encode(shown), task=task(asked))
        live(reporter(store, world, 0.3), world, PERIOD + 200)
        assert len(world.uploads) == sent
        assert (len(store.ledger.entries()) > 0) == bool(sent)
    world, store = World(), make_store()  # the policy's minimum of reports holds for every task
    world.publish(catalogue=encode(alone), task=task(alone, minimum=2))
    live(reporter(store, world, 0.3), world, PERIOD + 200)
    assert world.uploads == []


def test_public_files_with_a_fork_are_refused_once_and_in_words() -> None:
    first = signed_first(table_for_servers(), KEY.sign, KEY.public)
    world, store = World(), make_store()
    made = reporter(store, world)
    for items in (first, with_item("for everybody", first)):
        world.publish(catalogue=encode(items))
        live(made, world, 200)
    assert state(store)[0] == 2
    for lie in (with_item("for you alone", first), first, table_for_servers()):
        world.logged.clear()
        world.publish(catalogue=encode(lie))
        live(made, world, 400)
        assert [line for line in world.logged if "pinned here" in line and "forget --model" in line]
        assert len([line for line in world.logged if "refused" in line]) == 1
        assert state(store)[0] == 2


def test_a_retired_item_is_never_sent_again() -> None:
    """Not even to another recommender with the same items."""
    from hdpmf.private.device.budget import choose

    made = device({"item 07": 5.0, "item 08": 1.0}, policy=Policy(min_participants=4))
    assert made.learn(COMMON)
    asked = terms(COMMON.table, catalogue=known_items(COMMON).fingerprint)
    chosen, _, _ = choose(made.store, asked, "anybody")
    ratings = made.store.ratings()
    assert [str(item) for item in ratings.item_ids[chosen].tolist()] == ["item 08"]
    assert len(ratings) == 2  # for the owner's own list it still counts
