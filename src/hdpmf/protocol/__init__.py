"""What a private shard and an untrusted recommender say to each other.

This is the whole conversation::

    recommender                                   shard
        Plan              ──────────────────────▶
                          ◀──────────────────────   BudgetReport   (only where the mechanism needs it)
        Opening           ──────────────────────▶
                          ◀──────────────────────   ItemCounts
        Round 1           ──────────────────────▶
                          ◀──────────────────────   Gradients 1
        ...
        Round T + 1       ──────────────────────▶   (final factors; nothing is sent back)

Nothing in this package computes anything private; it defines, checks and encodes messages.
"""

from hdpmf.protocol.messages import (
    PROTOCOL_VERSION,
    BudgetReport,
    Gradients,
    ItemCounts,
    Message,
    Opening,
    Plan,
    Round,
)
from hdpmf.protocol.schedule import learning_rate_at
from hdpmf.protocol.wire import decode, encode

__all__ = [
    "PROTOCOL_VERSION",
    "BudgetReport",
    "Gradients",
    "ItemCounts",
    "Message",
    "Opening",
    "Plan",
    "Round",
    "decode",
    "encode",
    "learning_rate_at",
]
