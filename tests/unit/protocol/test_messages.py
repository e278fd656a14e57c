import contextlib
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hdpmf.common.protocol import (  # fmt: skip
    BudgetReport,
    Gradients,
    ItemCounts,
    Opening,
    Plan,
    Round,
    decode,
    encode,
    learning_rate_at,
)
from hdpmf.errors import ProtocolError

FLOATS = st.floats(-1e6, 1e6, width=32)
POSITIVE = st.floats(1e-6, 1e6)
SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 4))


def matrices(shape, elements=FLOATS):
    return hnp.arrays(np.float32, shape, elements=elements)


def counts(n):
    return hnp.arrays(np.int64, n, elements=st.integers(0, 2**40))


@st.composite
def rounds(draw):
    shape = draw(SHAPES)
    h_rows = draw(st.sampled_from([None, 1, shape[0]]))
    h = None if h_rows is None else draw(matrices((h_rows, shape[1]), st.floats(0, 1e6, width=32)))
    return Round(
        number=draw(st.integers(1, 10**6)),
        item_factors=draw(matrices(shape)),
        raters=draw(counts(shape[0])),
        h=h,
    )


MESSAGES = st.one_of(
    st.builds(
        Plan,
        n_items=st.integers(1, 10**6),
        n_factors=st.integers(1, 256),
        epochs=st.integers(1, 1000),
        learning_rate=POSITIVE,
        reg=st.floats(0, 10),
        epsilon=POSITIVE,
        mechanism=st.sampled_from(["none", "uniform", "sample", "stretch", "weight"]),
        scale_low=st.floats(-10, 0),
        scale_high=st.floats(1, 100),
        scale_steps=st.booleans(),
        fresh_noise=st.booleans(),
    ),
    st.builds(
        BudgetReport,
        count=st.integers(0, 10**9),
        total=POSITIVE,
        smallest=POSITIVE,
        largest=POSITIVE,
    ),
    st.builds(Opening, noise_budget=st.none() | POSITIVE),
    st.builds(ItemCounts, counts=st.integers(0, 9).flatmap(counts)),
    rounds(),
    st.builds(Gradients, number=st.integers(1, 10**6), sums=SHAPES.flatmap(matrices)),
)


def same(a, b):
    assert type(a) is type(b)
    for field in a.__struct_fields__:
        left, right = getattr(a, field), getattr(b, field)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            assert np.array_equal(left, right)
        else:
            assert left == right


@pytest.mark.slow
@given(MESSAGES)
def test_messages_survive_the_wire(message):
    same(message, decode(encode(message)))


@pytest.mark.slow
@given(st.binary(max_size=300))
def test_any_bytes_give_a_message_or_our_error(data):
    with contextlib.suppress(ProtocolError):
        decode(data)


@pytest.mark.slow
@given(MESSAGES, st.data())
def test_damaged_messages_give_a_message_or_our_error(message, data):
    raw = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut])):
        with contextlib.suppress(ProtocolError):
            decode(damaged)


def test_deep_nesting_is_refused():
    field = b"\xa6counts" + b"\x91" * 5000 + b"\xc0"
    with pytest.raises(ProtocolError):
        decode(b"\x82\xa4type\xaaItemCounts" + field)


def test_unknown_fields_and_other_versions_are_refused():
    plain = msgspec.msgpack.decode(encode(Opening(noise_budget=1.0)))
    with pytest.raises(ProtocolError, match="unknown field"):
        decode(msgspec.msgpack.encode(plain | {"extra": 1}))
    with pytest.raises(ProtocolError, match="version 2"):
        decode(msgspec.msgpack.encode(plain | {"version": 2}))
    with pytest.raises(ProtocolError, match="version 2"):
        Opening(noise_budget=1.0, version=2)


def test_messages_cannot_be_changed():
    message = Opening(noise_budget=1.0)
    with pytest.raises(AttributeError):
        message.noise_budget = 2.0


GOOD = np.ones((3, 2), np.float32)
RATERS = np.ones(3, np.int64)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Opening(noise_budget=0.0),
        lambda: Opening(noise_budget=math.nan),
        lambda: ItemCounts(counts=np.array([-1])),
        lambda: ItemCounts(counts=np.ones(3, np.float32)),
        lambda: Gradients(number=0, sums=GOOD),
        lambda: Gradients(number=1, sums=GOOD * np.nan),
        lambda: Gradients(number=1, sums=GOOD.astype(np.float64)),
        lambda: Gradients(number=1, sums=RATERS),
        lambda: Round(number=1, item_factors=GOOD * np.inf, raters=RATERS, h=None),
        lambda: Round(number=1, item_factors=GOOD, raters=RATERS[:2], h=None),
        lambda: Round(number=1, item_factors=GOOD, raters=-RATERS, h=None),
        lambda: Round(number=1, item_factors=GOOD, raters=RATERS, h=GOOD[:2]),
        lambda: Round(number=1, item_factors=GOOD, raters=RATERS, h=-GOOD),
        lambda: BudgetReport(count=1, total=1.0, smallest=0.0, largest=1.0),
        lambda: BudgetReport(count=-1, total=1.0, smallest=1.0, largest=1.0),
        lambda: BudgetReport(count=1, total=math.inf, smallest=1.0, largest=1.0),
    ],
)
def test_what_cannot_be_right_is_refused(make):
    with pytest.raises(ProtocolError):
        make()


def test_schedule():
    rates = [learning_rate_at(1.0, epoch, 100) for epoch in range(1, 101)]
    assert rates == [1.0] * 25 + [1 / 5] * 50 + [1 / 25] * 25
