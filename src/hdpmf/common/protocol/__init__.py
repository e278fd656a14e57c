"""The messages between private participants and an untrusted recommender.

The conversation of the paper's scheme (that of the one-round designs is drawn in ``oneround``)::

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

from hdpmf.common.protocol.catalogue import AnyCatalogue, CatalogueTable, CatalogueVersion
from hdpmf.common.protocol.codec import Message, decode, encode
from hdpmf.common.protocol.messages import (
    BudgetReport,
    Gradients,
    ItemCounts,
    Opening,
    Plan,
    Round,
    learning_rate_at,
)
from hdpmf.common.protocol.oneround import (
    BitContribution,
    ItemFacts,
    SumContribution,
    Survey,
)
from hdpmf.common.protocol.task import Task

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
    "Task",
    "decode",
    "encode",
    "learning_rate_at",
]
