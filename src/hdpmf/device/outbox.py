"""Replies as they are kept until the next round, so that an exact repeat of a request gets the same bytes again."""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from hdpmf.errors import StorageError
from hdpmf.protocol import Envelope, Gradients, ItemCounts, Message, Refusal, Reply, decode, encode
from hdpmf.protocol.federation import RUN_BYTES, Reason
from hdpmf.shard.outgoing import compose

_Sparse = tuple[int, tuple[int, ...], bytes, bytes]
_KINDS = {b"g": "<f4", b"c": "<i8"}


def request_tag(data: bytes) -> bytes:
    """What a request is known by.

    A checksum is enough: whoever makes another request with the same one gets the old answer, and nothing else.
    """
    words = np.frombuffer(data, np.uint64, len(data) // 8)
    ends = (len(data), int(np.add.reduce(words)), int(np.bitwise_xor.reduce(words)), zlib.crc32(data[-1024:]))
    return b"".join(number.to_bytes(8, "big") for number in ends)


def pack(message: Message) -> bytes:
    """A message for the outbox. Tables of one person are mostly zeros, so only their other rows are kept."""
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
        table[np.frombuffer(rows, "<i8")] = np.frombuffer(values, _KINDS[kind]).reshape(-1, *shape[1:])
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
    return kind + msgspec.msgpack.encode((number, table.shape, rows.astype("<i8").tobytes(), values))


def sealed(run: bytes, number: int, message: Message) -> bytes:
    """The reply with a message of the protocol in it, as it leaves."""
    return encode(compose(Reply, run=run, number=number, part="job", body=encode(message)))


def refusal(envelope: Envelope | None, reason: Reason) -> bytes:
    """The reply that says no, and why in a word."""
    run, number = (bytes(RUN_BYTES), 0) if envelope is None else (envelope.run, envelope.number)
    body = encode(compose(Refusal, reason=reason))
    return encode(compose(Reply, run=run, number=number, part="refusal", body=body))
