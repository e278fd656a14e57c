"""Attack 31: what the owner has marked as sensitive is sent with the weight of everything else.

A mark is a rule that holds until its owner takes it back: new items, other marks, weights of one's
own and catalogues that say less never raise what it holds down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.protocol import AnyCatalogue, CatalogueTable
from hdpmf.common.protocol.catalogue import next_version, signed_first
from hdpmf.common.protocol.identity import Identity
from hdpmf.private.device.budget import choose
from hdpmf.private.device.choices.privacy_level import (
    SENSITIVE,
    item_weights,
    mark,
    mark_genre,
)
from hdpmf.private.device.own_items import preview_file, take_file
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.passphrase import change_passphrase
from tests.world import terms

KEY = Identity(b"k" * 32)
GENRES = {"1": ("Drama",), "2": ("Drama", "Health"), "3": ("Health",), "4": ("Comedy",)}


def items(genres: dict[str, tuple[str, ...]]) -> CatalogueTable:
    return CatalogueTable(
        ids=tuple(genres),
        integer_ids=False,
        scale_low=1.0,
        scale_high=5.0,
        scale_step=1.0,
        titles=tuple(f"Title {item}" for item in genres),
        genres=tuple(genres.values()),
    )


FIRST = signed_first(items(GENRES), KEY.sign, KEY.public)


def later(genres: dict[str, tuple[str, ...]], before: Any = FIRST) -> Any:
    return next_version(before, KEY.sign, added=items(genres))


TERMS = terms(FIRST.table, epsilon=0.5)


def weights(store: DeviceStore) -> dict[str, float | None]:
    """What ratings weigh, by every way that there is to read it."""
    found = {record.item: record.weight for record in store.records()}
    names = sorted(found)
    told = store.rated.weights_of(names)
    assert dict(zip(names, told.tolist(), strict=True)) == found
    table = dict(
        zip(
            map(str, store.ratings().item_ids.tolist()),
            store.weights().for_ratings(store.ratings()).tolist(),
            strict=True,
        )
    )
    assert table == found
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DeviceStore]:
    with DeviceStore.create(tmp_path / "me.sqlite") as made:
        made.pin_catalogue(FIRST)
        for item in GENRES:
            made.rate(item, 5.0)
        yield made


def test_new_items_of_a_marked_genre_are_marked(store: DeviceStore) -> None:
    """They weighed 1.0: an operator had only to wait for the mark, and add the items then."""
    mark_genre(store, "Health")
    store.pin_catalogue(later({"5": ("Health",), "6": ("Comedy", "health "), "7": ("Comedy",)}))
    for item in ("5", "6", "7"):
        store.rate(item, 5.0)
    assert [weights(store)[item] for item in ("5", "6", "7")] == [SENSITIVE, SENSITIVE, 1.0]
    chosen, pays, _ = choose(store, TERMS, "https://films.example")
    paid = dict(zip(store.ratings().item_ids[chosen].tolist(), pays.tolist(), strict=True))
    assert (paid["5"], paid["7"]) == (0.5 * int(64 * SENSITIVE) / 64, 0.5)


def test_unmarking_one_genre_unmarks_nothing_of_another(store: DeviceStore) -> None:
    mark_genre(store, "Health")
    mark_genre(store, "Drama")
    mark_genre(store, "Drama", 1.0)
    assert weights(store) == {"1": 1.0, "2": SENSITIVE, "3": SENSITIVE, "4": 1.0}
    mark(store, ["3"])
    mark_genre(store, "Health", 1.0)
    assert weights(store) == {"1": 1.0, "2": 1.0, "3": SENSITIVE, "4": 1.0}


def test_a_mark_never_raises_a_weight_of_ones_own(store: DeviceStore) -> None:
    """The owner's 0.02 became 0.1 by marking, and 1.0 by unmarking."""
    store.set_weight(item="3", gamma=0.02)
    for change in (SENSITIVE, 1.0):
        mark(store, ["3"], change)
        assert weights(store)["3"] == 0.02
        mark_genre(store, "Health", change)
        assert weights(store)["3"] == 0.02
    mark(store, ["3"], 0.05)
    mark(store, ["3"], 0.01)
    store.set_weight(item="3", gamma=1.0)
    assert weights(store)["3"] == 0.01
    mark(store, ["3"], 1.0)
    assert weights(store)["3"] == 1.0


def test_a_file_of_ratings_raises_no_weight_of_their_own(store: DeviceStore) -> None:
    """Importing it reset 0.05 to 1.0."""
    from hdpmf.private.device.store.ratings_table import Record

    store.rated.put([Record("1", 5.0, 0.05)], store.pinned_catalogue)
    take_file(store, preview_file(store, b"item,rating\n1,4\n2,4\n"))
    assert weights(store) == {"1": 0.05, "2": 1.0, "3": 1.0, "4": 1.0}
    mark_genre(store, "Drama", 0.02)
    assert weights(store)["1"] == 0.02


