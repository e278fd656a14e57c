"""What the owner lets others see: levels for recommenders, and rules and marks below them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.privacy.levels import HIDDEN, OPEN, SEEN
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol.catalogue import next_version, signed_first
from hdpmf.errors import PrivacyError
from hdpmf.private.device import memberships
from hdpmf.private.device.choices.privacy_level import mark, mark_genre
from hdpmf.private.device.choices.sharing import Choice, choose, preview_choice, was_shown
from hdpmf.private.device.disclosures.data_export import data_export
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store import layout
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import Record
from hdpmf.private.device.store.transfer import export_store, import_store
from tests.world import table

from .places_world import FIRST as FILMS_INVITATION
from .places_world import SECOND as BOOKS_INVITATION

GENRES = (("Drama",), ("Comedy",), ("Drama", "Comedy"), (), ("War",))
ITEMS = tuple(f"film {number}" for number in range(len(GENRES)))


def films(ids: tuple[str, ...] = ITEMS, genres: tuple[tuple[str, ...], ...] = GENRES):
    return table(ids=ids, genres=genres)


@pytest.fixture
def store() -> DeviceStore:
    made = DeviceStore.create(":memory:")
    made.pin_catalogue(films())
    for item in ITEMS:
        made.rate(item, 4.0)
    return made


def codes(store: DeviceStore) -> list[int]:
    """Return the level of each item, which is also that of its rating."""
    found = store.levels().tolist()
    assert store.weights().levels_for(store.ratings()).tolist() == found
    return found


def test_all_is_hidden_until_the_owner_says_otherwise(store: DeviceStore) -> None:
    assert store.sharing_level() == "hidden"
    assert codes(store) == [HIDDEN] * 5
    assert store.weights().user_levels is None
    assert store.weights().item_levels is None


@pytest.mark.parametrize(("level", "code"), [("seen", SEEN), ("open", OPEN)])
def test_a_level_is_for_all_items_and_goes_down_at_once(
    store: DeviceStore, level: str, code: int
) -> None:
    before = store.ratings_version()
    store.set_sharing_level(level)  # type: ignore[arg-type]
    assert store.ratings_version() != before  # a run under way looks again
    assert codes(store) == [code] * 5
    store.set_sharing_level("hidden")
    assert codes(store) == [HIDDEN] * 5
    assert not store.sharing.rows()  # nothing is left that says what was chosen


def test_marks_hide_whatever_the_level_is(store: DeviceStore) -> None:
    store.set_sharing_level("open")
    mark(store, ["film 4"])
    mark_genre(store, "Comedy")
    # film 3 has no genre, and could be a comedy
    assert codes(store) == [OPEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN]
    store.marks.answer()
    assert codes(store) == [OPEN, HIDDEN, HIDDEN, OPEN, HIDDEN]
    mark(store, ["film 4"], 1.0)
    mark_genre(store, "Comedy", 1.0)
    assert codes(store) == [OPEN] * 5


def test_an_item_of_less_weight_is_hidden_until_it_has_a_level(store: DeviceStore) -> None:
    store.set_sharing_level("seen")
    store.set_weight(item="film 0", gamma=0.5)
    assert codes(store)[0] == HIDDEN
    store.sharing.put("item", "film 0", "open")
    assert codes(store)[0] == SEEN
    mark(store, ["film 0"])  # a mark is above what the owner said of the item
    assert codes(store)[0] == HIDDEN


def test_rules_hold_items_and_genres_lower_and_never_raise_them(store: DeviceStore) -> None:
    store.set_sharing_level("open")
    store.sharing.put("genre", " drama ", "seen")
    store.sharing.put("item", "film 2", "hidden")
    # film 3 has no genre, and could be a drama
    assert codes(store) == [SEEN, OPEN, HIDDEN, SEEN, OPEN]
    store.sharing.put("item", "film 3", "open")
    assert codes(store)[3] == OPEN
    store.sharing.put("genre", "", "hidden")
    assert codes(store)[3] == HIDDEN
    store.set_sharing_level("seen")
    assert codes(store) == [SEEN, SEEN, HIDDEN, HIDDEN, SEEN]
    for kind, name in (("genre", "Drama"), ("genre", ""), ("item", "film 2"), ("item", "film 3")):
        store.sharing.put(kind, name, None)  # type: ignore[arg-type]
    assert codes(store) == [SEEN] * 5


def test_items_that_come_later_are_under_the_rules() -> None:
    key = DeviceIdentity.generate()
    first = signed_first(films(), key.sign, key.public)
    store = DeviceStore.create(":memory:")
    store.pin_catalogue(first)
    store.set_sharing_level("seen")
    mark_genre(store, "War")
    store.marks.answer()
    store.sharing.put("genre", "Comedy", "hidden")
    more = films(
        tuple(f"new {number}" for number in range(4)), (("War",), ("Comedy",), ("Drama",), ())
    )
    store.pin_catalogue(next_version(first, key.sign, added=more))
    assert store.levels().tolist()[:5] == [SEEN, HIDDEN, HIDDEN, SEEN, HIDDEN]
    assert store.levels().tolist()[5:] == [HIDDEN, HIDDEN, SEEN, HIDDEN]


def test_what_is_no_level_changes_nothing(store: DeviceStore) -> None:
    store.set_sharing_level("seen")
    for attempt in (
        lambda: store.set_sharing_level("everything"),  # type: ignore[arg-type]
        lambda: store.sharing.put("item", "film 0", "visible"),  # type: ignore[arg-type]
    ):
        with pytest.raises(PrivacyError, match="a level is hidden, seen or open"):
            attempt()
    assert codes(store) == [SEEN] * 5


def test_each_recommender_has_its_own_level(tmp_path: Path) -> None:
    with DeviceStore.create(tmp_path / "me") as store:
        memberships.join(store, FILMS_INVITATION)
        memberships.join(store, BOOKS_INVITATION)
        one, two = (store.at(each) for each in store.recommender_ids)
        for view in (one, two):
            view.pin_catalogue(films())
        one.rate(ITEMS[0], 4.0)
        one.set_sharing_level("open")
        assert (one.sharing_level(), two.sharing_level()) == ("open", "hidden")
        assert one.weights().levels_for(one.ratings()).tolist() == [OPEN]
        assert two.weights().levels_for(two.ratings()).tolist() == [HIDDEN]
        two.set_sharing_level("seen")
        mark(store, [ITEMS[0]])  # for both
        assert one.levels()[0] == two.levels()[0] == HIDDEN


@pytest.mark.parametrize("way", ["leave", "forget"])
def test_who_is_left_sees_nothing_when_it_is_joined_again(tmp_path: Path, way: str) -> None:
    with DeviceStore.create(tmp_path / "me") as store:
        memberships.join(store, FILMS_INVITATION)
        memberships.join(store, BOOKS_INVITATION)
        for each in store.recommender_ids:
            store.at(each).set_sharing_level("seen")
        getattr(memberships, way)(store, FILMS_INVITATION.address)
        memberships.join(store, FILMS_INVITATION)
        again = memberships.at_recommender(store, FILMS_INVITATION.address)
        other = memberships.at_recommender(store, BOOKS_INVITATION.address)
        assert (again.sharing_level(), other.sharing_level()) == ("hidden", "seen")


def test_forgetting_ratings_hides_what_comes_after_it(store: DeviceStore) -> None:
    store.set_sharing_level("open")
    store.sharing.put("item", "film 0", "hidden")
    store.forget(model=False, ratings=False)
    assert codes(store) == [HIDDEN, OPEN, OPEN, OPEN, OPEN]
    store.forget(ratings=True)  # marks go with the ratings, so nothing new may be shown
    assert store.sharing.rows() == []
    store.rate("film 1", 3.0)
    assert store.weights().levels_for(store.ratings()).tolist() == [HIDDEN]


def test_a_simulated_device_has_the_levels_of_its_table(store: DeviceStore) -> None:
    ratings = store.ratings()
    levels = np.array([OPEN, OPEN, SEEN, HIDDEN, OPEN])
    weights = PrivacyWeights.from_parts(ratings, items=np.array([0.1, 1.0, 0.5, 1.0, 1.0]))
    given = weights.with_levels(users="open", items=levels)
    store.set_weights(given, ratings)
    assert codes(store) == levels.tolist() == given.levels_for(ratings).tolist()
    copied = DeviceStore.from_bytes(store.to_bytes())
    assert codes(copied) == levels.tolist()


def test_levels_of_single_ratings_are_kept_as_hidden_as_the_most_hidden() -> None:
    store = DeviceStore.create(":memory:", users=2)
    store.pin_catalogue(films())
    pairs = [("a", 0, SEEN), ("a", 1, HIDDEN), ("b", 0, OPEN), ("b", 1, OPEN), ("b", 2, SEEN)]
    store.rated.put([Record(user, ITEMS[item], 3.0) for user, item, _ in pairs], None)
    ratings = store.ratings()
    given = PrivacyWeights(
        ratings.users,
        ratings.items,
        np.ones(2),
        np.ones(5),
        user_levels=np.array([SEEN, OPEN]),
        rating_levels=np.array([level for _, _, level in pairs]),
    )
    store.set_weights(given, ratings)
    assert store.weights().levels_for(ratings).tolist() == [SEEN, HIDDEN, SEEN, HIDDEN, SEEN]


def test_a_store_of_1_0_opens_with_everything_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "me"
    old_store(path, monkeypatch)
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (layout.FIRST_SCHEMA,)
    with DeviceStore.open(path) as store:
        assert store.levels().tolist() == [HIDDEN] * 5
        assert store.rated.count() == 1
        store.set_sharing_level("seen")
    with DeviceStore.open(path) as store:
        assert store.levels().tolist() == [SEEN] * 5


def old_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a store with the tables of 1.0.0."""
    with monkeypatch.context() as patch:
        lay = Database.lay_tables
        patch.setattr(
            Database,
            "lay_tables",
            lambda self, cipher: lay(self, cipher, schema=layout.FIRST_SCHEMA),
        )
        patch.setattr(
            layout, "COLUMNS", {k: v for k, v in layout.COLUMNS.items() if k != "sharing"}
        )
        with DeviceStore.create(path) as store:
            store.pin_catalogue(films())
            store.rate(ITEMS[0], 5.0)


