"""The core of the load benchmark, small: real devices over HTTPS, some of which never answer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyhpke")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import load
from hdpmf.common.data import synthetic_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_everybody_who_answers_is_answered_and_the_mute_are_not_waited_for(tmp_path: Path) -> None:
    train = synthetic_world(n_users=24, n_items=30, n_ratings=200, rng=0)
    plan = load.Plan(devices=24, way="masks", processes=1, mute=4, timeout=200.0)
    row = load.measure(plan, train, tmp_path)
    assert row["failed"] == ""
    assert (row["mute"], row["never_answered"], row["summary"]["users"]) == (4, 0, 20)
    assert set(row["cpu_seconds"]) == set(row["peak_megabytes"]) == {"recommender", "devices"}
