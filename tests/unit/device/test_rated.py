"""Ratings and weights in a store: what is refused, what stays, and in which order it comes out."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import Ratings
from hdpmf.common.protocol.federation import CatalogueTable
from hdpmf.errors import PrivacyError, RatingsError, UnknownIdError
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import ME, Record


@pytest.fixture
def empty(tmp_path: Path) -> DeviceStore:
    return DeviceStore.create(tmp_path / "me.hdpmf")


@pytest.mark.parametrize("item", ["", "x" * 257, "a\0b"])
def test_ids_that_are_none(empty: DeviceStore, item: str) -> None:
    with pytest.raises(RatingsError, match="item's id"):
        empty.rate(item, 3.0)
    with pytest.raises(RatingsError, match="item's id"):
        empty.set_weight(item=item, gamma=0.5)
    empty.rate("x" * 256, 3.0)


@pytest.mark.parametrize("weight", [0.0, -0.1, 1.0001, float("nan")])
def test_weights_that_are_none(empty: DeviceStore, weight: float) -> None:
    empty.rate("film", 3.0)
    with pytest.raises(PrivacyError, match="above 0 and at most 1"):
        empty.set_weight(beta=weight)
    with pytest.raises(PrivacyError, match="above 0 and at most 1"):
        empty.set_weight(item="film", gamma=weight)
    empty.set_weight(beta=1.0)
    empty.set_weight(item="film", gamma=1e-9)
    assert empty.rated.betas() == {"me": 1.0}
    assert empty.rated.gammas() == {"film": 1e-9}


def test_numbers_that_are_none(empty: DeviceStore) -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(RatingsError, match="must be a number"):
            empty.rate("film", value)


def test_a_rating_that_is_given_anew_keeps_its_own_weight(
    empty: DeviceStore, table: CatalogueTable
) -> None:
    empty.pin_catalogue(table)
    empty.rate("quiet-romance", 4.0)
    ratings = empty.ratings()
    empty.rated.put_table(ratings, None, np.array([0.25]))
    assert empty.rated.find("me", "quiet-romance").weight == 0.25  # type: ignore[union-attr]
    empty.rate("quiet-romance", 2.0)
    found = empty.rated.find("me", "quiet-romance")
    assert (found.value, found.weight) == (2.0, 0.25)  # type: ignore[union-attr]
    empty.set_weight(beta=0.5)
    empty.set_weight(item="zombie-opera", gamma=0.5)
    empty.rate("zombie-opera", 1.0)
    assert [record.weight for record in empty.rated.weighed()] == [0.25, 0.25]
    pairs = [("me", "zombie-opera"), ("me", "quiet-romance"), ("me", "no film")]
    np.testing.assert_array_equal(empty.rated.weights_of(pairs), [0.25, 0.25, np.nan])
    assert empty.weights().for_ratings(empty.ratings()).tolist() == [0.25, 0.25]


def test_what_comes_out_is_in_order_and_over_the_catalogue(
    tmp_path: Path, table: CatalogueTable
) -> None:
    with DeviceStore.create(tmp_path / "all.hdpmf", users=2) as store:
        for user, item, value in (
            ("zoe", "zz-another", 1.0), ("ana", "zombie-opera", 2.0), ("zoe", "a-known-thing", 3.0),
            ("ana", "gone", 4.0),
        ):  # fmt: skip
            store.rate(item, value, user=user)
        store.set_weight(item="gone", gamma=0.5)
        store.pin_catalogue(table)
        found = store.rated.table(store.pinned_catalogue)  # type: ignore[arg-type]
        assert found.n_left_out == 1
        assert list(
            zip(found.ratings.user_ids, found.ratings.item_ids, found.ratings.values, strict=True)
        ) == [
            ("ana", "zombie-opera", 2.0),
            ("zoe", "a-known-thing", 3.0),
            ("zoe", "zz-another", 1.0),
        ]
        assert [record.item for record in store.rated.records()] == [
            "gone",
            "zombie-opera",
            "a-known-thing",
            "zz-another",
        ]
        assert store.rated.count() == 4
        with pytest.raises(RatingsError, match="made for 2 users"):
            store.rate("film", 3.0, user="third")


def test_an_empty_store_has_an_empty_table(empty: DeviceStore, table: CatalogueTable) -> None:
    empty.pin_catalogue(table)
    assert len(empty.ratings()) == 0
    assert empty.ratings().users.ids.tolist() == ["me"]
    assert empty.ratings().n_items == 5


def test_removing(empty: DeviceStore) -> None:
    empty.rate("film", 3.0)
    with pytest.raises(UnknownIdError, match="nothing was removed"):
        empty.remove("other")
    before = empty.rated.changes
    empty.remove("film")
    assert empty.rated.changes == before + 1
    assert empty.rated.count() == 0
    empty.rate("film", 3.0)
    empty.rated.clear()
    assert (empty.rated.count(), empty.rated.betas()) == (0, {})


def test_a_few_are_found_as_among_all(tmp_path):
    with DeviceStore.create(tmp_path / "me.sqlite") as store:
        for place in range(5):
            store.rate(f"item {place}", 1.0 + place)
            store.set_weight(item=f"item {place}", gamma=0.1 * (1 + place))
        few = ["item 3", "nothing", "item 1"]
        assert store.rated.values_of(ME, few) == {"item 3": 4.0, "item 1": 2.0}
        assert store.rated.gammas(few) == {
            item: store.rated.gammas()[item] for item in ("item 3", "item 1")
        }
        assert store.rated.values_of("somebody else", few) == {}


def test_a_rating_has_its_time_and_a_repeated_one_keeps_it(
    empty: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.9)
    empty.rate("film", 3.0)

    def made(item: str = "film") -> int | None:
        record = empty.rated.find(ME, item)
        assert record is not None
        return record.at

    assert made() == 1000
    empty.rated.put([Record(ME, "film", 3.0)], None)  # from a file that has no times
    assert made() == 1000
    empty.rated.put([Record(ME, "film", 4.0)], None)
    assert made() is None
    monkeypatch.setattr(time, "time", lambda: 2000.0)
    empty.rate("film", 4.0)
    assert made() == 2000
    empty.add(Ratings.from_arrays([ME], ["other"], [5], timestamps=[77]))
    assert made("other") == 77


def test_ratings_that_were_kept_before_there_were_times_have_none() -> None:
    old = msgspec.msgpack.encode(["me", "film", 3.0, None, 2, "file x 1"])
    record = msgspec.msgpack.decode(old, type=Record)
    assert (record.value, record.since, record.source, record.at) == (3.0, 2, "file x 1", None)
