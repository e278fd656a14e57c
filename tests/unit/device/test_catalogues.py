"""A pinned catalogue and its earlier versions, which older models and runs are about."""

from __future__ import annotations

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.protocol import CatalogueTable
from hdpmf.common.protocol.catalogue import next_version, signed_first
from hdpmf.private.device.store.device_store import DeviceStore


def _table(*ids: str) -> CatalogueTable:
    return CatalogueTable(ids=ids, integer_ids=False, scale_low=1.0, scale_high=5.0, scale_step=1.0)


def test_an_earlier_version_is_found_by_its_items_and_by_its_fingerprint() -> None:
    key = DeviceIdentity.generate()
    first = signed_first(_table("a", "b"), key.sign, key.public)
    second = next_version(first, key.sign, added=_table("c"))
    store = DeviceStore.create(":memory:")
    pinned = store.pin_catalogue(second)
    assert pinned.sized(3) is pinned
    assert pinned.named(pinned.known.fingerprint) is pinned
    earlier = pinned.sized(2)
    assert earlier is not None
    assert list(earlier.positions) == ["a", "b"]
    assert pinned.named(earlier.known.fingerprint) is earlier
    assert pinned.sized(4) is None
    assert pinned.named("ab" * 32) is None
