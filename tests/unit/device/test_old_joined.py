"""The recommenders of version 0.2.0, which had one of everything for all; tests/upgrade has real
files of it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.private.device.joined import ever_joined, joined
from hdpmf.private.device.old_joined import JoinedBefore
from hdpmf.private.device.pinned_servers import pinned_servers
from hdpmf.private.device.store.device_store import DeviceStore

from .places_world import FILMS, FIRST, OTHERS, SECOND
from .reporting_world import SERVERS


def test_recommenders_of_version_0_2_0_get_their_places(tmp_path: Path):
    with DeviceStore.create(tmp_path / "old.sqlite") as store:
        store.rate("item 00", 4.0)
        store.pin_catalogue(FILMS)
        old = [
            JoinedBefore(address=FIRST.address, authority=b"", servers=SERVERS, since="2026-11-15"),
            JoinedBefore(address=SECOND.address, servers=OTHERS, paused=True),
        ]
        store.put("recommenders", msgspec.msgpack.encode(old))
        store.put("address", SECOND.address.encode())
        found = ever_joined(store)
        assert [(known.address, known.place, known.paused) for known in found] == [
            (FIRST.address, 1, False),
            (SECOND.address, 2, True),
        ]
        assert [pinned_servers(store.at(known.place)) for known in found] == [SERVERS, OTHERS]
        assert [len(store.at(known.place).ratings()) for known in found] == [1, 1]
        assert ever_joined(store) == found
        assert store.places == range(1, 3)


def before_places(store: DeviceStore, *old: JoinedBefore, last: str = "") -> dict[str, DeviceStore]:
    """Each recommender of version 0.2.0 at its place."""
    store.put("recommenders", msgspec.msgpack.encode(old))
    if last:
        store.put("address", last.encode())
    return {known.address: store.at(known.place) for known in ever_joined(store)}


def test_an_authority_that_followed_in_version_0_2_0_is_at_its_recommenders_place():
    with DeviceStore.create(":memory:") as store:
        store.put("authority", b"the one that followed")
        store.put("authority-changed", b"2026-11-16T10:00:00+00:00")
        found = before_places(
            store,
            JoinedBefore(
                address=FIRST.address,
                authority=b"first",
                servers=SERVERS,
                since="2026-11-14T10:00:00+00:00",
            ),
            JoinedBefore(
                address=SECOND.address,
                authority=b"one",
                servers=OTHERS,
                since="2026-11-15T10:00:00+00:00",
            ),
            last=SECOND.address,
        )
        first, second = found[FIRST.address], found[SECOND.address]
        assert (first.get("authority"), first.get("authority-changed")) == (b"first", None)
        assert second.get("authority") == b"the one that followed"
        assert second.get("authority-changed") == b"2026-11-16T10:00:00+00:00"


def test_an_authority_that_was_pinned_since_is_the_one_that_counts():
    with DeviceStore.create(":memory:") as store:
        store.put("authority", b"older")
        store.put("authority-changed", b"2026-11-13T10:00:00+00:00")
        old = JoinedBefore(
            address=FIRST.address,
            authority=b"new",
            servers=SERVERS,
            since="2026-11-14T10:00:00+00:00",
        )
        assert (
            before_places(store, old, last=FIRST.address)[FIRST.address].get("authority") == b"new"
        )


def test_a_roster_of_version_0_2_0_goes_to_the_recommender_that_sums_by_masks(tmp_path: Path):
    with DeviceStore.create(tmp_path / "old.sqlite") as store:
        keys = [store.identity.public, *(DeviceIdentity.generate().public for _ in range(3))]
        store.pin_roster(keys, [1] * 4)
        store.put("roster-digest", b"abcd")
        masks = JoinedBefore(address="masks.example:9092", authority=b"x")
        found = before_places(store, JoinedBefore(address=FIRST.address, servers=SERVERS), masks)
        view = found[masks.address]
        assert view.roster is not None
        assert (len(view.roster), view.get("roster-digest")) == (4, b"abcd")


def test_whom_the_owner_left_in_version_0_2_0_stays_left():
    with DeviceStore.create(":memory:") as store:
        store.pin_catalogue(FILMS)
        before_places(store, last=FIRST.address)
        assert joined(store) == []
        assert [(known.address, known.left) for known in ever_joined(store)] == [
            (FIRST.address, True)
        ]
