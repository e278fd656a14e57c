"""Messages of a device: envelopes that come in, replies as they are kept, and when they leave.

An exact repeat of a request gets the same bytes again. Answers leave at fixed times after the
question, so that nobody sees how long the noise or the ratings took.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import msgspec
import numpy as np

from hdpmf.common.protocol import (
    Envelope,
    Gradients,
    Grouping,
    ItemCounts,
    Message,
    Refusal,
    Reply,
    Round,
    Terms,
    decode,
    encode,
)
from hdpmf.common.protocol.codec import MAX_BYTES
from hdpmf.common.protocol.federation import RUN_BYTES, Reason
from hdpmf.errors import HdpmfError, ProtocolError, StorageError
from hdpmf.private.client.outgoing import compose

SLOT = 0.1
"""Seconds. An answer of a person's device takes some 2 to 15 ms; one that takes longer leaves
with the next slot.
"""


def quantize_response_time(
    answer: Callable[[bytes], bytes],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[[bytes], bytes]:
    """Wrap ``answer`` so that each answer takes a whole number of slots."""

    def respond(data: bytes) -> bytes:
        begun = clock()
        try:
            return answer(data)
        finally:
            wait_for_slot(begun, clock, sleep)

    return respond


def wait_for_slot(
    begun: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until a whole number of slots after ``begun``."""
    sleep(SLOT - (clock() - begun) % SLOT)


_LONGEST_TERMS = 4096  # bytes; a longer message is no terms, and is not decoded a second time


def opened(data: bytes) -> Envelope:
    """The envelope in a message; ProtocolError if there is none."""
    if len(data) > MAX_BYTES:
        raise ProtocolError(
            f"a message of {len(data)} bytes is longer than the limit of {MAX_BYTES}"
        )
    envelope = decode(data)
    if not isinstance(envelope, Envelope):
        raise ProtocolError(f"a {type(envelope).__name__} came without an envelope")
    return envelope


def check_number(envelope: Envelope, message: Message) -> None:
    """Refuse a message whose job is not that of its envelope."""
    match message:
        case Round():
            right = envelope.number == message.number
        case Grouping():
            right = envelope.number == 1
        case _:
            right = envelope.number == 0
    if not right:
        raise ProtocolError(
            f"refused: the envelope is of job {envelope.number}, the "
            f"{type(message).__name__} is not"
        )


def terms_in(envelope: Envelope) -> Terms | None:
    """The terms that came in an envelope; None where it has something else in it."""
    if len(envelope.body) > _LONGEST_TERMS:
        return None
    try:
        message = decode(envelope.body)
    except HdpmfError:
        return None
    return message if isinstance(message, Terms) else None


_Sparse = tuple[int, tuple[int, ...], bytes, bytes]

_KINDS = {b"g": "<f4", b"c": "<i8"}


def request_tag(data: bytes) -> bytes:
    """Return the tag by which a request is known.

    A checksum is enough: whoever makes another request with the same one gets the old answer, and
    nothing else.
    """
    words = np.frombuffer(data, np.uint64, len(data) // 8)
    ends = (
        len(data),
        int(np.add.reduce(words)),
        int(np.bitwise_xor.reduce(words)),
        zlib.crc32(data[-1024:]),
    )
    return b"".join(number.to_bytes(8, "big") for number in ends)


def pack(message: Message) -> bytes:
    """Encode a message for the outbox.

    Tables of one person are mostly zeros, so only the other rows are kept.
    """
    if isinstance(message, Gradients):
        return _sparse(b"g", message.number, message.sums)
    if isinstance(message, ItemCounts):
        return _sparse(b"c", 0, message.counts)
    return b"m" + encode(message)


def unpack(data: bytes) -> Message:
    """The message that was packed."""
    kind = data[:1]
    if kind not in _KINDS:
        return decode(data[1:])
    try:
        number, shape, rows, values = msgspec.msgpack.decode(data[1:], type=_Sparse)
        table = np.zeros(shape, _KINDS[kind])
        table[np.frombuffer(rows, "<i8")] = np.frombuffer(values, _KINDS[kind]).reshape(
            -1, *shape[1:]
        )
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise StorageError("a kept reply cannot be read: the store is damaged") from error
    if kind == b"c":
        return compose(ItemCounts, counts=table)
    return compose(Gradients, number=number, sums=table)


def _sparse(kind: bytes, number: int, table: np.ndarray) -> bytes:
    # By their bits, so that not even the sign of a zero is lost.
    rows = np.flatnonzero(table.view(np.int32)) * 4 // (table.itemsize * (table.size // len(table)))
    rows = rows[np.append(True, rows[1:] != rows[:-1])] if len(rows) else rows
    values = table[rows].astype(_KINDS[kind]).tobytes()
    return kind + msgspec.msgpack.encode(
        (number, table.shape, rows.astype("<i8").tobytes(), values)
    )


def sealed(run: bytes, number: int, message: Message) -> bytes:
    """The reply with a message of the protocol in it, as it leaves."""
    return encode(compose(Reply, run=run, number=number, part="job", body=encode(message)))


def refusal(envelope: Envelope | None, reason: Reason) -> bytes:
    """Return the reply that refuses, with the reason in one word."""
    run, number = (bytes(RUN_BYTES), 0) if envelope is None else (envelope.run, envelope.number)
    body = encode(compose(Refusal, reason=reason))
    return encode(compose(Reply, run=run, number=number, part="refusal", body=body))
