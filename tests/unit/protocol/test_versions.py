"""Versions of a catalogue: whatever is not the pinned one with more at its end is refused, and
says why.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.protocol import CatalogueTable, CatalogueVersion
from hdpmf.common.protocol.catalogue import (
    MAX_VERSIONS,
    check_chain,
    is_newer,
    known_items,
    next_version,
    read_catalogue,
    signed_first,
)
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import Identity
from hdpmf.errors import ConfigError, ProtocolError

KEY, OTHER = Identity(b"k" * 32), Identity(b"o" * 32)
replace = msgspec.structs.replace


def table(*ids: str, **changes: Any) -> CatalogueTable:
    made = CatalogueTable(ids=ids, integer_ids=False, scale_low=1.0, scale_high=5.0, scale_step=1.0)
    return replace(made, **changes)


FIRST = table(
    "a", "b", "c", titles=("A", "B", "C"), genres=(("x",), (), ("x", "y")), years=(1990, None, 1992)
)


def first(key: Identity = KEY) -> CatalogueVersion:
    return signed_first(FIRST, key.sign, key.public)


def grown(
    items: CatalogueVersion, *ids: str, retired: tuple[int, ...] = (), key: Identity = KEY
) -> CatalogueVersion:
    return next_version(items, key.sign, added=table(*ids) if ids else None, retired=retired)


def resigned(
    chain: CatalogueVersion, place: int, key: Identity = KEY, **changes: Any
) -> CatalogueVersion:
    """A chain with a link changed and signed again by its key, and all after it made to follow."""
    from hdpmf.common.protocol.catalogue import _signed

    links = list(chain.links)
    links[place] = _signed(replace(links[place], **changes), key.sign)
    for later in range(place + 1, len(links)):
        links[later] = _signed(replace(links[later], previous=links[later - 1].digest), key.sign)
    return replace(chain, links=tuple(links))


THREE = grown(grown(first(), "z", "aa"), "q", retired=(1, 3))


@st.composite
def chains(draw: st.DrawFn) -> CatalogueVersion:
    """Catalogues after any honest changes."""
    items, names = first(), iter(f"new {number}" for number in range(1000))
    for _ in range(draw(st.integers(0, 5))):
        left = sorted(set(range(len(items.table.ids))) - set(items.retired))
        added = [next(names) for _ in range(draw(st.integers(0, 3)))][::-1]
        gone = draw(st.sets(st.sampled_from(left), max_size=2)) if left else set[int]()
        if added or gone:
            items = grown(items, *added, retired=tuple(gone))
    return items


@given(chains(), st.data())
def test_an_honest_chain_is_taken_from_wherever_a_device_is(
    items: CatalogueVersion, data: st.DataObject
) -> None:
    check_chain(items)
    assert read_catalogue(items.to_bytes()) == items
    number = data.draw(st.integers(1, items.number))
    earlier = items.at(number)
    check_chain(earlier)
    assert is_newer(earlier, items) == (number < items.number)
    assert items.digests[:number] == earlier.digests
    n = len(earlier.table.ids)
    assert items.table.ids[:n] == earlier.table.ids
    assert set(earlier.retired) <= set(items.retired)
    known = known_items(items)
    assert known.items.ids.tolist() == list(items.table.ids)
    assert known.retired.tolist() == list(items.retired)
    assert known.items.find(list(items.table.ids)).tolist() == list(range(len(items.table.ids)))
    if number < items.number:
        with pytest.raises(ProtocolError, match=f"it is version {number}"):
            is_newer(items, earlier)


@pytest.mark.slow
@given(chains(), chains())
def test_of_two_chains_only_one_that_begins_with_the_other_is_taken(
    one_way: Any, other_way: Any
) -> None:
    """Whatever two histories a recommender tells, a device follows one of them."""
    mine, theirs = one_way.digests, other_way.digests
    if theirs[: len(mine)] == mine:
        assert is_newer(one_way, other_way) == (len(theirs) > len(mine))
    else:
        with pytest.raises(ProtocolError, match="pinned"):
            is_newer(one_way, other_way)


@given(chains(), st.data())
def test_no_byte_of_a_chain_can_be_changed(items: CatalogueVersion, data: st.DataObject) -> None:
    plain = items.to_bytes()
    place = data.draw(st.integers(0, len(plain) - 1))
    changed = bytearray(plain)
    changed[place] ^= data.draw(st.integers(1, 255))
    try:
        other = read_catalogue(bytes(changed))
    except ProtocolError:
        return
    if other == items:  # the same numbers in other words
        return
    with pytest.raises(ProtocolError):
        is_newer(items, other)


FAULTS: list[tuple[str, CatalogueVersion, str]] = [
    ("a gap", replace(THREE, links=(THREE.links[0], THREE.links[2])), "version 2 is missing"),
    ("the first is gone", replace(THREE, links=THREE.links[1:]), "version 1 is missing"),
    ("another past", resigned(THREE, 1, previous="A" * 43), "version 2 does not follow"),
    (
        "a past before the first",
        resigned(THREE, 0, previous="A" * 43),
        "version 1 does not follow",
    ),
    ("fewer items", resigned(THREE, 1, items=2), "fewer items"),
    ("more than there are", resigned(THREE, 1, items=7), "items that are not there"),
    ("nothing changes", resigned(grown(first(), retired=(0,)), 1, retired=()), "changes nothing"),
    ("retired from the start", resigned(first(), 0, retired=(0,)), "first version retires"),
    (
        "retired twice",
        resigned(grown(THREE, retired=(0,)), 3, retired=(1,)),
        "retires what it cannot",
    ),
    ("retired what is not there", resigned(THREE, 2, retired=(6,)), "retires what it cannot"),
    ("retired in disorder", resigned(THREE, 2, retired=(3, 1)), "retires what it cannot"),
    (
        "an item in another's place",
        replace(THREE, table=replace(THREE.table, ids=("b", "a", "c", "z", "aa", "q"))),
        "not those that version 1",
    ),
    (
        "another title",
        replace(THREE, table=replace(THREE.table, titles=("A", "X", "C", "", "", ""))),
        "version 1",
    ),
    (
        "another title of a new item",
        replace(THREE, table=replace(THREE.table, titles=("A", "B", "C", "X", "", ""))),
        "version 2",
    ),
    ("other genres", replace(THREE, table=replace(THREE.table, genres=((),) * 6)), "version 1"),
    (
        "another year",
        replace(THREE, table=replace(THREE.table, years=(1990, None, 1993, *[None] * 3))),
        "version 1",
    ),
    ("another scale", replace(THREE, table=replace(THREE.table, scale_high=10.0)), "version 1"),
    (
        "a forged signature",
        replace(THREE, links=(*THREE.links[:2], replace(THREE.links[2], signature="A" * 86))),
        "version 3 is not signed",
    ),
    (
        "no signature",
        replace(THREE, links=(*THREE.links[:2], replace(THREE.links[2], signature=""))),
        "not signed",
    ),
    ("somebody else signs", resigned(THREE, 2, OTHER), "version 3 is not signed"),
    ("another key", replace(THREE, key=to_base64(OTHER.public)), "version 1 is not signed"),
]


@pytest.mark.parametrize(
    ("items", "words"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_a_chain_with_a_fault(items: CatalogueVersion, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        check_chain(items)
    with pytest.raises(ProtocolError, match=words):
        is_newer(first(), items)


def test_a_fork_a_rollback_and_a_new_key() -> None:
    two = grown(first(), "d")
    with pytest.raises(
        ProtocolError, match="version 2 is another one than the version 2 that is pinned"
    ):
        is_newer(two, grown(first(), "e"))
    with pytest.raises(ProtocolError, match="version 2 is another one"):
        is_newer(two, grown(grown(first(), "e"), "f"))
    with pytest.raises(ProtocolError, match="it is version 1, and version 2 is pinned"):
        is_newer(two, first())
    stolen = grown(first(OTHER), "d", "e", key=OTHER)
    check_chain(stolen)
    with pytest.raises(ProtocolError, match="another key"):
        is_newer(first(), stolen)
    assert not is_newer(first(), first(OTHER))  # the same items: nothing is taken, nor any key


def test_fingerprints() -> None:
    names = {
        known_items(items).fingerprint
        for items in (FIRST, grown(first(), "d"), grown(first(), retired=(0,)), THREE)
    }
    assert len(names) == 4
    assert known_items(THREE).fingerprint == to_base64(THREE.links[-1].digest)
    assert known_items(THREE.at(1)).fingerprint == known_items(first()).fingerprint


def test_a_catalogue_without_titles_may_get_some() -> None:
    bare = signed_first(table("a", "b"), KEY.sign, KEY.public)
    items = next_version(bare, KEY.sign, added=table("c", titles=("C",)))
    check_chain(items)
    assert is_newer(bare, items)
    assert items.table.titles == ("", "", "C")
    assert known_items(items.at(1)).fingerprint == to_base64(items.links[0].digest)
    assert known_items(items.at(1)).features is None


@pytest.mark.parametrize(
    ("added", "retired", "words"),
    [
        (None, (), "must change something"),
        (table("d", "b"), (), "1 of the 2 items are in the catalogue already"),
        (table("7", integer_ids=True), (), "whole numbers"),
        (None, (1,), "retired already"),
    ],
)
def test_changes_that_are_none(
    added: CatalogueTable | None, retired: tuple[int, ...], words: str
) -> None:
    items = grown(first(), retired=(1,))
    with pytest.raises(ConfigError, match=words):
        next_version(items, KEY.sign, added=added, retired=retired)


def test_there_is_an_end_to_versions() -> None:
    with pytest.raises(ProtocolError, match="versions"):
        replace(THREE, links=(THREE.links[0],) * MAX_VERSIONS + (THREE.links[-1],))
    with pytest.raises(ProtocolError, match="all of the items"):
        replace(THREE, links=THREE.links[:2])
    with pytest.raises(ConfigError, match="versions 1 to 3"):
        THREE.at(4)
