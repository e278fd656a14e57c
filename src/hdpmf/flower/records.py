"""Records that the two halves of the Flower app exchange: typed values as bytes."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from flwr.app import ConfigRecord, RecordDict

from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import ProtocolError
from hdpmf.lab.simulate.virtual_device import PublicFacts

_RECORD, _FIELD = "hdpmf", "data"

T = TypeVar("T")


class ReportTask(msgspec.Struct, frozen=True):
    """A task of two servers, as simulated devices see it.

    Attributes:
        servers: The pair that they trust.
        files: The files that the recommender publishes.
        now: The time.
    """

    servers: Servers
    files: dict[str, bytes]
    now: float


class Question(msgspec.Struct, frozen=True):
    """Sent to a node.

    Attributes:
        public: Facts that all simulated devices share; of these a silo takes the roster.
        message: The recommender's message to the device.
        task: For a report.
        device: The simulated device itself, with the first message that it gets.
    """

    public: PublicFacts
    message: bytes = b""
    task: ReportTask | None = None
    device: bytes = b""


class Card(msgspec.Struct, frozen=True):
    """A silo, as the roster lists it."""

    identity: str
    users: int


class UserVectors(msgspec.Struct, frozen=True):
    """The user vectors of a simulated device, float32, one after the other."""

    users: list[str]
    vectors: bytes


def pack(value: object) -> RecordDict:
    """Return a value as the content of a Flower message or as a node's state."""
    return RecordDict({_RECORD: ConfigRecord({_FIELD: msgspec.msgpack.encode(value)})})


def unpack(content: RecordDict, kind: type[T]) -> T:
    """Return the value that `pack` was given.

    Raises:
        ProtocolError: It is something else.
    """
    record = content.get(_RECORD)
    data = record.get(_FIELD) if isinstance(record, ConfigRecord) else None
    try:
        return msgspec.msgpack.decode(data if isinstance(data, bytes) else b"", type=kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a Flower message has no {kind.__name__} in it: {error}") from None
