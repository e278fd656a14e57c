"""Messages of a secure sum as bytes: MessagePack, with a limit for each kind of message. Nothing is ever executed."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from hdpmf.errors import SecureSumError
from hdpmf.secure_sum.messages import MAX_LENGTH, SumMessage, ToDevice, ToRecommender

MAX_BYTES = 4 * MAX_LENGTH + 1024
"""No message is longer: a hostile peer must not be able to fill the memory."""

M = TypeVar("M")

_ENCODER = msgspec.msgpack.Encoder()
_TO_DEVICE: msgspec.msgpack.Decoder[ToDevice] = msgspec.msgpack.Decoder(ToDevice)
_TO_RECOMMENDER: msgspec.msgpack.Decoder[ToRecommender] = msgspec.msgpack.Decoder(ToRecommender)


def encode(message: SumMessage) -> bytes:
    """The message as bytes."""
    return _ENCODER.encode(message)


def decode_to_device(data: bytes, max_bytes: int = MAX_BYTES) -> ToDevice:
    """The message that a device was sent; anything else is a SecureSumError."""
    return _decode(_TO_DEVICE, data, max_bytes)


def decode_to_recommender(data: bytes, max_bytes: int = MAX_BYTES) -> ToRecommender:
    """The message that the recommender was sent; anything else is a SecureSumError."""
    return _decode(_TO_RECOMMENDER, data, max_bytes)


def _decode(decoder: msgspec.msgpack.Decoder[M], data: bytes, max_bytes: int) -> M:
    if len(data) > max_bytes:
        raise SecureSumError(f"a message of {len(data)} bytes is longer than the limit of {max_bytes}")
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        cause = error.__cause__
        if isinstance(cause, SecureSumError):
            raise cause from None
        raise SecureSumError(f"not a message of a secure sum: {error}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        # msgspec lets these through as they are; their text would quote the sender's bytes.
        raise SecureSumError(f"not a message of a secure sum ({type(error).__name__})") from None
