"""What was answered comes back to the last bit, and takes no more place than it has to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hdpmf.common.protocol import Accepted, Gradients, ItemCounts, encode
from hdpmf.errors import StorageError
from hdpmf.private.device.messages import pack, request_tag, unpack


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 20), st.integers(1, 5)),
        elements=st.sampled_from([0.0, -0.0, 1.5, 1e-45]),
    ),
    st.integers(1, 9),
)
def test_gradients_come_back_bit_by_bit(sums, number):
    message = Gradients(number=number, sums=sums)
    assert encode(unpack(pack(message))) == encode(message)


@given(arrays(np.int64, st.integers(1, 40), elements=st.sampled_from([0, 1, 2**40])))
def test_counts_come_back(counts):
    message = ItemCounts(counts=counts)
    assert encode(unpack(pack(message))) == encode(message)


def test_one_persons_tables_are_small():
    sums = np.zeros((4000, 10), np.float32)
    sums[7] = 1
    assert len(pack(Gradients(number=1, sums=sums))) < 200
    assert len(pack(ItemCounts(counts=(sums[:, 0] > 0).astype(np.int64)))) < 100
    assert unpack(pack(Accepted())) == Accepted()
    sums[100:110] = 1
    assert len(pack(Gradients(number=1, sums=sums))) < 50 * 11 + 100  # each row is there once


def test_damage_is_noticed():
    good = pack(Gradients(number=1, sums=np.ones((3, 2), np.float32)))
    for bad in (good[:-1], good[:1] + b"\xc1", good[:1] + good[2:]):
        with pytest.raises(StorageError):
            unpack(bad)


@given(st.binary(min_size=1, max_size=100), st.integers(0, 99), st.integers(1, 255))
def test_another_request_has_another_tag(data, place, flip):
    other = bytearray(data)
    other[place % len(data)] ^= flip
    assert request_tag(data) == request_tag(bytes(data))
    assert request_tag(data) != request_tag(bytes(other))
    assert request_tag(data) != request_tag(data + b"\0")
