"""The one place where the private side makes a message. To see what can leave a device, read the calls of this."""

from __future__ import annotations

from typing import Any, TypeVar

from hdpmf.errors import ProtocolError
from hdpmf.protocol import BitContribution, BudgetReport, Gradients, ItemCounts, SumContribution

Outgoing = TypeVar("Outgoing", BudgetReport, ItemCounts, Gradients, SumContribution, BitContribution)

_ALLOWED = (BudgetReport, ItemCounts, Gradients, SumContribution, BitContribution)


def compose(kind: type[Outgoing], **fields: Any) -> Outgoing:
    """Make an outgoing message of one of the kinds that a shard may send."""
    if kind not in _ALLOWED:
        raise ProtocolError(f"a shard never sends a {kind.__name__}")
    return kind(**fields)