def test_what_was_shown_is_what_has_left(store: DeviceStore) -> None:
    """Not what was agreed to, nor what was given back."""
    facts = {
        "recommender": "https://films.example:9443", "run": "5e" * 16, "number": 0,
        "method": "hdp-share", "view": "messages", "epsilon": 0.5, "status": "proved",
    }  # fmt: skip
    agreed = Entry(**facts, action="agreed", words="is shown", seen=2, opened=1)
    opened = np.array([False, False, True])
    store.ledger.charge(agreed, store.ratings(), np.arange(3), np.array([0.5, 0.5, 0.0]), opened)
    assert was_shown(store) == {"seen": 0, "open": 0}
    store.ledger.note(Entry(**facts, action="sent", words="was shown"))
    assert was_shown(store) == {"seen": 2, "open": 1}
    assert was_shown(store, "https://films.example:9443") == {"seen": 2, "open": 1}
    assert was_shown(store, "https://books.example:9443") == {"seen": 0, "open": 0}
    others = facts | {"run": "6e" * 16}
    agreed = Entry(**others, action="agreed", words="is shown", seen=1)
    store.ledger.charge(agreed, store.ratings(), np.arange(3, 4), np.array([0.5]))
    store.ledger.give_back(Entry(**others, action="returned", words="never left"), 1.0)
    assert was_shown(store) == {"seen": 2, "open": 1}


