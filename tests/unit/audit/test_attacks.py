"""Attacks that recover ratings."""

import dataclasses

import numpy as np
import pytest

from hdpmf.errors import ConfigError
from hdpmf.lab.audit import attacks
from hdpmf.lab.audit.attacks import AttackSetting, in_words, run
from hdpmf.private.client.h_plausibility import HPlausibility

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_reconstruction_beats_what_anybody_could_guess(world):
    """1,600 ratings at weight 1 and epsilon 1; the margin of 0.2 is many standard errors (0.013)
    wide.
    """
    found = run("reconstruct", AttackSetting(weight=1.0), world, users=30)
    assert found.exact > max(found.modal_exact, found.item_mean_exact) + 0.2
    assert found.rmse < found.item_mean_rmse
    assert "exactly right" in in_words(found)[1]


def test_without_noise_every_star_comes_out(world):
    found = run("reconstruct", AttackSetting("mf", factors=4, epochs=3), world, users=10)
    assert found.exact == 1.0
    assert found.rmse == 0.0


@pytest.mark.parametrize("method", ["hdpmf", "hdpmf-w", "pdpmf"])
def test_noise_that_is_used_twice_is_no_noise(world, method):
    found = run("difference", AttackSetting(method, factors=4, epochs=8), world, runs=50)
    assert found.exact == 1.0
    assert found.left_over < 1e-4 < found.noise
    assert found.epsilon_lower_bound > found.epsilon_claimed
    assert any("100.0%" in line for line in in_words(found))


def test_differencing_needs_kept_noise(world, target):
    from hdpmf.lab.audit.replay import record
    from hdpmf.models import make_model

    path = record(make_model("hdpmf", epochs=4, rng=0), world, target.privacy_weights(), 0)
    with pytest.raises(ConfigError, match="noise='once'"):
        attacks.difference(path, target, 20)


def test_the_shard_refuses_h_zero_and_an_h_just_above_it(world):
    found = run("zero-h", AttackSetting(factors=4, epochs=3), world, users=10)
    assert found.zero_refused
    assert "without noise" in found.reason
    assert found.tiny_refused
    assert found.exact == 1.0  # why it matters: what one such round would have given away
    # Four draws below 1e-3 have a probability of 1e-12; the test, an upper bound of it, takes about
    # 1e-9 / 1,000.
    assert 1e-4 < found.smallest_answered < 1e-2
    words = in_words(found)
    assert "REFUSED" in words[0]
    assert "REFUSED" in words[1]
    assert "would have" in words[2]


def test_where_a_tiny_h_is_answered_the_messages_are_attacked(world, monkeypatch):
    monkeypatch.setattr(HPlausibility, "check", lambda self, h: None)
    found = run("zero-h", AttackSetting(factors=4, epochs=3), world, users=5)
    assert not found.zero_refused
    assert not found.tiny_refused
    assert found.exact == 1.0
    assert "gave away" in in_words(found)[2]


def test_what_cannot_be_attacked_is_refused(world):
    with pytest.raises(ConfigError, match="gradients"):
        AttackSetting("hdp-sum")
    with pytest.raises(ConfigError, match="no noise"):
        run("zero-h", AttackSetting("mf", factors=4, epochs=3), world)
    with pytest.raises(ConfigError, match="at least one user"):
        run("reconstruct", AttackSetting(factors=4, epochs=3), world, users=0)


def test_outcomes_hold_only_totals(world):
    found = run("reconstruct", AttackSetting("mf", factors=4, epochs=3), world, users=2)
    assert all(isinstance(value, (int, float)) for value in dataclasses.asdict(found).values())
    assert not any(isinstance(value, np.ndarray) for value in dataclasses.asdict(found).values())
