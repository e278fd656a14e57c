"""Several recommenders on one device: each with its catalogue and model, all with one ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hdpmf.common.protocol import CatalogueTable, encode
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.identity import Invitation
from hdpmf.errors import ConfigError, ProtocolError
from hdpmf.private.device.disclosures.bounds import budgets
from hdpmf.private.device.memberships import (
    at_recommender,
    forget,
    join,
)
from hdpmf.private.device.own_items import load_catalogue, rate_known
from hdpmf.private.device.pinned_servers import pinned_servers
from hdpmf.private.device.recommendations import hide, local_model, owner_recommendations
from hdpmf.private.device.store.catalogues import (
    PLAIN,
    name_in,
)
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import Device, live, whole_life_policy

from .places_world import BOOKS, FILMS, FIRST, MORE_FILMS, OTHER_LISTS, OTHERS, SECOND, TITLES
from .reporting_world import N_ITEMS, SERVERS, START, World, make_facts, make_task, survey, table


@pytest.fixture
def store(tmp_path: Path) -> DeviceStore:
    made = DeviceStore.create(tmp_path / "me.sqlite", policy=whole_life_policy())
    join(made, FIRST)
    join(made, SECOND)
    return made


def at(store: DeviceStore, invitation: Invitation) -> DeviceStore:
    return at_recommender(store, invitation.address)


def reporter(store: DeviceStore, invitation: Invitation, world: World) -> Device:
    return Device(
        at(store, invitation),
        world,
        recommender=invitation.address,
        clock=lambda: world.now,
        log=world.logged.append,
        uniform=lambda: 0.5,
    )


def world_of(invitation: Invitation) -> World:
    """What is outside a device of this recommender."""
    return World(OTHER_LISTS if invitation is SECOND else None)


def report(
    store: DeviceStore, invitation: Invitation, items: CatalogueTable, **changes: Any
) -> World:
    """A recommender with its own catalogue, task and model, which this device reports to."""
    world, name = world_of(invitation), known_items(items).fingerprint
    asked = survey(catalogue=name, n_items=len(items.ids), **changes)
    world.publish(catalogue=encode(items), task=make_task(asked, servers=invitation.servers))
    device = reporter(store, invitation, world)
    live(device, world, 5000)
    return world


def test_other_items_under_the_same_ids_are_other_items(store: DeviceStore):
    films, books = at(store, FIRST), at(store, SECOND)
    films.rate("item 00", 5.0)
    films.pin_catalogue(FILMS)
    books.pin_catalogue(BOOKS)
    assert (films.item_namespace, books.item_namespace) == (PLAIN, "2")
    assert (len(films.ratings()), len(books.ratings())) == (1, 0)
    books.rate(name_in(books.item_namespace, "item 00"), 1.0)
    assert films.ratings().values.tolist() == [5.0]
    assert books.ratings().values.tolist() == [1.0]
    assert films.n_left_out == books.n_left_out == 1
    assert store.n_ratings == 2


def test_the_same_items_are_rated_once_and_paid_for_once(store: DeviceStore):
    """Two recommenders that have an item with one id and one title take from one budget, whoever
    comes first.
    """
    for item in FILMS.ids[:4]:
        store.rate(item, 4.0)
    world = report(store, FIRST, FILMS, epsilon=0.6)
    assert len(world.uploads) == 1
    assert [round(budget.left, 6) for budget in budgets(store)] == [0.4] * 4
    second = report(store, SECOND, MORE_FILMS, epsilon=0.6)
    assert at(store, SECOND).item_namespace == PLAIN
    assert len(second.uploads) == 1  # it answers, whatever it has left
    paid = [entry.ratings for entry in store.ledger.entries() if entry.action == "agreed"]
    assert paid == [4, 0]
    assert [round(budget.left, 6) for budget in budgets(store)] == [0.4] * 4


def test_other_items_have_budgets_of_their_own_and_the_total_is_for_all(store: DeviceStore):
    at(store, FIRST).pin_catalogue(FILMS)
    at(store, SECOND).pin_catalogue(BOOKS)
    for item in FILMS.ids[:4]:
        store.rate(item, 4.0)
        store.rate(name_in("2", item), 2.0)
    store.set_policy(msgspec.structs.replace(store.policy, max_total=3.0))
    report(store, FIRST, FILMS, epsilon=0.6)
    report(store, SECOND, BOOKS, epsilon=0.6)
    paid = [
        (entry.recommender, entry.ratings)
        for entry in store.ledger.entries()
        if entry.action == "agreed"
    ]
    assert paid == [(FIRST.address, 4), (SECOND.address, 1)]
    assert store.ledger.spent_total() == pytest.approx(3.0)


def test_each_has_its_model_and_its_list(store: DeviceStore):
    worlds = {}
    for invitation, items, mean in ((FIRST, FILMS, 2.0), (SECOND, BOOKS, 4.0)):
        worlds[invitation.address] = report(store, invitation, items)
        facts = make_facts(mean, catalogue=known_items(items).fingerprint)
        worlds[invitation.address].publish(facts=facts, run=f"{int(mean)}{int(mean)}" * 16)
        device = reporter(store, invitation, worlds[invitation.address])
        device.step()
    films, books = at(store, FIRST), at(store, SECOND)
    models = [local_model(place) for place in (films, books)]
    assert [model.recommender for model in models if model is not None] == [
        FIRST.address,
        SECOND.address,
    ]
    assert {entry.title for entry in owner_recommendations(films, 3)} <= set(TITLES)
    told = owner_recommendations(books, 3)
    assert all((entry.title or "").startswith("Book") for entry in told)
    hide(books, name_in(books.item_namespace, str(told[0].item)))
    assert told[0].title not in {entry.title for entry in owner_recommendations(books, N_ITEMS)}
    assert len(owner_recommendations(films, N_ITEMS)) == N_ITEMS
    store.forget(model=True)
    assert local_model(films) is None
    assert local_model(books) is None
    assert books.pinned_catalogue is None


def test_no_id_takes_over_the_ratings_of_another_shelf(store: DeviceStore):
    at(store, FIRST).pin_catalogue(FILMS)
    at(store, SECOND).pin_catalogue(BOOKS)
    store.rate(name_in("2", "item 00"), 2.0)
    third = store.new_recommender()
    with pytest.raises(ProtocolError, match="control character"):
        third.pin_catalogue(table(ids=(name_in("2", "item 00"), *FILMS.ids[1:])))


def test_forgetting_a_recommender_takes_all_of_it_out_and_gives_back_what_never_left(
    store: DeviceStore,
):
    """The ledger stays, and with it what was sent; what was only held is not lost."""
    at(store, SECOND).pin_catalogue(BOOKS)
    store.rate(
        "item 00", 4.0
    )  # of both: a film by its id, and the first catalogue is the books' here
    report(store, SECOND, BOOKS, epsilon=0.3)
    store.rate("item 01", 2.0)
    world, asked = world_of(SECOND), survey(catalogue=known_items(BOOKS).fingerprint)
    task = make_task(asked, servers=OTHERS, begin=START + 7200, end=START + 14400)
    world.publish(catalogue=encode(BOOKS), task=task)
    world.now, world.otherwise = START + 7300, "unreachable"
    device = reporter(store, SECOND, world)
    live(device, world, 4700)
    books = at(store, SECOND)
    assert [round(budget.left, 6) for budget in budgets(store)] == [0.7, 0.5]  # the second is held
    forget(store, SECOND.address)
    assert (books.pinned_catalogue, local_model(books), pinned_servers(books)) == (None,) * 3
    assert OTHERS.digest not in store.policy.servers
    assert store.n_ratings == 2
    actions = [entry.action for entry in store.ledger.entries()]
    assert actions[:2] == ["agreed", "sent"]
    assert [round(budget.left, 6) for budget in budgets(store)] == [0.7, 1.0]
    assert store.ledger.spent_total() == pytest.approx(0.3)
    world.otherwise = 201
    world.now += 1000
    device.step()
    assert not world.uploads
    with pytest.raises(ConfigError):
        forget(store, "https://nobody.example:1")
    assert at_recommender(store).recommender_id == 1  # commands are about the other one now
    join(store, SECOND)  # and back again, in its place
    assert at(store, SECOND).recommender_id == 2


@pytest.mark.parametrize(
    "address",
    [
        "https://f\u0456lms.example",
        "https://films.example:99999",
        "https://films.example:0",
        "https://films .example",
        "https://a@films.example",
        "https://films.example\\x",
    ],
)
def test_no_address_only_looks_like_another(address: str):
    with pytest.raises(ConfigError, match="https://host:port"):
        Invitation(address=address, servers=SERVERS)


@pytest.mark.parametrize(
    ("titles", "shelf"),
    [
        (TITLES, PLAIN),
        (tuple(f"  FILM {place} (1999)" for place in range(N_ITEMS)), PLAIN),
        (BOOKS.titles, "1"),
    ],
)
def test_what_was_rated_by_a_file_is_never_sent_as_something_else(
    tmp_path: Path, store: DeviceStore, titles: tuple[str, ...], shelf: str
):
    rows = zip(FILMS.ids, titles, strict=True)
    (tmp_path / "own.csv").write_text(
        "item,title\n" + "".join(f"{item},{title}\n" for item, title in rows)
    )
    load_catalogue(store, tmp_path / "own.csv")
    rate_known(store, FILMS.ids[0], 5.0)
    at(store, FIRST).pin_catalogue(FILMS)
    assert at(store, FIRST).item_namespace == shelf
    assert len(at(store, FIRST).ratings()) == (shelf == PLAIN)
