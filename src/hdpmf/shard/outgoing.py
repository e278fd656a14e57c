"""The one place where the private side makes a message. To see what can leave a device, read the calls of this.

Everything leaves in a ``Reply``. Its body is one of the other messages, encoded, or one of a secure sum (``masked``),
whose words are under masks that only sums over many devices take off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hdpmf.errors import ProtocolError
from hdpmf.protocol import (
    Accepted,
    BitContribution,
    BudgetReport,
    Gradients,
    Here,
    ItemCounts,
    Popularity,
    Ready,
    Refusal,
    Reply,
    SumContribution,
)
from hdpmf.protocol.pairs import PairContribution

if TYPE_CHECKING:
    from hdpmf.secure_sum import ToRecommender

Outgoing = TypeVar(
    "Outgoing",
    BudgetReport,
    ItemCounts,
    Gradients,
    SumContribution,
    BitContribution,
    Popularity,
    PairContribution,
    Here,
    Accepted,
    Ready,
    Refusal,
    Reply,
)

_ALLOWED = Outgoing.__constraints__


def compose(kind: type[Outgoing], **fields: Any) -> Outgoing:
    """Make an outgoing message of one of the kinds that a shard may send."""
    if kind not in _ALLOWED:
        raise ProtocolError(f"a shard never sends a {kind.__name__}")
    return kind(**fields)


def masked(message: ToRecommender) -> bytes:
    """A device's message of a secure sum, as a body."""
    from hdpmf.secure_sum import ToRecommender, encode  # needs the federation extra, which shards do without

    if not isinstance(message, ToRecommender):
        raise ProtocolError(f"a device never sends a {type(message).__name__}")
    return encode(message)
