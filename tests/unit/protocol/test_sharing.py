"""What those who share say, and fields that peers of 1.0.0 do not know."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.protocol import ItemFacts, OpenContribution, Survey, decode, encode
from hdpmf.common.protocol.messages import MAX_LEVELS
from hdpmf.errors import ProtocolError
from hdpmf.private.client.outgoing import compose
from tests.world.messages import facts, survey, table

ITEMS = table()
rows = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 2**40), st.integers(0, MAX_LEVELS)), max_size=20
)


def contribution(given_rows: list[tuple[int, int, int]]) -> OpenContribution:
    columns = np.array(given_rows, np.int64).reshape(-1, 3).T
    return compose(OpenContribution, senders=columns[0], items=columns[1], steps=columns[2])


@given(rows)
def test_open_ratings_survive_the_wire(given_rows: list[tuple[int, int, int]]):
    message = contribution(given_rows)
    back = decode(encode(message))
    assert isinstance(back, OpenContribution)
    for name in ("senders", "items", "steps"):
        assert np.array_equal(getattr(back, name), getattr(message, name))


@given(rows, st.data())
def test_damaged_open_ratings_give_a_message_or_our_error(
    given_rows: list[tuple[int, int, int]], data: st.DataObject
):
    raw = bytearray(encode(contribution(given_rows)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    for damaged in (bytes(raw), bytes(raw[: data.draw(st.integers(0, len(raw)))])):
        with contextlib.suppress(ProtocolError):
            decode(damaged)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"senders": np.array([0])}, "senders must be one per rating"),
        ({"steps": np.array([0, 1, 2])}, "steps must be one per rating"),
        ({"items": np.array([0, -1])}, "items must be positions"),
        ({"senders": np.array([0, -1])}, "senders must be positions"),
        ({"steps": np.array([0, -1])}, "steps of|those of a rating scale"),
        ({"steps": np.array([0, MAX_LEVELS + 1])}, "those of a rating scale"),
        ({"steps": np.array([0.0, 1.0])}, "int64"),
        ({"items": np.array([[0, 1]])}, "int64"),
    ],
)
def test_open_ratings_that_cannot_be_right(changed: dict[str, Any], match: str):
    fields = {name: np.array([0, 1]) for name in ("senders", "items", "steps")}
    with pytest.raises(ProtocolError, match=match):
        OpenContribution(**fields | changed)


def test_peers_of_1_0_0_read_what_does_not_need_the_new_fields():
    """They refuse fields that they do not know, so these travel only where they say something."""
    plain, sharing = survey("A", ITEMS), survey("A", ITEMS, sharing=True)
    assert msgspec.msgpack.decode(encode(plain)).keys() == {
        "type", "version", "design", "coding", "epsilon", "n_items", "catalogue", "contributors",
        "scale_low", "scale_high", "scale_step", "labels",
    }  # fmt: skip
    assert decode(encode(plain)) == plain
    assert decode(encode(sharing)) == sharing
    assert msgspec.msgpack.decode(encode(sharing))["sharing"] is True
    assert "blend" not in msgspec.msgpack.decode(encode(facts(ITEMS)))
    back = decode(encode(facts(ITEMS, blend=0.3)))
    assert isinstance(back, ItemFacts)
    assert back.blend == 0.3


def test_the_bytes_of_other_messages_are_what_msgspec_makes_of_them():
    plain = survey("A", ITEMS)
    made = msgspec.msgpack.decode(msgspec.msgpack.encode(plain))
    del made["sharing"]
    assert encode(plain) == msgspec.msgpack.encode(made)


@pytest.mark.parametrize(("design", "labels"), [("S", False), ("L", False), ("A", True)])
def test_sharing_goes_beside_the_plain_sums_of_design_a(design: str, labels: bool):
    with pytest.raises(ProtocolError, match="sharing belongs to design A"):
        survey(design, ITEMS, labels=labels, sharing=True)
    assert isinstance(survey("A", ITEMS, sharing=True), Survey)


@pytest.mark.parametrize("blend", [-0.1, 10.5, float("nan"), float("inf")])
def test_blends_that_cannot_be_right(blend: float):
    with pytest.raises(ProtocolError, match="blend"):
        facts(ITEMS, blend=blend)
