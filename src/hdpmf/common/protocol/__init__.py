"""The messages between private participants and an untrusted recommender.

The conversation of the paper's scheme (that of the one-round designs is drawn in ``messages``)::

    recommender                           client
        Plan              ──────────────▶
                          ◀──────────────   BudgetReport   (only where the mechanism needs it)
        Opening           ──────────────▶
                          ◀──────────────   ItemCounts
        Round 1           ──────────────▶
                          ◀──────────────   Gradients 1
        ...
        Round T + 1       (the final factors)

Nothing in this package computes anything private; it defines, checks and encodes messages.
"""

import msgspec

from hdpmf.common.base import msgpack
from hdpmf.common.protocol.catalogue import (
    AnyCatalogue,
    CatalogueTable,
    CatalogueVersion,
    read_catalogue,
)
from hdpmf.common.protocol.documents import Document
from hdpmf.common.protocol.messages import (
    BitContribution,
    BudgetReport,
    Gradients,
    ItemCounts,
    ItemFacts,
    Opening,
    Plan,
    Round,
    SumContribution,
    Survey,
    learning_rate_at,
)
from hdpmf.errors import ProtocolError

__all__ = [
    "AnyCatalogue",
    "BitContribution",
    "BudgetReport",
    "CatalogueTable",
    "CatalogueVersion",
    "Gradients",
    "ItemCounts",
    "ItemFacts",
    "Message",
    "Opening",
    "Plan",
    "Round",
    "SumContribution",
    "Survey",
    "decode",
    "encode",
    "learning_rate_at",
]

_Packed = (
    Plan
    | BudgetReport
    | Opening
    | ItemCounts
    | Round
    | Gradients
    | Survey
    | SumContribution
    | BitContribution
    | ItemFacts
)

Message = _Packed | AnyCatalogue
"""Anything that either side may say."""

MAX_BYTES = 512 * 1024 * 1024
"""No message may be longer: a hostile peer must not be able to fill the memory."""

_ENCODER = msgspec.msgpack.Encoder(enc_hook=msgpack.array_to_plain)
_DECODER: msgspec.msgpack.Decoder[_Packed] = msgspec.msgpack.Decoder(
    _Packed, dec_hook=msgpack.array_from_plain
)


def encode(message: Message) -> bytes:
    """The message as bytes."""
    if isinstance(message, Document):
        return message.to_bytes()
    return _ENCODER.encode(message)


def decode(data: bytes) -> Message:
    """Return the message in ``data``; ProtocolError unless it is exactly one valid message."""
    if data[:1] == b"{":
        return read_catalogue(data)
    return msgpack.read(_DECODER, data, MAX_BYTES, ProtocolError, "a message of this protocol")