def test_a_catalogue_that_drops_a_genre_drops_no_mark(store: DeviceStore) -> None:
    """Versions only grow, so that it takes a forgotten catalogue, or another recommender's."""
    mark_genre(store, "Health")
    said_less = items({**GENRES, "3": ("Comedy",), "2": ()})
    other = store.new_recommender()
    other.pin_catalogue(said_less)
    assert other.item_namespace == store.item_namespace
    assert weights(other) == {"1": 1.0, "2": SENSITIVE, "3": SENSITIVE, "4": 1.0}
    store.forget(model=True)
    store.pin_catalogue(said_less)
    assert weights(store) == {"1": 1.0, "2": SENSITIVE, "3": SENSITIVE, "4": 1.0}


def test_a_genre_is_marked_for_all_recommenders(store: DeviceStore) -> None:
    mark_genre(store, "Health")
    books = store.new_recommender()
    books.pin_catalogue(
        CatalogueTable(
            ids=("1",), integer_ids=False, scale_low=1.0, scale_high=5.0, scale_step=1.0,
            titles=("A book",), genres=(("HEALTH",),),
        )
    )  # fmt: skip
    name = books.name_of("1")
    books.rate(name, 1.0)
    assert {record.item: record.weight for record in books.records()}[name] == SENSITIVE


@pytest.mark.slow
@pytest.mark.parametrize("how", ["reopen", "passphrase"])
def test_marks_go_where_the_ratings_go(store: DeviceStore, tmp_path: Path, how: str) -> None:
    mark_genre(store, "Health", 0.05)
    mark(store, ["4"])
    store.close()
    path, word = tmp_path / "me.sqlite", None
    if how == "passphrase":
        word = "one two three"
        change_passphrase(path, word)
    with DeviceStore.open(path, passphrase=word) as again:
        assert weights(again) == {"1": 1.0, "2": 0.05, "3": 0.05, "4": SENSITIVE}
        again.pin_catalogue(later({"5": ("Health",)}))
        again.rate("5", 5.0)
        assert weights(again)["5"] == 0.05


WEIGHTS = st.sampled_from([0.02, 0.1, 0.5, 1.0])
NAMES = st.sampled_from(["a", "b", "c", ""])
GENRE_LISTS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True).map(tuple)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("genre"), NAMES, WEIGHTS),
        st.tuples(st.just("item"), st.integers(0, 9), WEIGHTS),
        st.tuples(st.just("own"), st.integers(0, 9), WEIGHTS),
        st.tuples(st.just("version"), st.lists(GENRE_LISTS, min_size=1, max_size=3), st.none()),
    ),
    max_size=14,
)


class Rules:
    """What the owner has said, each by itself; the plainest reading of it."""

    def __init__(self, genres: dict[str, tuple[str, ...]]) -> None:
        self.genres = genres
        self.by_genre: dict[str, float] = {}
        self.items: dict[str, float] = {}
        self.own: dict[str, float] = {}
        self.ordinary: set[str] = set()  # said of single items
        self.answered: set[str] = set()  # said of all that were there

    def weight(self, item: str) -> float:
        said = [self.items.get(item, 1.0), self.own.get(item, 1.0)]
        said += [self.by_genre.get(genre, 1.0) for genre in self.genres[item]]
        if not self.genres[item] and "" in self.by_genre:
            said.append(self.by_genre[""])
        elif not self.genres[item] and item not in self.ordinary | self.answered:
            said.append(min(self.by_genre.values(), default=1.0))
        return min(said)


@settings(max_examples=60, deadline=None)
@given(GENRE_LISTS, STEPS)
def test_a_weight_is_the_least_of_all_rules(first: tuple[str, ...], steps: Any) -> None:
    """Whatever is marked, unmarked and weighed in whichever order, while catalogues grow."""
    numbers: Callable[[], int] = count(1).__next__
    genres = {"0": first, "0a": ("a",), "0b": ("b", "c"), "0c": ("c",)}
    rules = Rules(dict(genres))
    store = DeviceStore.create(":memory:")
    catalogue: AnyCatalogue = signed_first(items(genres), KEY.sign, KEY.public)
    store.pin_catalogue(catalogue)
    for item in genres:
        store.rate(item, 4.0)
    for kind, what, weight in steps:
        names = list(rules.genres)
        if kind == "version":
            new = {f"n{numbers()}": genre for genre in what}
            catalogue = later(new, catalogue)
            store.pin_catalogue(catalogue)
            rules.genres |= new
            for item in new:
                store.rate(item, 4.0)
        elif kind == "genre":
            if what == "" and all(rules.genres.values()) and "" not in rules.by_genre:
                continue
            mark_genre(store, what.upper(), weight)
            rules.by_genre.pop(what, None)
            if weight < 1:
                rules.by_genre[what] = weight
            if what == "":
                bare = {item for item in names if not rules.genres[item]}
                rules.answered = set() if weight < 1 else bare
        elif kind == "item":
            item = names[what % len(names)]
            mark(store, [item], weight)
            rules.items[item] = weight
            if weight < 1:
                rules.ordinary.discard(item)
            elif rules.by_genre and not rules.genres[item]:
                rules.ordinary.add(item)
        else:
            item = names[what % len(names)]
            store.set_weight(item=item, gamma=weight)
            rules.own[item] = weight
        found = weights(store)
        assert found == {item: rules.weight(item) for item in rules.genres}
        assert item_weights(store) == {
            item: own for item, own in found.items() if own is not None and own < 1
        }
