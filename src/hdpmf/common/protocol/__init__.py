"""The messages between private participants and an untrusted recommender.

The conversation of the paper's scheme::

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

from hdpmf.common.protocol.catalogue import CatalogueTable, CatalogueVersion
from hdpmf.common.protocol.messages import (
    BitContribution,
    BudgetReport,
    Gradients,
    ItemCounts,
    ItemFacts,
    Message,
    Opening,
    Plan,
    Round,
    SumContribution,
    Survey,
    decode,
    encode,
    learning_rate_at,
)

__all__ = [
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
