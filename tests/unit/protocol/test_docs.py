"""The page about messages names every type of a training."""

from __future__ import annotations

import re
from pathlib import Path

from hdpmf.common.protocol import BudgetReport, Gradients, ItemCounts, Opening, Plan, Round

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"


def test_every_type_of_message_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    kinds = (Plan, BudgetReport, Opening, ItemCounts, Round, Gradients)
    names = [kind.__name__ for kind in kinds]
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []
