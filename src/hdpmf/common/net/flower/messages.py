"""How our bytes travel inside Flower's messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hdpmf.common.net.flower.environment import needs_flower

with needs_flower():
    from flwr.app import ConfigRecord, Message, RecordDict

MESSAGE_TYPE = "query"
RECORD = "letter"  # on the wire: both sides have to agree on it
FIELD = "data"
_DEPTH = 8


@dataclass(frozen=True)
class Outgoing:
    """A message to one device.

    Attributes:
        node: Flower's number of the device.
        data: The message.
        token: Drawn for this message; the reply has to carry it. Flower lets any enrolled device
            reply in another's name to a message whose id it knows, and the id is a hash of what is
            in the message.
    """

    node: int
    data: bytes
    token: str

    def to_flower(self, seconds: float) -> Any:
        """As Flower carries it; forgotten after ``seconds``."""
        return Message(
            record_of(self.data), self.node, MESSAGE_TYPE, ttl=seconds, group_id=self.token
        )


@dataclass(frozen=True)
class Incoming:
    """A reply: to which message, with which token, and its bytes (None: none of ours)."""

    to: str
    token: str
    data: bytes | None


def record_of(data: bytes, token: str = "") -> Any:
    """A message or reply as Flower carries it.

    Flower names parts by their hash and keeps equal ones once. For a message to many devices that
    is welcome. A reply has its token in it, because two equal replies must not be taken for one
    that is already there.
    """
    return RecordDict({RECORD: ConfigRecord({FIELD: data, "token": token})})


def bytes_of(message: Any) -> bytes:
    """The bytes in a whole message; ValueError if there are none."""
    return _data(message.content.config_records.get(RECORD) or {})


def bytes_in_part(part: bytes) -> bytes:
    """The bytes in the part of a message that ``data_part`` names; ValueError if there are none."""
    return _data(ConfigRecord.inflate(part))


def data_part(tree: Any) -> str:
    """Name of the part of a message that has the bytes: the message has one record, which has one
    set of values.

    The other two parts say nothing that is not known by now, so nobody fetches them.
    """
    for _ in range(_DEPTH):
        if not tree.children:
            return str(tree.object_id)
        if len(tree.children) > 1:
            break
        tree = tree.children[0]
    raise ValueError("not a message of ours")


def _data(record: Any) -> bytes:
    data = record.get(FIELD)
    if not isinstance(data, bytes):
        raise ValueError("not a message of ours")
    return data
