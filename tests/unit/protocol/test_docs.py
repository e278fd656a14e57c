"""The page about messages names every type of a training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from hdpmf.common.protocol.messages import Message

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"


def test_every_type_of_message_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    names = [kind.__name__ for kind in get_args(Message)]
    assert len(names) > 4
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []
