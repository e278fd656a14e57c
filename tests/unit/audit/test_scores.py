"""Scores and bounds: laws of likelihood ratios, and bounds that never exceed what runs prove."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from hdpmf.errors import ConfigError
from hdpmf.lab.audit.scores import (
    Scores,
    ceiling,
    clopper_pearson,
    log_discrete_laplace,
    lower_bound,
)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (37, 500)])
def test_clopper_pearson_is_the_textbook_interval(k, n):
    lower, upper = clopper_pearson(np.array([k]), n, 0.025)
    interval = binomtest(k, n).proportion_ci(0.95, method="exact")
    assert lower[0] == pytest.approx(interval.low, abs=1e-12)
    assert upper[0] == pytest.approx(interval.high, abs=1e-12)


def test_an_attacker_who_is_never_wrong_proves_the_ceiling():
    perfect = Scores(np.zeros(500), np.ones(500))
    bound = lower_bound(perfect, perfect)
    assert bound.epsilon == pytest.approx(ceiling(500))
    missed = 1 - 0.025 ** (1 / 500)
    assert ceiling(500) == pytest.approx(math.log((1 - missed) / missed))
    assert (bound.power, bound.false_alarms) == (1.0, 0.0)


def test_scores_that_tell_nothing_prove_nothing():
    same = Scores(np.zeros(500), np.zeros(500))
    assert lower_bound(same, same).epsilon == 0.0


def test_the_mirrored_side_counts_as_much():
    generator = np.random.default_rng(0)
    # Only the low world has outcomes that the other never has.
    low = np.where(generator.random(2_000) < 0.3, -5.0, 0.0)
    pilot, measured = Scores(low[:1_000], np.zeros(1_000)), Scores(low[1_000:], np.zeros(1_000))
    bound = lower_bound(pilot, measured)
    assert bound.epsilon > 4.0


def test_a_bound_on_a_mechanism_of_known_epsilon_is_seldom_too_high():
    """Randomised response with epsilon 1: the bound may exceed 1 in 5% of audits; 400 audits, at
    most 20 + 4 sd.
    """
    generator = np.random.default_rng(1)
    p = math.e / (1 + math.e)
    too_high = 0
    for _ in range(400):
        low, high = (np.where(generator.random(400) < q, 1.0, -1.0) for q in (1 - p, p))
        too_high += (
            lower_bound(Scores(low[:200], high[:200]), Scores(low[200:], high[200:])).epsilon > 1.0
        )
    assert too_high <= 20 + 4 * math.sqrt(400 * 0.05 * 0.95)


@pytest.mark.parametrize("bad", [np.array([]), np.array([math.nan]), np.zeros((2, 2))])
def test_scores_must_be_numbers(bad):
    with pytest.raises(ConfigError, match="one score"):
        Scores(bad, np.zeros(3))


def test_discrete_laplace_sums_to_one():
    k = np.arange(-4_000, 4_001)
    assert np.exp(log_discrete_laplace(k, 50.0)).sum() == pytest.approx(1.0, abs=1e-12)
