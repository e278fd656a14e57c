"""The page about messages names every type that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from hdpmf.common.aggregation.masks.messages import ToDevice, ToRecommender
from hdpmf.common.protocol import ListTable
from hdpmf.common.protocol.federation import FederationMessage
from hdpmf.common.protocol.messages import Message as TrainingMessage
from hdpmf.common.protocol.oneround import OneRoundMessage

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"


def test_every_type_of_message_is_on_the_page():
    families = (FederationMessage, TrainingMessage, OneRoundMessage, ToDevice, ToRecommender)
    names = [kind.__name__ for family in families for kind in get_args(family)] + [
        ListTable.__name__
    ]
    page = PAGE.read_text()
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []
    assert f"There are {len(names)} types" in page
