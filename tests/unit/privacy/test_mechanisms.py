"""The mechanisms, and Theorem 3: shares that nobody holds alone add up to Laplace noise.

Seeds are fixed; levels are 1e-4.
"""

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.privacy import (
    NoPrivacy,
    Sample,
    SeededNoise,
    Stretch,
    Uniform,
    Weight,
    laplace_scale,
    noise_share,
)
from hdpmf.common.privacy.mechanisms import Budgets
from hdpmf.common.privacy.sampling import seed_of
from hdpmf.errors import ConfigError, PrivacyError

VALUES = np.array([1.0, 3.0, 5.0, 4.0], np.float32)
WEIGHTS = np.array([0.1, 0.5, 1.0, 0.4])
ALWAYS = np.zeros(4)


def test_budgets_add_up_over_shards():
    whole = Budgets.of(WEIGHTS, 2.0)
    assert whole == Budgets(4, 4.0, 0.2, 2.0)
    assert Budgets.of(WEIGHTS[:1], 2.0) + Budgets.of(WEIGHTS[1:], 2.0) == whole
    assert Budgets.of(WEIGHTS[:0], 2.0) + whole == whole


def test_noise_budgets():
    budgets = Budgets.of(WEIGHTS, 2.0)
    assert NoPrivacy().noise_budget(2.0, None) is None
    assert Uniform().noise_budget(2.0, budgets) == pytest.approx(0.2)
    assert Sample().noise_budget(2.0, budgets) == pytest.approx(1.0)
    assert Sample("min").noise_budget(2.0, budgets) == pytest.approx(0.2)
    assert Sample("max").noise_budget(2.0, budgets) == pytest.approx(2.0)
    assert Sample(0.7).noise_budget(2.0, None) == 0.7
    assert Stretch().noise_budget(2.0, None) == Weight().noise_budget(2.0, None) == 2.0
    for mechanism in (Uniform(), Sample()):
        assert mechanism.needs_budgets
        with pytest.raises(PrivacyError, match="none were reported"):
            mechanism.noise_budget(1.0, None)


@pytest.mark.parametrize("bad", ["median", 0.0, -1.0, float("nan")])
def test_bad_thresholds_are_refused(bad):
    with pytest.raises(PrivacyError, match="threshold"):
        Sample(bad)


def test_how_ratings_enter():
    for mechanism in (NoPrivacy(), Uniform()):
        entered = mechanism.enter(VALUES, WEIGHTS, 1.0, 0.1, ALWAYS)
        assert entered.kept is None
        assert entered.coefficient is None
        assert entered.target.tolist() == VALUES.tolist()
    assert Stretch().enter(VALUES, WEIGHTS, 1.0, 1.0, ALWAYS).target == pytest.approx(
        VALUES * WEIGHTS
    )
    weighted = Weight().enter(VALUES, WEIGHTS, 1.0, 1.0, ALWAYS)
    assert weighted.target.tolist() == VALUES.tolist()
    assert weighted.coefficient.tolist() == WEIGHTS.tolist()


def test_sampling_probabilities():
    # 200,000 draws for each rating: the observed rate is within 5 standard deviations of the
    # formula.
    rng = np.random.default_rng(0)
    n, threshold, epsilon = 200_000, 0.6, 1.0
    weights = np.repeat(WEIGHTS, n)
    kept = (
        Sample(threshold)
        .enter(np.ones(len(weights)), weights, epsilon, threshold, rng.random(len(weights)))
        .kept
    )
    rates = np.bincount(kept // n, minlength=4) / n
    expected = np.where(
        threshold <= WEIGHTS, 1.0, np.expm1(WEIGHTS * epsilon) / np.expm1(threshold)
    )
    assert np.abs(rates - expected).max() < 5 * 0.5 / np.sqrt(n)
    assert rates[2] == 1.0


def test_sampling_keeps_everything_at_huge_budgets():
    # e^1000 overflows; the probability does not.
    probability = Sample(1000.0).keep_probability(np.array([1000.0, 999.0, 2000.0]), 1000.0)
    assert probability == pytest.approx([1.0, np.exp(-1), 1.0])


def test_predictions_come_back_to_scale():
    scores = np.array([0.4, 2.0])
    weights = np.array([0.1, 0.5])
    assert Stretch().bring_back(scores, weights) == pytest.approx([4.0, 4.0])
    assert Stretch(rescale=False).bring_back(scores, weights).tolist() == scores.tolist()
    assert Weight().bring_back(scores, weights).tolist() == scores.tolist()


@pytest.mark.parametrize(
    ("n_factors", "width", "epsilon"), [(10, 4.0, 1.0), (5, 4.0, 0.3), (16, 99.0, 8.0)]
)
@pytest.mark.parametrize("n_raters", [1, 2, 37])
def test_the_shares_of_all_raters_are_laplace(n_factors, width, epsilon, n_raters):
    n_items = 2000
    recommender, users = SeededNoise(1, 1), SeededNoise(1, 2)
    scale = laplace_scale(n_factors, width, epsilon)
    assert scale == pytest.approx(2 * np.sqrt(n_factors) * width / epsilon)
    h = recommender.exponentials((n_items, n_factors))
    total = np.zeros((n_items, n_factors))
    for _ in range(n_raters):
        total += noise_share(h, users.normals((n_items, n_factors)) / np.sqrt(n_raters), scale)
    for coordinate in range(n_factors):
        assert stats.kstest(total[:, coordinate], "laplace", (0, scale)).pvalue > 1e-4
    assert stats.kstest(total.ravel(), "laplace", (0, scale)).pvalue > 1e-4


def test_the_test_can_tell_laplace_from_normal_and_from_a_wrong_scale():
    noise = SeededNoise(1)
    normal = noise.normals((20_000,)) * np.sqrt(2)
    assert stats.kstest(normal, "laplace").pvalue < 1e-6
    laplace = noise_share(noise.exponentials((20_000,)), noise.normals((20_000,)), 1.2)
    assert stats.kstest(laplace, "laplace").pvalue < 1e-6


def test_streams_of_a_seed_are_unrelated():
    a, b = SeededNoise(3, 1).normals((5000,)), SeededNoise(3, 2).normals((5000,))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.06
    assert np.array_equal(a, SeededNoise(3, 1).normals((5000,)))


@pytest.mark.parametrize("budget", [0.0, -1.0, np.nan, np.inf])
def test_a_budget_that_is_not_positive_is_refused(budget):
    with pytest.raises(PrivacyError, match="positive"):
        laplace_scale(10, 4.0, budget)


def test_seeds():
    assert seed_of(7) == 7
    assert seed_of(np.random.default_rng(0)) == seed_of(np.random.default_rng(0))
    assert seed_of(None) != seed_of(None)
    for bad in (-1, 1.5, "1", True, 2**63):
        with pytest.raises(ConfigError, match="rng"):
            seed_of(bad)
