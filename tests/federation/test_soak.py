"""A few of the soak's runs; ``make soak`` does a hundred."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.federation.soak import one_run


@pytest.mark.parametrize(
    "seed", [1, 2]
)  # a device in the middle of secure sums, and the recommender between rounds
def test_a_kill_at_a_random_moment_does_no_harm(seed: int, tmp_path: Path) -> None:
    ended = one_run(seed, tmp_path)
    assert ended.killed
    assert ended.faults == ()
