"""Messages of a secure sum as bytes: MessagePack, with a limit for each kind of message. Nothing is ever executed."""

from __future__ import annotations

import msgspec

from hdpmf import msgpack
from hdpmf.errors import SecureSumError
from hdpmf.secure_sum.messages import MAX_LENGTH, SumMessage, ToDevice, ToRecommender

MAX_BYTES = 4 * MAX_LENGTH + 1024
"""No message is longer."""

_ENCODER = msgspec.msgpack.Encoder()
_TO_DEVICE: msgspec.msgpack.Decoder[ToDevice] = msgspec.msgpack.Decoder(ToDevice)
_TO_RECOMMENDER: msgspec.msgpack.Decoder[ToRecommender] = msgspec.msgpack.Decoder(ToRecommender)
_WHAT = "a message of a secure sum"


def encode(message: SumMessage) -> bytes:
    """The message as bytes."""
    return _ENCODER.encode(message)


def decode_to_device(data: bytes, max_bytes: int = MAX_BYTES) -> ToDevice:
    """The message that a device was sent; anything else is a SecureSumError."""
    return msgpack.read(_TO_DEVICE, data, max_bytes, SecureSumError, _WHAT)


def decode_to_recommender(data: bytes, max_bytes: int = MAX_BYTES) -> ToRecommender:
    """The message that the recommender was sent; anything else is a SecureSumError."""
    return msgpack.read(_TO_RECOMMENDER, data, max_bytes, SecureSumError, _WHAT)
