"""Attack 32: a rating is sent as a rating of something else.

Recommenders that share items share their names on this device. One that shares a single film with
another, and gives its own later items the ids of the other's, got "I take antidepressants: 5".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.protocol import CatalogueTable
from hdpmf.common.protocol.catalogue import next_version, signed_first
from hdpmf.common.protocol.identity import Identity
from hdpmf.private.device.recommendations import hidden_ids, hide
from hdpmf.private.device.store.device_store import DeviceStore

KEYS = [Identity(bytes([number]) * 32) for number in range(1, 5)]
HEALTH = {"1": "Heat (1995)", "50": "I take antidepressants", "51": "I slept well"}


def items(titles: dict[str, str], **changes: Any) -> CatalogueTable:
    told = tuple(titles.values())
    fields: dict[str, Any] = {"titles": told if any(told) else ()} | changes
    return CatalogueTable(
        ids=tuple(titles),
        integer_ids=False,
        scale_low=1.0,
        scale_high=5.0,
        scale_step=1.0,
        **fields,
    )


def first(titles: dict[str, str], key: int = 0, **changes: Any) -> Any:
    return signed_first(items(titles, **changes), KEYS[key].sign, KEYS[key].public)


def later(before: Any, titles: dict[str, str], key: int = 0, **changes: Any) -> Any:
    return next_version(before, KEYS[key].sign, added=items(titles, **changes))


def sent(store: DeviceStore) -> dict[str, float]:
    """What a recommender gets to know of, by the titles that *it* has."""
    catalogue = store.pinned_catalogue
    assert catalogue is not None
    ratings = store.ratings()
    titles = catalogue.table.titles or catalogue.items.table.ids  # type: ignore[union-attr]
    return {
        titles[code]: value
        for code, value in zip(ratings.item_codes.tolist(), ratings.values.tolist(), strict=True)
    }


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DeviceStore]:
    with DeviceStore.create(tmp_path / "me.sqlite") as made:
        made.pin_catalogue(first(HEALTH))
        for item, value in (("1", 3.0), ("50", 5.0), ("51", 2.0)):
            made.rate(item, value)
        yield made


def brand(store: DeviceStore, titles: dict[str, str], key: int = 1) -> tuple[DeviceStore, Any]:
    """One more recommender, with a catalogue of its own."""
    catalogue, other = first(titles, key), store.new_recommender()
    other.pin_catalogue(catalogue)
    return other, catalogue


@pytest.mark.parametrize(
    "titles",
    [
        {"50": "Bambi", "51": "Dumbo"},  # it renames its ids
        {"50": "I slept well", "51": "I take antidepressants"},  # two titles have changed places
        {"50": "I take antidepressant", "51": "I slept we11"},  # a few characters
        {"50": "I take antidepressants (2001)", "51": "I slept well (2001)"},  # another year
        {"50": "I take \N{CYRILLIC SMALL LETTER A}ntidepressants", "51": "Í slept well"},
        {"50": "", "51": ""},  # nobody can tell
    ],
)
def test_a_later_version_takes_over_no_rating(store: DeviceStore, titles: dict[str, str]) -> None:
    second, catalogue = brand(store, {"1": "Heat (1995)", "2": "Alien"})
    assert second.item_namespace == store.item_namespace
    assert sent(second) == {"Heat (1995)": 3.0}
    told = second.pin_catalogue(later(catalogue, titles, 1))
    assert sent(second) == {"Heat (1995)": 3.0}
    assert set(told.apart) == {"50", "51"}
    assert sent(store) == {"Heat (1995)": 3.0, "I take antidepressants": 5.0, "I slept well": 2.0}
    second.rate(second.name_of("50"), 1.0)  # what is rated there is about its own item
    assert sent(second)[titles["50"]] == 1.0
    assert sent(store)["I take antidepressants"] == 5.0
    hide(second, second.name_of("50"))
    assert (hidden_ids(second), hidden_ids(store)) == ({"50"}, set())


@pytest.mark.parametrize(
    "title",
    [
        "I take antidepressants",
        "  I TAKE   antidepressants ",
        "I take antidepressants".replace("i", "\N{FULLWIDTH LATIN SMALL LETTER I}"),
    ],
)
def test_the_same_title_however_it_is_written_is_the_same_item(
    store: DeviceStore, title: str
) -> None:
    second, catalogue = brand(store, {"1": "HEAT  (1995)"})
    told = second.pin_catalogue(later(catalogue, {"50": title}, 1))
    assert not told.apart
    assert sent(second) == {"HEAT  (1995)": 3.0, title: 5.0}


def test_the_first_one_does_not_get_what_was_rated_at_the_second(store: DeviceStore) -> None:
    second, _ = brand(store, {"1": "Heat (1995)", "9": "A film about my illness"})
    second.rate("9", 5.0)
    store.pin_catalogue(later(first(HEALTH), {"9": "Bambi"}))
    assert "Bambi" not in sent(store)
    assert sent(second)["A film about my illness"] == 5.0


def test_a_third_one_is_compared_with_everybody(store: DeviceStore) -> None:
    """It is like the second, which has nothing of the first's but one film."""
    brand(store, {"1": "Heat (1995)", "2": "Alien"})
    third, _ = brand(store, {"2": "Alien", "50": "Bambi"}, 2)
    assert "Bambi" not in sent(third)


