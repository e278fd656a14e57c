"""Attack 33: one operator with three brands, whose catalogues differ in one odd title each.

Each brand had a namespace of its own for it, and each of one person's ratings a budget in each: 3.0
for a film where the owner's policy says 1 for life.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.protocol import CatalogueTable
from hdpmf.errors import PrivacyError
from hdpmf.private.device.budget import choose
from hdpmf.private.device.disclosures.bounds import budgets
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.disclosures.shared_budget import title_key
from hdpmf.private.device.own_items import preview_file, take_file
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.passphrase import change_passphrase
from tests.world import terms, whole_life_policy

FILMS = {"1": "Heat (1995)", "2": "The Matrix (1999)", "3": "Amélie", "4": "Se7en"}
FILE = b"title,rating\nHeat,5\nThe Matrix,1\nAmelie,4\nSe7en,2\n"


def items(titles: dict[str, str], years: tuple[int | None, ...] = ()) -> CatalogueTable:
    return CatalogueTable(
        ids=tuple(titles),
        integer_ids=False,
        scale_low=1.0,
        scale_high=5.0,
        scale_step=1.0,
        titles=tuple(titles.values()) if any(titles.values()) else (),
        years=years,
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DeviceStore]:
    policy = whole_life_policy(epsilon=1.0, max_total=1000.0)
    with DeviceStore.create(tmp_path / "me.sqlite", policy=policy) as made:
        yield made


def brands(store: DeviceStore, *catalogues: CatalogueTable) -> list[DeviceStore]:
    """A recommender for each catalogue, and its owner's ratings taken in for each."""
    found = [store, *(store.new_recommender() for _ in catalogues[1:])]
    for view, catalogue in zip(found, catalogues, strict=True):
        view.pin_catalogue(catalogue)
        take_file(view, preview_file(view, FILE))
    return found


def spend(view: DeviceStore, epsilon: float = 1.0) -> dict[str, float]:
    """A run: what each rating pays, by the title that its recommender has."""
    number = len(view.ledger.entries())
    address = f"https://brand{view.recommender_id}.example"
    asked = terms(items(FILMS), epsilon=epsilon)
    chosen, pays, _ = choose(view, asked, address)
    entry = Entry(
        recommender=address,
        run=f"{number:032x}",
        number=0,
        method="hdp-sum",
        view="sums",
        epsilon=epsilon,
        status="proved",
        action="sent",
        words="numbers",
    )
    view.ledger.charge(entry, view.ratings(), chosen, pays)
    codes, table = view.ratings().item_codes[chosen].tolist(), view.pinned_catalogue
    assert table is not None
    titles = table.table.titles or table.table.ids
    return {titles[code]: pay for code, pay in zip(codes, pays.tolist(), strict=True)}


def odd(item: str, title: str) -> CatalogueTable:
    return items(FILMS | {item: title})


def test_three_brands_get_what_one_gets(store: DeviceStore) -> None:
    first, second, third = brands(
        store, items(FILMS), odd("1", "An odd one"), odd("2", "Another odd one")
    )
    assert len({view.item_namespace for view in (first, second, third)}) == 3
    assert set(spend(first).values()) == {1.0}
    assert spend(second) == {}
    assert spend(third) == {}
    assert store.ledger.spent_total() == 4.0
    assert [budget.left for budget in budgets(store)] == [0.0] * store.n_ratings
    left = third.ledger.remaining(third.ratings(), third.weights(), third.policy)
    assert left.tolist() == [0.0] * 3


def test_parts_of_a_budget_are_of_one(store: DeviceStore) -> None:
    first, second = brands(store, items(FILMS), odd("4", "An odd one"))
    spend(first, 0.25)
    assert set(spend(second, 0.5).values()) == {0.5}
    left = first.ledger.remaining(first.ratings(), first.weights(), first.policy)
    assert dict(zip(first.ratings().item_ids.tolist(), left.tolist(), strict=True)) == {
        "1": 0.25,
        "2": 0.25,
        "3": 0.25,
        "4": 0.75,
    }
    second.set_weight(item=second.name_of("1"), gamma=0.5)
    chosen, _, _ = choose(second, terms(items(FILMS), epsilon=0.25), "https://x")
    assert second.ratings().item_ids[chosen].tolist() == [second.name_of(item) for item in "23"]


@pytest.mark.parametrize(
    "titles",
    [
        {"1": "HEAT", "2": "Matrix, The (1999)", "3": "AMÉLIE!", "4": "Se7en (1995)"},
        {"1": "Heat\u200b", "2": "«The  Matrix»", "3": "Ame\u0301lie", "4": "S\uff457en"},
    ],
)
def test_titles_that_are_written_otherwise_have_one_budget(
    store: DeviceStore, titles: dict[str, str]
) -> None:
    first, second = brands(store, items(FILMS), items({"9": "Odd"} | titles))
    for item in "1234":
        second.rate(second.name_of(item), 4.0)
    spend(first)
    assert set(spend(second)) <= {"Odd"}


def test_other_ids_in_one_namespace_have_one_budget(store: DeviceStore) -> None:
    """It shares an id and a title with the first brand, and calls all other films otherwise."""
    others = {f"b{item}": title for item, title in FILMS.items() if item != "1"}
    first, second = brands(store, items(FILMS), items({"1": FILMS["1"]} | others))
    assert first.item_namespace == second.item_namespace
    assert store.n_ratings == 7
    spend(first)
    assert spend(second) == {}


