"""Replies as they are kept until the next round, so that an exact repeat of a request gets the same bytes again."""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from hdpmf.errors import StorageError
from hdpmf.protocol import Gradients, Message, Reply, decode, encode
from hdpmf.shard.outgoing import compose

_Sparse = tuple[int, int, int, bytes, bytes]


def request_tag(data: bytes) -> bytes:
    """What a request is known by.

    A checksum is enough: whoever makes another request with the same one gets the old answer, and nothing else.
    """
    words = np.frombuffer(data, np.uint64, len(data) // 8)
    ends = (len(data), int(np.add.reduce(words)), int(np.bitwise_xor.reduce(words)), zlib.crc32(data[-1024:]))
    return b"".join(one.to_bytes(8, "big") for one in ends)


def pack(message: Message) -> bytes:
    """A message for the outbox. Gradients of one person are mostly zeros, so only the other rows are kept."""
    if not isinstance(message, Gradients):
        return b"m" + encode(message)
    sums = message.sums
    # By their bits, so that not even the sign of a zero is lost.
    rows = np.flatnonzero(sums.view(np.int32)) // sums.shape[1]
    rows = rows[np.append(True, rows[1:] != rows[:-1])] if len(rows) else rows
    parts = (message.number, *sums.shape, rows.astype("<i8").tobytes(), sums[rows].astype("<f4").tobytes())
    return b"g" + msgspec.msgpack.encode(parts)


def unpack(data: bytes) -> Message:
    """The message that was packed."""
    if data[:1] == b"m":
        return decode(data[1:])
    try:
        number, n_rows, n_columns, rows, values = msgspec.msgpack.decode(data[1:], type=_Sparse)
        sums = np.zeros((n_rows, n_columns), np.float32)
        sums[np.frombuffer(rows, "<i8")] = np.frombuffer(values, "<f4").reshape(-1, n_columns)
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise StorageError("a kept reply cannot be read: the store is damaged") from error
    return compose(Gradients, number=number, sums=sums)


def sealed(run: bytes, number: int, message: Message) -> bytes:
    """The reply with a message of the protocol in it, as it leaves."""
    return encode(compose(Reply, run=run, number=number, part="job", body=encode(message)))
