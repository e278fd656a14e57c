"""Whatever bytes arrive, a server gives an answer or a clear refusal, and looks at sizes first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.aggregation.two_servers.prio import (
    Prio3,
    ReportShares,
    prio3_bounded_vector,
)
from hdpmf.errors import ConfigError, PrioError
from tests.unit.prio.circuits import SumVec
from tests.unit.prio.prio_servers import KEY, NONCE, check, sum_of

VDAF = prio3_bounded_vector(3, 12, 200, True, b"")
SIZES = (VDAF.input_share_size(0), VDAF.input_share_size(1))


@pytest.fixture(scope="module")
def report() -> ReportShares:
    return VDAF.shard(VDAF.circuit.encode(np.array([12, 0, -5])), NONCE)


def near(size: int) -> st.SearchStrategy[bytes]:
    """Bytes of that size, of nearly that size, or of any small one; in half of them every number
    is an element.
    """
    whole = st.binary(min_size=size, max_size=size)
    small = whole.map(
        lambda data: bytes(
            byte if place % 8 != 7 else byte & 0x7F for place, byte in enumerate(data)
        )
    )
    return (
        whole
        | small
        | st.binary(max_size=64)
        | st.sampled_from([size - 1, size + 1, 8 * size]).map(bytes)
    )


@given(
    public=near(64),
    leader=near(SIZES[0]),
    helper=near(SIZES[1]),
    nonce=st.just(NONCE) | near(16),
    key=near(32),
)
@settings(max_examples=60)
def test_no_bytes_are_counted_or_break_a_server(public, leader, helper, nonce, key):
    parts = []
    for server, share in enumerate((leader, helper)):
        try:
            parts.append(VDAF.prepare(key, server, nonce, public, share)[1])
        except PrioError:
            return
    with pytest.raises(PrioError):
        VDAF.verify(parts)


@given(
    st.lists(near(VDAF.prepare_share_size), max_size=3),
    st.lists(near(VDAF.circuit.output_length * 8), max_size=2),
)
@settings(max_examples=60)
def test_no_bytes_between_servers_or_for_the_collector_break_them(report, parts, sums):
    kept, _ = VDAF.prepare(KEY, 0, NONCE, report.public_share, report.input_shares[0])
    with pytest.raises(PrioError):
        VDAF.finish(kept, VDAF.verify(parts))  # zeros are a valid sum, and of no report
    try:
        assert len(VDAF.unshard(sums)) == VDAF.circuit.output_length
    except PrioError:
        assert any(
            len(encoded) != 8 * VDAF.circuit.output_length or b"\xff" * 4 in encoded
            for encoded in sums
        )


@given(place=st.integers(0, SIZES[0] + SIZES[1] + 63), bit=st.integers(0, 7))
@settings(max_examples=60)
def test_a_single_wrong_bit_is_refused(report: ReportShares, place: int, bit: int):
    joined = bytearray(b"".join((*report.input_shares, report.public_share)))
    joined[place] ^= 1 << bit
    shares = [bytes(joined[: SIZES[0]]), bytes(joined[SIZES[0] : sum(SIZES)])]
    with pytest.raises(PrioError):
        check(VDAF, ReportShares(bytes(joined[sum(SIZES) :]), shares))


def test_a_message_that_is_not_the_servers_own_is_refused(report: ReportShares):
    kept, _ = VDAF.prepare(KEY, 0, NONCE, report.public_share, report.input_shares[0])
    for message in (b"", bytes(32), kept.joint_seed[:-1]):
        with pytest.raises(PrioError, match="joint randomness"):
            VDAF.finish(kept, message)


def test_a_large_message_is_refused_before_anything_is_read(report: ReportShares):
    with pytest.raises(PrioError, match="input share has"):
        VDAF.prepare(KEY, 0, NONCE, report.public_share, bytes(10_000_000))


@pytest.mark.parametrize("servers", [2, 3, 5])
def test_any_number_of_servers_sum_the_same(servers: int):
    vdaf = Prio3(SumVec(3, 15), 1, proofs=3, context=b"", servers=servers)
    vectors = [[1, 2, 3], [15, 0, 7]]
    assert sum_of(vdaf, [vdaf.circuit.encode(np.array(one)) for one in vectors]) == [16, 2, 10]


def test_servers_and_their_number_are_checked(report: ReportShares):
    with pytest.raises(ConfigError, match="no server 2"):
        VDAF.prepare(KEY, 2, NONCE, report.public_share, report.input_shares[0])
    with pytest.raises(ConfigError, match="servers"):
        Prio3(VDAF.circuit, 1, proofs=3, context=b"", servers=1)


def test_a_report_is_made_with_numbers_of_the_right_size_only() -> None:
    """A nonce of another size would bind the proof to something that servers never see."""
    vector = VDAF.circuit.encode(np.array([12, 0, -5]))
    for size in (0, len(NONCE) - 1, len(NONCE) + 1):
        with pytest.raises(PrioError, match="nonce"):
            VDAF.shard(vector, bytes(size))
    for size in (VDAF.random_size - 1, VDAF.random_size + 1):
        with pytest.raises(PrioError, match="randomness"):
            VDAF.shard(vector, NONCE, bytes(size))
