"""A message as it comes in: its envelope, whether its number fits, and what it asks for."""

from __future__ import annotations

from hdpmf.errors import HdpmfError, ProtocolError
from hdpmf.protocol import Envelope, Grouping, ItemFacts, Message, Round, Terms, decode
from hdpmf.protocol.wire import MAX_BYTES

_LONGEST_TERMS = 4096  # bytes; whatever is longer asks for something else, and is not decoded once more


def opened(data: bytes) -> Envelope:
    """The envelope in a message; ProtocolError if there is none."""
    if len(data) > MAX_BYTES:
        raise ProtocolError(f"a message of {len(data)} bytes is longer than the limit of {MAX_BYTES}")
    envelope = decode(data)
    if not isinstance(envelope, Envelope):
        raise ProtocolError(f"a {type(envelope).__name__} came without an envelope")
    return envelope


def check_number(envelope: Envelope, message: Message) -> None:
    """Refuse a message that is not of the job that its envelope says."""
    match message:
        case Round():
            right = envelope.number == message.number
        case Grouping():
            right = envelope.number == 1
        case ItemFacts():
            right = envelope.number <= 2
        case _:
            right = envelope.number == 0
    if not right:
        raise ProtocolError(f"refused: the envelope is of job {envelope.number}, the {type(message).__name__} is not")


def terms_in(envelope: Envelope) -> Terms | None:
    """The terms that came in an envelope; None where it has something else in it."""
    if len(envelope.body) > _LONGEST_TERMS:
        return None
    try:
        message = decode(envelope.body)
    except HdpmfError:
        return None
    return message if isinstance(message, Terms) else None
