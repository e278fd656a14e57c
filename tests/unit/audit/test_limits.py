"""Presence of one rating of somebody at a limit: twice the usual claim, and planted faults found.

Each verdict is at 95 % confidence with a fixed seed, as in ``test_sharing``.
"""

from __future__ import annotations

from typing import Any

import pytest

from hdpmf.common.methods.one_round import HDP_SUM
from hdpmf.lab.audit.scores import BROKEN, STANDS, lower_bound, verdict
from hdpmf.lab.audit.world import Design

from .limit_game import limited_scores

RUNS = 1500
EPSILON = 8.0
LIGHT = 16  # a quarter
WEIGHTS = [LIGHT, 64, 64, 64, 64]
FACTOR = HDP_SUM.claim("sums").presence
CLAIM = 2 * (FACTOR or 0.0) * LIGHT / 64 * EPSILON
ONLY_THIS = "max_total, reached by this rating only"
LIMITS: dict[str, dict[str, Any]] = {
    "max_total": {"total": 2 * 64 + 8},
    ONLY_THIS: {"total": 4 * 64},
    "among equals": {"total": 4 * LIGHT, "weights": [LIGHT] * 5},
}


def bound(noise_factor: float = 1.0, weights: list[int] = WEIGHTS, **limits: Any) -> float:
    design = Design("A", EPSILON, noise_factor)
    scores = limited_scores(weights, design, 2 * RUNS, 0, **limits)
    return lower_bound(*scores.split(RUNS)).epsilon


@pytest.mark.parametrize("limit", LIMITS)
def test_presence_at_a_limit_costs_twice_as_much_at_most(limit: str) -> None:
    assert verdict(CLAIM, bound(**LIMITS[limit])) == STANDS


@pytest.mark.parametrize("limit", [ONLY_THIS, "among equals"])
def test_half_the_noise_is_found(limit: str) -> None:
    assert verdict(CLAIM, bound(0.5, **LIMITS[limit])) == BROKEN


@pytest.mark.parametrize("limit", ["max_total", ONLY_THIS])
def test_a_light_rating_that_pushes_out_a_whole_heavy_one_is_found(limit: str) -> None:
    """As it was: all of a rating or nothing."""
    assert verdict(CLAIM, bound(whole=True, **LIMITS[limit])) == BROKEN


def test_it_does_cost_more_than_without_a_limit() -> None:
    """The usual claim stands without a limit, and not at one."""
    assert verdict(CLAIM / 2, bound()) == STANDS
    assert verdict(CLAIM / 2, bound(**LIMITS["max_total"])) == BROKEN
