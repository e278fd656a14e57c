"""Theorem 3: shares that nobody holds alone add up to Laplace noise. Seeds are fixed; levels are
1e-4.
"""

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.privacy import SeededNoise, laplace_scale, noise_share
from hdpmf.common.privacy.sampling import seed_of
from hdpmf.errors import ConfigError, PrivacyError


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
