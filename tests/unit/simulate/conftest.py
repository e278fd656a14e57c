"""A recommender's service with eight devices whose ratings grow between runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world import Federation, growing_federation


@pytest.fixture
def town(tmp_path: Path) -> Federation:
    """It is in the folder ``r``; no run has begun."""
    return growing_federation(tmp_path)
