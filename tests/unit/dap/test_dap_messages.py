"""Every message comes back as it was; whatever bytes arrive are a message or a refusal, and cost
little memory.
"""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.aggregation.two_servers.dap import messages as dap
from hdpmf.common.aggregation.two_servers.dap.codec import (
    Codec,
    Constant,
    Fixed,
    Items,
    Message,
    Nested,
    Opaque,
    Uint,
    layout,
)
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregateShareReq,
    AggregationJobInitReq,
    AggregationJobResp,
    CollectionJobReq,
    HpkeCiphertext,
    HpkeConfig,
    HpkeConfigList,
    Interval,
    PingPongShare,
    PlaintextInputShare,
    Report,
    ReportError,
    ReportMetadata,
    UploadErrors,
    VerifyResp,
)
from hdpmf.errors import DapError, PrioError

MESSAGES = [
    kind
    for kind in vars(dap).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
]


def values(codec: Codec) -> st.SearchStrategy[object]:
    """Anything that a field may hold."""
    if isinstance(codec, Uint):
        return st.integers(0, 256**codec.width - 1)
    if isinstance(codec, Fixed):
        return st.binary(min_size=codec.size, max_size=codec.size)
    if isinstance(codec, Opaque):
        return st.binary(min_size=codec.minimum, max_size=40)
    if isinstance(codec, Items):
        return st.lists(messages(codec.item), min_size=codec.minimum, max_size=3).map(tuple)
    if isinstance(codec, Nested):
        return messages(codec.kind)
    return st.one_of(st.binary(min_size=1, max_size=40), st.sampled_from(ReportError))


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Any message of a kind."""
    fields = layout(kind).items()
    return st.builds(
        kind, **{name: values(codec) for name, codec in fields if not isinstance(codec, Constant)}
    )


def written_again(kind: type[Message], data: bytes) -> bytes | None:
    """One message has one text: what is understood is written as it came. None if it is refused."""
    try:
        message = kind.decode(data)
    except DapError:
        return None
    return message.encode()


def test_there_are_messages():
    assert len(MESSAGES) == 24


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_comes_back(kind: type[Message]):
    @given(messages(kind))
    @settings(max_examples=25)
    def comes_back(message: Message):
        encoded = message.encode()
        assert kind.decode(encoded) == message
        assert kind.decode(memoryview(bytearray(encoded))) == message
        for wrong in (encoded[:-1], encoded + b"\0"):
            with pytest.raises(DapError):
                kind.decode(wrong)

    comes_back()


@pytest.mark.parametrize("kind", MESSAGES)
def test_changed_bytes_are_a_message_or_a_refusal(kind: type[Message]):
    change = st.tuples(st.integers(0, 2**16), st.integers(0, 255))

    @given(
        messages(kind),
        st.lists(change, min_size=1, max_size=4),
        st.binary(max_size=8),
        st.integers(0, 8),
    )
    @settings(max_examples=40)
    def either(message: Message, changes: list[tuple[int, int]], more: bytes, fewer: int):
        changed = bytearray(message.encode())
        for place, byte in changes:
            changed[place % len(changed)] = byte
        data = bytes(changed[: len(changed) - fewer]) + more
        assert written_again(kind, data) in (data, None)

    either()


@pytest.mark.parametrize(
    "message",
    [
        HpkeConfigList((HpkeConfig(1, 2, 3, 4, b"ab"), HpkeConfig(5, 6, 7, 8, b"cd"))),
        AggregationJobResp((VerifyResp(bytes(16), b"ab"), VerifyResp(bytes(16), b"cd"))),
    ],
)
def test_lengths_within_lists_are_held_to_their_list(message: Message):
    data = message.encode()
    for place in range(len(data)):
        for byte in (0, 1, 2, 3, 5, 200):
            changed = data[:place] + bytes([byte]) + data[place + 1 :]
            assert written_again(type(message), changed) in (changed, None)


@pytest.mark.parametrize("kind", MESSAGES)
def test_any_bytes_are_a_message_or_a_refusal(kind: type[Message]):
    @given(st.binary(max_size=120))
    @settings(max_examples=40)
    def either(data: bytes):
        assert written_again(kind, data) in (data, None)

    either()


@pytest.mark.parametrize(
    "kind", [Report, AggregationJobInitReq, PlaintextInputShare, HpkeConfigList, PingPongShare]
)
@pytest.mark.parametrize("start", [b"", bytes(24), bytes(6), b"\x01", bytes(4) + b"\x01"])
def test_announced_lengths_take_no_memory(kind: type[Message], start: bytes):
    data = start + b"\xff" * 64
    with pytest.raises(DapError):
        kind.decode(data)  # caches are full now
    tracemalloc.start()
    try:
        with pytest.raises(DapError):
            kind.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "message",
    [
        ReportMetadata(bytes(15), 0),
        ReportMetadata(bytes(16), 2**64),
        ReportMetadata(bytes(16), -1),
        HpkeCiphertext(256, b"e", b"p"),
        HpkeCiphertext(0, b"", b"p"),
        HpkeCiphertext(0, b"e", b""),
        HpkeConfigList(()),
        AggregationJobInitReq(()),
        UploadErrors(()),
        AggregateShareReq(CollectionJobReq(Interval(0, 1)), Interval(0, 1), 0, bytes(31)),
    ],
)
def test_what_does_not_fit_is_not_written(message: Message):
    with pytest.raises(DapError):
        message.encode()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (CollectionJobReq, b"\x02\0\x10" + bytes(22)),
        (CollectionJobReq, b"\x01\0\x10" + bytes(21) + b"\x01"),
        (ReportMetadata, bytes(25) + b"\x04" + bytes(4)),
        (PlaintextInputShare, b"\0\x04" + bytes(8)),
        (PingPongShare, b"\x01" + bytes(8)),
        (VerifyResp, bytes(16) + b"\x01"),
        (VerifyResp, bytes(16) + b"\x02\x0c"),
    ],
)
def test_unknown_cases_are_refused(kind: type[Message], data: bytes):
    with pytest.raises(DapError):
        kind.decode(data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (HpkeConfigList, bytes(2)),
        (HpkeConfig, bytes(9)),
        (HpkeCiphertext, bytes(7)),
        (HpkeCiphertext, b"\0\0\x01e" + bytes(4)),
        (AggregationJobResp, b""),
        (AggregationJobInitReq, bytes(7)),
        (UploadErrors, b""),
    ],
)
def test_what_must_not_be_empty_is_not(kind: type[Message], data: bytes):
    with pytest.raises(DapError, match="must not be empty"):
        kind.decode(data)


def test_shares_are_not_shown():
    share = PlaintextInputShare(b"secret")
    message = PingPongShare(b"secret")
    assert repr(share) == "PlaintextInputShare(private_extensions=<0 bytes>, payload=<6 bytes>)"
    assert "secret" not in f"{message}"


def test_errors_are_of_the_one_tree():
    assert issubclass(DapError, PrioError)
    assert DapError("no", dap.Problem.BATCH_OVERLAP).kind == "batchOverlap"


def test_an_interval_has_its_start_and_not_its_end():
    interval = Interval(10, 5)
    assert [time in interval for time in (9, 10, 14, 15)] == [False, True, True, False]