def test_who_answered_before_is_not_shown_by_a_later_choice(store: DeviceStore) -> None:
    memberships.join(store, FILMS_INVITATION)
    entry = Entry(
        recommender=FILMS_INVITATION.address, run="5e" * 16, number=0, method="hdp-share",
        view="two-servers", epsilon=0.5, status="proved", action="sent", words="into a sum",
    )  # fmt: skip
    store.ledger.charge(entry, store.ratings(), np.arange(2), np.full(2, 0.5))
    found = preview_choice(store, Choice("user", "me", "open"))
    assert found.raises
    assert found.then.counts() == {"hidden": 0, "seen": 0, "open": 3, "answered": 2}
    assert found.now.counts() == {"hidden": 3, "seen": 0, "open": 0, "answered": 2}
    assert store.sharing.rows() == []  # looking changes nothing


def test_more_of_an_item_that_is_not_rated_is_more_too(store: DeviceStore) -> None:
    memberships.join(store, FILMS_INVITATION)
    store.forget(ratings=True)
    assert preview_choice(store, Choice("user", "me", "seen")).raises
    choose(store, Choice("user", "me", "seen"))
    choose(store, Choice("genre", "War", "hidden"))
    assert preview_choice(store, Choice("genre", "War", "seen")).raises
    assert not preview_choice(store, Choice("genre", "Drama", "seen")).raises
    assert not preview_choice(store, Choice("user", "me", "hidden")).raises


