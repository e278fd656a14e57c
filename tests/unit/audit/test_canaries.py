"""The statistics of one run with many canaries, on mechanisms whose epsilon is known."""

import math

import numpy as np
import pytest

from hdpmf.errors import ConfigError
from hdpmf.lab.audit.canaries import PARTS, one_run_bound, one_run_ceiling


def _coins(n, seed):
    return np.random.default_rng(seed).random(n) < 0.5


def test_an_attacker_who_knows_nothing_proves_nothing():
    rng = np.random.default_rng(1)
    bounds = [
        one_run_bound(rng.normal(size=1_000), _coins(1_000, seed)).epsilon for seed in range(200)
    ]
    assert sum(bound > 0 for bound in bounds) <= 20  # 5 %; more than 20 of 200: below 0.3 %


def test_an_attacker_who_knows_all_reaches_the_ceiling():
    truth = _coins(2_000, 1)
    bound = one_run_bound(np.where(truth, 1.0, -1.0), truth)
    assert bound.epsilon == one_run_ceiling(2_000)
    assert (bound.right, bound.guesses) == (2_000, 2_000)
    assert bound.epsilon == pytest.approx(math.log(1 / (1 - 0.01 ** (1 / 2_000)) - 1))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_a_bound_is_above_the_truth_as_seldom_as_it_says(epsilon):
    """Randomised response of exactly this epsilon, 500 audits: with 5 % at most 42 are above
    (more: below 0.1 %).
    """
    rng, bounds = np.random.default_rng(2), []
    for seed in range(500):
        truth = _coins(1_000, seed)
        said = truth ^ (rng.random(1_000) < 1 / (1 + math.exp(epsilon)))
        # Equal scores leave it to the items' order who is guessed: the worst case for choosing
        # among the five.
        bounds.append(one_run_bound(np.where(said, 1.0, -1.0), truth).epsilon)
    assert sum(bound > epsilon for bound in bounds) <= 42
    assert np.mean(bounds) > epsilon - 0.3


def test_the_surest_guesses_are_used():
    """Every sixteenth canary is in the open, and the rest says nothing."""
    truth, rng = _coins(1_600, 3), np.random.default_rng(3)
    scores = np.where(
        np.arange(1_600) % 16 == 0, np.where(truth, 9.0, -9.0), rng.normal(size=1_600)
    )
    bound = one_run_bound(scores, truth)
    assert (bound.right, bound.guesses) == (100, 100)
    assert bound.epsilon > 2.5


def test_too_few_canaries_and_scores_that_are_no_numbers_are_refused():
    with pytest.raises(ConfigError, match="canaries"):
        one_run_bound(np.zeros(PARTS[-1] - 1), np.zeros(PARTS[-1] - 1, bool))
    with pytest.raises(ConfigError, match="score"):
        one_run_bound(np.full(100, np.nan), np.zeros(100, bool))
