"""Messages as MessagePack, with arrays as (dtype, shape, raw little-endian data)."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from hdpmf.common.base import msgpack
from hdpmf.common.protocol.catalogue import AnyCatalogue
from hdpmf.common.protocol.messages import Message as TrainingMessage
from hdpmf.common.protocol.oneround import OneRoundMessage
from hdpmf.common.protocol.task import Task
from hdpmf.errors import ProtocolError

Message = TrainingMessage | OneRoundMessage | AnyCatalogue | Task
"""Anything that either side may say."""

MAX_BYTES = 512 * 1024 * 1024
"""No message may be longer: a hostile peer must not be able to fill the memory."""

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(f"<{name}") for name in ("f2", "f4", "i8", "i1", "i4", "u2", "u4")
}


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        name = next((name for name, dtype in _DTYPES.items() if dtype == value.dtype), None)
        if name is None:
            raise ProtocolError(f"arrays of {value.dtype} cannot be sent; {', '.join(_DTYPES)} can")
        return {
            "dtype": name,
            "shape": list(value.shape),
            "data": value.astype(_DTYPES[name]).tobytes(),
        }
    raise ProtocolError(f"a {type(value).__name__} cannot be sent")


def _from_plain(kind: type, value: Any) -> Any:
    if kind is not np.ndarray:
        raise ProtocolError(f"a {kind.__name__} cannot be received")
    try:
        dtype = _DTYPES[value["dtype"]]
        shape = tuple(value["shape"])
        data = value["data"]
        if len(value) != 3 or len(shape) > 2 or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError
        return np.frombuffer(data, dtype).reshape(shape)
    except (KeyError, TypeError, ValueError):
        # The chain is cut: a foreign traceback would only show the sender's bytes.
        raise ProtocolError(
            "an array in the message does not have the form {dtype, shape, data}"
        ) from None


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_plain)
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message, dec_hook=_from_plain)


def encode(message: Message) -> bytes:
    """The message as bytes."""
    return _ENCODER.encode(message)


def decode(data: bytes) -> Message:
    """Return the message in ``data``; ProtocolError unless it is exactly one valid message."""
    return msgpack.read(_DECODER, data, MAX_BYTES, ProtocolError, "a message of this protocol")
