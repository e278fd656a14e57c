"""The laws that likelihood ratios are made of."""

import math

import numpy as np
import pytest

from hdpmf.lab.audit.scores import log_discrete_laplace, log_share, log_wide_share


def test_discrete_laplace_sums_to_one():
    k = np.arange(-4_000, 4_001)
    assert np.exp(log_discrete_laplace(k, 50.0)).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 10, 600])
def test_a_share_has_its_part_of_the_variance(n):
    k, q = np.arange(-3_000, 3_001), math.exp(-1 / 40)
    p = np.exp(log_share(k, 40.0, n))
    assert p.sum() == pytest.approx(1.0, abs=1e-6)
    assert (p * k**2).sum() == pytest.approx(2 * q / (1 - q) ** 2 / n, rel=1e-4)


def test_two_shares_add_up_to_the_whole():
    k = np.arange(-3_000, 3_001)
    share = np.exp(log_share(k, 40.0, 2))
    whole = np.convolve(share, share, mode="same")
    assert whole[2_500:3_501] == pytest.approx(
        np.exp(log_discrete_laplace(k[2_500:3_501], 40.0)), rel=1e-6
    )


def test_one_share_of_wide_noise_is_all_of_it():
    x = np.linspace(0.1, 30, 50)
    law = log_wide_share(x, 2.0, 1)
    assert np.diff(law) == pytest.approx(-np.diff(x) / 2.0)


def test_a_wide_share_has_the_law_of_a_share_between_its_units():
    k = np.arange(50, 8_000, 50)
    law, wide = log_share(k, 1_000.0, 7), log_wide_share(k, 1_000.0, 7)
    assert np.diff(wide) == pytest.approx(np.diff(law), abs=1e-3)