def test_a_rule_that_shows_more_to_another_recommender_is_more(store: DeviceStore) -> None:
    memberships.join(store, FILMS_INVITATION)
    memberships.join(store, BOOKS_INVITATION)
    books = memberships.at_recommender(store, BOOKS_INVITATION.address)
    books.pin_catalogue(films())
    books.set_sharing_level("seen")
    store.sharing.put("genre", "Drama", "hidden")
    store.sharing.put("item", "film 4", "hidden")
    assert store.sharing_level() == "hidden"
    assert preview_choice(store, Choice("genre", "Drama", "seen")).raises
    assert preview_choice(store, Choice("item", "film 4", "open")).raises
    assert not preview_choice(store, Choice("item", "film 0", "open")).raises  # a drama
    books.set_sharing_level("hidden")
    assert not preview_choice(store, Choice("genre", "Drama", "seen")).raises


def test_before_the_catalogue_is_here_showing_anything_is_more() -> None:
    with DeviceStore.create(":memory:") as empty:
        memberships.join(empty, FILMS_INVITATION)
        assert preview_choice(empty, Choice("user", "me", "seen")).raises
        assert not preview_choice(empty, Choice("user", "me", "hidden")).raises
        choose(empty, Choice("user", "me", "seen"))
        empty.pin_catalogue(films())
        assert empty.levels().tolist() == [SEEN] * 5


def test_who_shows_something_takes_part_by_the_policy_of_1_0_too() -> None:
    with DeviceStore.create(":memory:", policy=Policy(methods=("hdp-sum",))) as store:
        memberships.join(store, FILMS_INVITATION)
        choose(store, Choice("user", "me", "hidden"))
        assert store.policy.methods == ("hdp-sum",)
        choose(store, Choice("user", "me", "seen"))
        choose(store, Choice("user", "me", "open"))
        assert store.policy.methods == ("hdp-sum", "hdp-share")


def test_levels_travel_with_an_export(tmp_path: Path) -> None:
    with DeviceStore.create(tmp_path / "me") as store:
        store.pin_catalogue(films())
        store.set_sharing_level("open")
        store.sharing.put("genre", "Drama", "seen")
        store.sharing.put("item", ITEMS[1], "hidden")
        before, rows = store.levels().tolist(), store.sharing.rows()
    export_store(tmp_path / "me", tmp_path / "out", "a passphrase")
    import_store(tmp_path / "out", tmp_path / "new", "a passphrase")
    with DeviceStore.open(tmp_path / "new", passphrase="a passphrase") as store:
        assert (store.levels().tolist(), store.sharing.rows()) == (before, rows)
        assert data_export(store)["sharing"] == [
            {"user": "me", "recommender": "", "level": "open"},
            {"genre": "drama", "level": "seen"},
            {"item": ITEMS[1], "item_namespace": "", "level": "hidden"},
        ]


def test_nothing_of_it_is_in_a_sealed_file_or_in_words(tmp_path: Path) -> None:
    path = tmp_path / "me"
    with DeviceStore.create(path, passphrase="a passphrase") as store:
        store.pin_catalogue(films())
        store.set_sharing_level("seen")
        store.sharing.put("item", "film 3", "hidden")
        store.sharing.put("genre", "Drama", "hidden")
        shown = f"{store.sharing!r} {store.sharing.rows()!r}"
    assert not any(word in shown for word in ("film", "seen", "drama"))
    data = path.read_bytes()
    assert not any(word in data for word in (b"film 3", b"drama", b"seen"))