def test_new_ids_of_one_recommender_have_the_budget_of_the_old(store: DeviceStore) -> None:
    """Its owner was asked to forget the catalogue and to take the file in again."""
    (first,) = brands(store, items(FILMS))
    spend(first)
    store.forget(model=True)
    store.pin_catalogue(items({f"b{item}": title for item, title in FILMS.items()}))
    take_file(store, preview_file(store, FILE))
    assert store.n_ratings == 8
    assert spend(store) == {}


def test_a_file_says_that_what_has_two_titles_is_one(store: DeviceStore) -> None:
    """By its ids: where titles are missing, or quite different."""
    data = b"item,rating\n1,5\n2,1\n3,4\n4,2\n"
    strange = items({item: f"Strange {item}" for item in FILMS})
    bare = items(dict.fromkeys(FILMS, ""))
    views = [store, store.new_recommender(), store.new_recommender()]
    for view, catalogue in zip(views, (items(FILMS), strange, bare), strict=True):
        view.pin_catalogue(catalogue)
        take_file(view, preview_file(view, data))
    assert len(spend(views[0])) == 4
    assert spend(views[1]) == {}
    assert spend(views[2]) == {}
    other = store.new_recommender()  # ids of another file are of other things
    other.pin_catalogue(items({item: f"Book {item}" for item in FILMS}))
    take_file(other, preview_file(other, b"item,rating\n1,5\n2,1\n"))
    assert len(spend(other)) == 2


def test_years_tell_films_apart_and_missing_ones_do_not(store: DeviceStore) -> None:
    hamlet = {"1": "Hamlet", "2": "Hamlet"}
    first, second, third = (store, store.new_recommender(), store.new_recommender())
    first.pin_catalogue(items(hamlet, (1948, 1996)))
    second.pin_catalogue(items({"1": "Hamlet", "3": "Odd"}, (2000, None)))
    third.pin_catalogue(items({"1": "Hamlet", "3": "Odder"}, (None, None)))
    for view in (first, second, third):
        for item in "12":
            if view.name_of(item) in view.pinned_catalogue.positions:  # type: ignore[union-attr]
                view.rate(view.name_of(item), 4.0)
    assert set(spend(second, 0.5)) == {"Hamlet"}
    assert len(choose(first, terms(items(FILMS)), "https://x")[0]) == 2
    spend(first)  # one catalogue has two: they are two
    assert store.ledger.spent_total() == 2.5
    assert spend(third, 0.1) == {}


def test_two_items_of_one_catalogue_with_one_title_are_two(store: DeviceStore) -> None:
    """As MovieLens has them; they pay in different runs."""
    store.pin_catalogue(items({"1": "Chasing Amy (1997)", "2": "Chasing Amy (1997)"}))
    for item in "12":
        store.rate(item, 4.0)
    for number in range(2):
        entry = Entry(
            recommender="https://x", run=f"{number:032x}", number=0, method="hdp-sum", view="sums",
            epsilon=1.0, status="proved", action="sent", words="numbers",
        )  # fmt: skip
        store.ledger.charge(entry, store.ratings(), np.array([number]), np.ones(1))
    assert store.ledger.spent_total() == 2.0
    assert [budget.left for budget in budgets(store)] == [0.0, 0.0]


def test_what_was_given_back_is_not_spent_under_any_name(store: DeviceStore) -> None:
    first, second = brands(store, items(FILMS), odd("4", "An odd one"))
    ratings = first.ratings()
    entry = Entry(
        recommender="https://x", run="ab" * 16, number=0, method="hdp-sum", view="sums",
        epsilon=1.0, status="proved", action="agreed", words="held",
    )  # fmt: skip
    first.ledger.charge(entry, ratings, np.arange(4), np.ones(4))
    assert spend(second) == {}
    first.ledger.give_back(entry, 1.0)
    assert len(spend(second)) == 3


@pytest.mark.slow
def test_it_is_refused_however_it_is_asked_for(store: DeviceStore, tmp_path: Path) -> None:
    """Whoever chooses ratings without looking is refused by the ledger, in any later process."""
    first, second = brands(store, items(FILMS), odd("4", "An odd one"))
    spend(first)
    store.remove("1")  # what it has spent stays spent
    address = second.recommender_id
    store.close()
    change_passphrase(tmp_path / "me.sqlite", "one two three")
    with DeviceStore.open(tmp_path / "me.sqlite", passphrase="one two three") as again:
        view = again.at(address)
        entry = Entry(
            recommender="https://y", run="cd" * 16, number=0, method="hdp-sum", view="sums",
            epsilon=1.0, status="proved", action="sent", words="numbers",
        )  # fmt: skip
        with pytest.raises(PrivacyError, match="3 of 3"):
            view.ledger.charge(entry, view.ratings(), np.arange(3), np.full(3, 0.01))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.2, 0.5, 0.7, 1.0])), max_size=8))
def test_no_title_ever_spends_more_than_its_budget(runs: Any) -> None:
    store = DeviceStore.create(":memory:", policy=whole_life_policy(epsilon=1.0, max_total=1000.0))
    views = brands(store, items(FILMS), odd("1", "Odd"), odd("2", "Odder"))
    total: dict[str, float] = {}
    for who, epsilon in runs:
        for title, pay in spend(views[who], epsilon).items():
            key = title_key(title)[0]
            total[key] = total.get(key, 0.0) + pay
    assert all(paid <= 1 + 1e-9 for paid in total.values())