def test_an_id_that_vanishes_and_returns_is_something_else(store: DeviceStore) -> None:
    """Its owner was talked into forgetting the catalogue."""
    store.forget(model=True)
    store.pin_catalogue(first(HEALTH | {"50": "Bambi", "51": ""}, 1))
    assert set(sent(store)) == {"Heat (1995)"}
    store.forget(model=True)
    store.pin_catalogue(first(HEALTH))
    assert sent(store)["I take antidepressants"] == 5.0  # it is what it was


def test_a_recommender_that_was_forgotten_comes_back_with_others_items(store: DeviceStore) -> None:
    second, _ = brand(store, {"1": "Heat (1995)", "9": "A film about my illness"})
    second.rate("9", 5.0)
    second.forget_recommender()
    second.pin_catalogue(first({"1": "Heat (1995)", "9": "Bambi"}, 2))
    assert sent(second) == {"Heat (1995)": 3.0}
    second.rate(second.name_of("9"), 1.0)
    second.forget_recommender()
    second.pin_catalogue(first({"1": "Heat (1995)", "9": "Dumbo"}, 3))
    assert sent(second) == {"Heat (1995)": 3.0}


def test_a_rating_that_nobody_has_named_goes_to_nobody_who_comes_later(store: DeviceStore) -> None:
    """It was typed by its id, which the first one does not have."""
    store.rate("77", 5.0)
    second, catalogue = brand(store, {"1": "Heat (1995)"})
    second.pin_catalogue(later(catalogue, {"77": "Bambi"}, 1))
    assert set(sent(second)) == {"Heat (1995)"}


def test_nobody_can_tell_what_has_no_title(tmp_path: Path) -> None:
    """Two catalogues grew from one without titles; then each has an id 60 of its own."""
    with DeviceStore.create(tmp_path / "me.sqlite") as store:
        bare = first({"1": "", "2": ""})
        store.pin_catalogue(bare)
        mirror = store.new_recommender()
        mirror.pin_catalogue(bare)
        store.pin_catalogue(later(bare, {"60": ""}))
        store.rate("60", 5.0)
        store.rate("2", 2.0)
        mirror.pin_catalogue(later(bare, {"60": "", "61": ""}))
        assert mirror.ratings().item_ids.tolist() == ["2"]
        third = store.new_recommender()
        third.pin_catalogue(bare)
        store.forget_recommender()
        mirror.forget_recommender()
        third.pin_catalogue(later(bare, {"59": "", "60": ""}))
        assert third.ratings().item_ids.tolist() == ["2"]


TITLES = st.sampled_from(["Heat", "heat ", "Bambi", "Dumbo", "", "Bambi (1942)", "Bämbi"])
BATCHES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.dictionaries(st.sampled_from("12345"), TITLES, min_size=1, max_size=3),
        st.booleans(),
    ),
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(BATCHES)
def test_no_rating_is_ever_sent_under_another_title(batches: Any) -> None:
    """Three recommenders grow as they like; their owner rates all of it and forgets catalogues."""
    store = DeviceStore.create(":memory:")
    views = [store, store.new_recommender(), store.new_recommender()]
    pins: list[Any] = [None, None, None]
    rated: dict[str, str] = {}  # by name, what its owner saw when rating it
    for who, titles, forgets in batches:
        view = views[who]
        if forgets and pins[who] is not None:
            view.forget_recommender()
            pins[who] = None
        new = {
            item: title
            for item, title in titles.items()
            if pins[who] is None or item not in pins[who].table.ids
        }
        if not new:
            continue
        if pins[who] is None:
            pins[who] = first({"0": "Shared"} | new, who)
        else:
            pins[who] = later(pins[who], new, who)
        view.pin_catalogue(pins[who])
        for place, each in enumerate(views):
            catalogue = each.pinned_catalogue
            if catalogue is None or pins[place] is None:
                continue
            seen = dict(zip(catalogue.table.ids, catalogue.table.titles, strict=True))
            for name in map(str, each.ratings().item_ids.tolist()):
                assert _plain(seen[name]) == _plain(rated[name])
        for item in new:
            rated.setdefault(view.name_of(item), new[item])
            view.rate(view.name_of(item), 4.0)


def _plain(title: str) -> str:
    return " ".join(title.casefold().split())
