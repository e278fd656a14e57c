"""The item table as a message and back: the same items on both sides, or a refusal."""

from __future__ import annotations

import msgspec
import pytest

from hdpmf.common.data import IdIndex, ItemTable, RatingScale, synthetic_world
from hdpmf.common.data.item_features import ItemFeatures, fingerprint
from hdpmf.common.protocol import CatalogueTable
from hdpmf.common.protocol.catalogue import (
    MAX_GENRES,
    catalogue_table,
    known_items,
    signed_first,
)
from hdpmf.errors import ProtocolError


def test_both_sides_have_the_same_items_and_name_them_by_a_digest() -> None:
    ratings = synthetic_world(40, 30, 600, rng=1)
    assert ratings.item_table is not None
    table = catalogue_table(ratings.items, ratings.scale, ratings.item_table)
    known = known_items(table)
    features = ItemFeatures.of_table(ratings.item_table, ratings.items)
    assert known.fingerprint == fingerprint(ratings.items, features)
    assert known.items == ratings.items
    assert known.scale == ratings.scale


def test_audiences_come_with_the_items_and_are_signed() -> None:
    index, scale = IdIndex([1, 2]), RatingScale(1.0, 5.0, 1.0)

    def described(audiences: tuple[str, ...]) -> CatalogueTable:
        table = ItemTable(index, ("a", "b"), ((), ()), (None, None), audiences)
        return catalogue_table(index, scale, table)

    known = known_items(described(("PG", ""))).item_table
    assert known is not None
    assert known.audiences == ("PG", "")
    digests = [signed(described(words)) for words in ((), ("", ""), ("PG", ""), ("G", ""))]
    assert digests[0] == digests[1]
    assert len({*digests}) == 3


def signed(table: CatalogueTable) -> bytes:
    return signed_first(table, lambda digest: bytes(64), bytes(32)).links[0].digest


def test_text_ids_without_a_table() -> None:
    known = known_items(catalogue_table(IdIndex(["b", "a", "ß"]), RatingScale(0.5, 5.0, 0.5)))
    assert known.items.ids.tolist() == ["a", "b", "ß"]
    assert known.item_table is None
    assert known.features is None


@pytest.mark.parametrize(
    "change",
    [
        {"ids": ("+1", "2", "3")},
        {"ids": ("1", "2", "x")},
        {"ids": ("1", "2", "9" * 30)},
        {"ids": ("01", "1", "2")},
        {"ids": ("01", "2", "3")},
        {"ids": ("", "1", "2"), "integer_ids": False},
        {"genres": (tuple(f"genre {n}" for n in range(MAX_GENRES + 1)), (), ())},
    ],
)
def test_a_table_that_would_mean_other_items_is_refused(change: dict[str, object]) -> None:
    table = catalogue_table(IdIndex([1, 2, 3]), RatingScale(1.0, 5.0, 1.0))
    with pytest.raises(ProtocolError):
        known_items(msgspec.structs.replace(table, **change))
