"""A hidden rating beside what its own person shows: under the claim, and planted faults found.

Each verdict is at 95 % confidence with a fixed seed: a right claim would be called broken in one
seed of twenty at most, and the faults are far larger than that.
"""

from __future__ import annotations

import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.game import Audit, pairs, run_audit
from hdpmf.lab.audit.scores import BROKEN, STANDS, lower_bound, verdict
from hdpmf.lab.audit.sharing import shared_scores
from hdpmf.lab.audit.world import Design, choose_target

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=900, rng=1)
RUNS = 700
EPSILON = 3.0


def bound(adjacency: str, noise_factor: float = 1.0, **limits) -> float:
    target = choose_target(WORLD, 1.0, seed=0)
    scores = shared_scores(
        target,
        Design("A", EPSILON, noise_factor),
        2 * RUNS,
        0,
        adjacency=adjacency,
        **limits,
    )
    return lower_bound(*scores.split(RUNS)).epsilon


CLAIMS = {"value": EPSILON, "presence": 0.75 * EPSILON}


@pytest.mark.parametrize("adjacency", CLAIMS)
def test_a_hidden_rating_of_somebody_who_shows_the_rest(adjacency):
    assert verdict(CLAIMS[adjacency], bound(adjacency)) == STANDS


@pytest.mark.parametrize("adjacency", CLAIMS)
def test_half_the_noise_is_found(adjacency):
    assert verdict(CLAIMS[adjacency], bound(adjacency, 0.5)) == BROKEN


def test_a_limit_over_hidden_and_visible_ratings_together_is_found():
    """One hidden rating more would push a visible one out, in plain sight."""
    own = len(choose_target(WORLD, 1.0, seed=0).own)
    most = own - 1  # as many as are visible
    assert verdict(CLAIMS["presence"], bound("presence", most=most)) == STANDS
    assert verdict(CLAIMS["presence"], bound("presence", most=most, one_limit=True)) == BROKEN


def test_the_audit_has_its_game():
    views = [view for method, view in pairs() if method == "hdp-share"]
    assert views == ["messages", "sums"]
    for view, adjacency in (("messages", "value"), ("sums", "value"), ("sums", "presence")):
        audit = Audit("hdp-share", view, 100, epsilon=2.0, weight=0.5, adjacency=adjacency)
        result = run_audit(audit, WORLD)
        assert result.verdict == STANDS
        assert result.epsilon_claimed == pytest.approx(1.0 if adjacency == "value" else 0.75)
        assert result.claim_covers_view
    with pytest.raises(ConfigError, match="messages and sums"):
        Audit("hdp-share", "final")
    with pytest.raises(ConfigError, match="hides no presence"):
        Audit("hdp-share", "messages", adjacency="presence")
