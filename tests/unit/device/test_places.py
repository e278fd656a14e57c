"""Several recommenders on one device: each with its catalogue and model, all with one ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.protocol import CatalogueTable, encode
from hdpmf.common.protocol.catalogue import known_items, next_version, signed_first
from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.errors import ConfigError, ProtocolError, RatingsError
from hdpmf.private.device.consent import give_answer, pending
from hdpmf.private.device.disclosures.bounds import budgets
from hdpmf.private.device.memberships import (
    at_recommender,
    forget,
    join,
    joined_recommenders,
    known_recommenders,
    leave,
    looks_like_another,
    remember,
    store_for,
    with_catalogue,
)
from hdpmf.private.device.own_items import current_catalogue, load_catalogue, rate_known
from hdpmf.private.device.pinned_servers import pinned_servers
from hdpmf.private.device.recommendations import hide, local_model, owner_recommendations
from hdpmf.private.device.recommender_state import RunState, open_runs, set_open
from hdpmf.private.device.store.catalogues import (
    PLAIN,
    PinnedCatalogue,
    id_of,
    name_in,
    namespace_of,
)
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.item_identity import same_items
from tests.world import Device, live, whole_life_policy

from .places_world import BOOKS, FILMS, FIRST, MORE_FILMS, OTHERS, SECOND, TITLES
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


def report(
    store: DeviceStore, invitation: Invitation, items: CatalogueTable, **changes: Any
) -> World:
    """A recommender with its own catalogue, task and model, which this device reports to."""
    world, name = World(), known_items(items).fingerprint
    asked = survey(catalogue=name, n_items=len(items.ids), **changes)
    world.publish(catalogue=encode(items), task=make_task(asked, servers=invitation.servers))
    device = reporter(store, invitation, world)
    live(device, world, 5000)
    return world


def test_the_name_of_an_invitation_is_shown_unless_it_is_anothers():
    plain_store = DeviceStore.create(":memory:")
    named = msgspec.structs.replace(FIRST, name="Film club")
    assert join(plain_store, named).name == "Film club"
    for name, shown in (("Film c1ub", ""), ("FILM-CLUB", ""), ("Book club", "Book club")):
        other = msgspec.structs.replace(SECOND, name=name)
        assert looks_like_another(plain_store, name, SECOND.address) == (not shown)
        assert join(plain_store, other).name == shown
    # A new invitation of the same recommender has the last word; without a name it has none.
    assert join(plain_store, msgspec.structs.replace(named, name="Film Club")).name == "Film Club"
    assert join(plain_store, FIRST).name == ""
    join(plain_store, named)
    forget(plain_store, FIRST.address)
    assert [known.name for known in known_recommenders(plain_store)] == ["", "Book club"]


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


def test_a_place_is_the_same_after_a_restart_and_after_forgetting(
    tmp_path: Path, store: DeviceStore
):
    at(store, FIRST).pin_catalogue(FILMS)
    at(store, SECOND).pin_catalogue(BOOKS)
    at(store, SECOND).rate(name_in("2", "item 00"), 2.0)
    store.close()
    with DeviceStore.open(tmp_path / "me.sqlite") as again:
        books = at(again, SECOND)
        assert (books.item_namespace, len(books.ratings())) == ("2", 1)
        again.forget(model=True)
        books.pin_catalogue(BOOKS)
        assert (books.item_namespace, len(books.ratings())) == ("2", 1)


def test_who_is_first_in_the_store_need_not_be_the_first_to_speak(store: DeviceStore):
    """What was rated before there was any catalogue is about the first one that comes."""
    store.rate("item 00", 3.0)
    at(store, SECOND).pin_catalogue(BOOKS)
    at(store, FIRST).pin_catalogue(FILMS)
    assert (at(store, SECOND).item_namespace, at(store, FIRST).item_namespace) == (PLAIN, "1")
    assert (len(at(store, SECOND).ratings()), len(at(store, FIRST).ratings())) == (1, 0)


def test_another_scale_is_another_shelf(store: DeviceStore):
    at(store, FIRST).pin_catalogue(FILMS)
    at(store, SECOND).pin_catalogue(msgspec.structs.replace(FILMS, scale_high=10.0))
    books = at(store, SECOND)
    assert books.item_namespace == "2"
    books.rate(name_in("2", "item 01"), 9.0)
    with pytest.raises(RatingsError, match="scale"):
        at(store, FIRST).rate("item 01", 9.0)
    with pytest.raises(RatingsError, match="scale"):
        books.rate(name_in("2", "item 01"), 11.0)


def test_only_titles_tell_that_items_are_the_same(store: DeviceStore):
    pins = DeviceStore.create(":memory:")
    bare = pins.pin_catalogue(table())
    assert same_items(bare, bare)
    films = at(store, FIRST).pin_catalogue(FILMS)
    assert not same_items(bare, films)
    assert same_items(films, DeviceStore.create(":memory:").pin_catalogue(MORE_FILMS))
    swapped = msgspec.structs.replace(FILMS, titles=(TITLES[1], TITLES[0], *TITLES[2:]))
    assert not same_items(films, DeviceStore.create(":memory:").pin_catalogue(swapped))
    apart = msgspec.structs.replace(FILMS, ids=tuple(f"other {place}" for place in range(N_ITEMS)))
    assert not same_items(films, DeviceStore.create(":memory:").pin_catalogue(apart))


def test_no_id_takes_over_the_ratings_of_another_shelf(store: DeviceStore):
    at(store, FIRST).pin_catalogue(FILMS)
    at(store, SECOND).pin_catalogue(BOOKS)
    store.rate(name_in("2", "item 00"), 2.0)
    third = store.new_recommender()
    with pytest.raises(ProtocolError, match="control character"):
        third.pin_catalogue(table(ids=(name_in("2", "item 00"), *FILMS.ids[1:])))


def test_a_recommender_names_its_own_servers(store: DeviceStore):
    """The servers of another recommender are trusted, too, but not for this one."""
    store.rate("item 00", 4.0)
    world = World()
    world.publish(
        catalogue=encode(FILMS),
        task=make_task(survey(catalogue=known_items(FILMS).fingerprint), servers=OTHERS),
    )
    device = reporter(store, FIRST, world)
    device.step()
    world.now = START + 5000
    device.step()
    assert not world.uploads
    assert any("other servers than those that are pinned" in line for line in world.logged)


def test_who_comes_back_has_the_place_of_before(store: DeviceStore):
    at(store, SECOND).pin_catalogue(BOOKS)
    leave(store, SECOND.address)
    assert [known.address for known in joined_recommenders(store)] == [FIRST.address]
    assert [known.address for known, _ in with_catalogue(store)] == [SECOND.address]
    assert OTHERS.digest not in store.policy.servers
    renewed = Invitation(
        address=SECOND.address, servers=SERVERS
    )  # having left it, its owner may join it anew
    assert join(store, renewed).id == 2
    assert pinned_servers(at(store, SECOND)) == SERVERS
    assert store.recommender_ids == [1, 2]


@pytest.mark.parametrize("end", [leave, forget])
def test_no_run_with_a_recommender_that_was_left_goes_on(
    store: DeviceStore, end: Callable[[DeviceStore, str], None]
):
    """Joined again, it would get answers that nobody agreed to any more."""
    runs = {bytes([n]) * 16: (FIRST if n == 2 else SECOND).address for n in (1, 2, 3)}
    for run, address in runs.items():
        store.runs.save(run, msgspec.msgpack.encode(RunState(recommender=address, terms=b"")))
    set_open(store, [*runs, b"lost" * 4])
    end(store, SECOND.address)
    kept = [run for run, address in runs.items() if address == FIRST.address]
    assert [run for run in runs if store.runs.load(run) is not None] == kept
    assert open_runs(store) == kept


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
    world, asked = World(), survey(catalogue=known_items(BOOKS).fingerprint)
    task = make_task(asked, servers=OTHERS, begin=START + 7200, end=START + 14400)
    world.publish(catalogue=encode(BOOKS), task=task)
    world.now, world.otherwise = START + 7300, "unreachable"
    device = reporter(store, SECOND, world)
    live(device, world, 4700)
    books = at(store, SECOND)
    assert [round(budget.left, 6) for budget in budgets(store)] == [0.7, 0.5]  # the second is held
    forget(store, SECOND.address)
    assert (books.pinned_catalogue, local_model(books), pinned_servers(books), books.roster) == (
        None,
    ) * 4
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


def test_on_the_command_line_an_unknown_address_is_the_same_recommender_that_moved(
    store: DeviceStore,
):
    moved = store_for(store, "https://films.example:9999")
    assert moved.recommender_id == 2  # the one of last time
    with pytest.raises(ConfigError, match="joined already"):
        store_for(store, FIRST.address, another=True)
    more = store_for(store, "https://masks.example:9092", another=True)
    assert more.recommender_id == 3
    remember(more, "https://masks.example:9092")
    assert [known.id for known in joined_recommenders(store)] == [1, 2, 3]


def test_an_earlier_version_of_a_catalogue_is_of_the_same_items_also_without_titles():
    key = DeviceIdentity.generate()
    first = signed_first(table(), key.sign, key.public)
    later = next_version(first, key.sign, added=table(ids=("item 99",)))
    other = next_version(first, key.sign, added=table(ids=("item 98",)))
    assert same_items(PinnedCatalogue(table()), PinnedCatalogue(later))
    assert same_items(PinnedCatalogue(later), PinnedCatalogue(first))
    assert not same_items(PinnedCatalogue(later), PinnedCatalogue(other))
    assert same_items(
        PinnedCatalogue(later), PinnedCatalogue(later.table)
    )  # at once, and in two versions


@given(st.text(max_size=20).filter(lambda text: "\x1f" not in text), st.integers(1, 99))
def test_a_name_says_its_shelf_and_its_id(item: str, place: int):
    name = name_in(str(place), item)
    assert (namespace_of(name), id_of(name)) == (str(place), item)
    assert (namespace_of(item), id_of(item)) == (PLAIN, item)


@pytest.mark.parametrize(
    "written",
    ["https://films.example:9443/", "https://FILMS.example:9443", "HTTPS://films.example:9443//"],
)
def test_an_address_is_the_same_however_it_is_written(store: DeviceStore, written: str):
    join(store, Invitation(address=written, servers=SERVERS))
    assert [known.address for known in joined_recommenders(store)] == [
        FIRST.address,
        SECOND.address,
    ]
    assert at_recommender(store, written).recommender_id == 1
    assert store_for(store, written).recommender_id == 1
    with pytest.raises(ConfigError, match="is joined already"):
        store_for(store, written, another=True)


def test_the_port_of_https_goes_without_saying(store: DeviceStore):
    found = [join(store, Invitation(address=address, servers=SERVERS)) for address in (
        "https://more.example:443", "https://more.example/", "https://more.example")]  # fmt: skip
    assert {known.address for known in found} == {"https://more.example"}


def test_an_address_that_an_older_version_kept_stays_as_it_is_in_the_ledger(store: DeviceStore):
    place = store.new_recommender()
    place.change_recommender(servers=SERVERS.to_json())
    remember(place, "https://Old.example:443/")
    known = join(store, Invitation(address="https://old.example", servers=SERVERS))
    assert (known.address, known.id) == ("https://Old.example:443/", 3)


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


def test_forgetting_before_a_catalogue_came_chooses_no_shelf(store: DeviceStore):
    at(store, FIRST).pin_catalogue(FILMS)
    store.forget(model=True)  # the second one's catalogue has never been here
    at(store, FIRST).pin_catalogue(FILMS)
    at(store, SECOND).pin_catalogue(BOOKS)
    assert (at(store, FIRST).item_namespace, at(store, SECOND).item_namespace) == (PLAIN, "2")


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


def test_a_files_items_wait_for_the_recommender_that_has_them(tmp_path: Path, store: DeviceStore):
    rows = zip(FILMS.ids, TITLES, strict=True)
    (tmp_path / "own.csv").write_text(
        "item,title\n" + "".join(f"{item},{title}\n" for item, title in rows)
    )
    load_catalogue(store, tmp_path / "own.csv")
    rate_known(store, FILMS.ids[0], 5.0)
    at(store, SECOND).pin_catalogue(BOOKS)
    at(store, FIRST).pin_catalogue(FILMS)
    assert (len(at(store, FIRST).ratings()), len(at(store, SECOND).ratings())) == (1, 0)
    store.forget(model=True)
    assert current_catalogue(store) is None  # the file's items, too


def test_who_leaves_in_the_middle_of_a_task_and_comes_back_is_asked_again(store: DeviceStore):
    """The report was made and paid for, and could not be sent: it does not leave after all."""
    store.set_policy(msgspec.structs.replace(store.policy, ask=True))
    at(store, FIRST).pin_catalogue(FILMS)
    store.rate("item 00", 4.0)
    world, asked = World(), survey(catalogue=known_items(FILMS).fingerprint)
    world.publish(catalogue=encode(FILMS), task=make_task(asked, servers=SERVERS))
    world.otherwise, device = "unreachable", reporter(store, FIRST, world)
    device.step()
    give_answer(store, pending(store)[0].key, "always")
    device.poll_soon()
    device.step()
    world.now = START + 5000
    device.step()
    assert [budget.left for budget in budgets(store)] == [0.5]
    leave(store, "https://FILMS.example:9443/")
    assert [budget.left for budget in budgets(store)] == [1.0]
    join(store, FIRST)
    world.otherwise = 201
    device = reporter(store, FIRST, world)
    for seconds in (0, 500, 500, 500):
        world.now += seconds
        device.poll_soon()
        device.step()
    assert not world.uploads
    assert store.ledger.spent_total() == 0
