"""The numbers of a whole person: exact where the noise is Gaussian, safe where it is discrete."""

import math
from itertools import product

import numpy as np
import pytest

from hdpmf.common.privacy.accounting.accountants import normal_delta
from hdpmf.common.privacy.accounting.person import (
    LIFE_EPSILON,
    Spent,
    gaussian,
    proposed_epsilon,
    pure,
    rho_of,
    sentence,
)
from hdpmf.errors import PrivacyError


@pytest.mark.parametrize(
    ("epsilon", "rho", "other", "right", "right_other", "sure", "sure_other"),
    [
        (1, 0.0359, 1.465, 0.5533, 0.5752, 0.0, 0.0),
        (2, 0.1258, 2.954, 0.5990, 0.6386, 0.0, 0.0),
        (4, 0.4278, 5.992, 0.6781, 0.7435, 0.0, 0.0021),
        (8, 1.3878, 12.256, 0.7976, 0.8806, 0.0273, 0.2209),
    ],
)
def test_of_gaussian_noise(epsilon, rho, other, right, right_other, sure, sure_other):
    none = Spent(rho_of(epsilon))
    exchange = none.times(2)
    assert none.rho == pytest.approx(rho, abs=1e-4)
    assert epsilon * (1 - 1e-7) <= none.epsilon() <= epsilon
    assert normal_delta(none.mu, epsilon) == pytest.approx(1e-5, rel=1e-6)
    assert exchange.epsilon() == pytest.approx(other, abs=1e-3)
    assert (none.right, exchange.right) == pytest.approx((right, right_other), abs=1e-4)
    assert (none.sure, exchange.sure) == pytest.approx((sure, sure_other), abs=1e-4)


def test_squares_add_up_over_runs():
    life = Spent(rho_of(8))
    assert life.times(1 / 5).epsilon() == pytest.approx(3.12, abs=5e-3)
    assert sum([life] * 5, Spent()).epsilon() == pytest.approx(22.2, abs=5e-2)


def normal_and_discrete(sigma):
    """The laws of rounded Gaussian and of discrete Gaussian noise, up to 12 deviations out."""
    numbers = np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1)
    discrete = np.exp(-(numbers**2) / (2 * sigma**2))
    step = 2e-3
    inside = np.exp(-((numbers[:, None] + np.arange(-0.5 + step / 2, 0.5, step)) ** 2)
                    / (2 * sigma**2))  # fmt: skip
    rounded = inside.mean(axis=1) / (sigma * math.sqrt(2 * math.pi))
    return numbers, rounded, discrete / discrete.sum()


@pytest.mark.parametrize("sigma", [2, 3.5, 10, 30])
def test_the_two_laws_are_as_near_as_the_proof_says(sigma):
    numbers, rounded, discrete = normal_and_discrete(sigma)
    apart, squares = np.log(rounded / discrete), (numbers / sigma) ** 2
    middle = (squares - 1) / (24 * sigma**2)
    care = 1e-6 / sigma**2  # of the integral by midpoints
    assert (apart <= middle + 1 / (640 * sigma**4) + care).all()
    assert (apart >= middle - squares**2 / (960 * sigma**4) - care).all()


@pytest.mark.parametrize(("sigma", "shift"), [(2, 1), (4, 3), (60, 50), (3000, 4000)])
def test_discrete_noise_is_never_flattered(sigma, shift):
    """Against the exact law of one number: epsilon, a guess, and who could be 99 % sure."""
    found = gaussian(shift**2 / (2 * sigma**2), [(sigma, 1)])
    ends = math.ceil(12 * sigma)
    numbers = np.arange(-ends, ends + shift + 1)
    whole = np.exp(-(np.arange(-ends, ends + 1) ** 2) / (2 * sigma**2)).sum()
    p = np.exp(-(numbers**2) / (2 * sigma**2)) / whole
    q = np.exp(-((numbers - shift) ** 2) / (2 * sigma**2)) / whole
    for delta in (1e-2, 1e-5):
        assert np.maximum(0, p - math.exp(found.epsilon(delta)) * q).sum() <= delta
    assert (1 + np.abs(p - q).sum() / 2) / 2 <= found.right
    assert p[(p >= 99 * q) | (q >= 99 * p)].sum() <= found.sure
    assert found.epsilon() >= Spent(found.rho).epsilon()


def test_many_small_numbers_cost_next_to_nothing_more():
    rho = rho_of(8)
    values = gaussian(rho, [(1000, 3707)])  # as a row of values on ML-1M has it
    assert 8.0001 < values.epsilon() < 8.001
    assert values.sure < Spent(rho).sure + 2e-3
    kept = Spent(rho_of(8, grain=values.grain), values.grain)
    assert rho * 0.9997 < kept.rho < rho
    assert 7.9999 < kept.epsilon() <= 8


def test_coarse_noise_takes_the_other_conversion():
    coarse = gaussian(rho_of(8), [(10, 45_150)])
    assert coarse.epsilon() == pytest.approx(8.6, abs=0.01)
    assert rho_of(8, grain=coarse.grain) < 0.95 * rho_of(8)
    assert coarse.right > Spent(coarse.rho).right
    assert coarse.sure > Spent(coarse.rho).sure


@pytest.mark.parametrize("epsilon", [0.1, 1, 4, 20])
def test_pure_epsilon_counts_as_the_normal_laws_that_meet_it(epsilon):
    counted = pure(epsilon)
    assert counted.right == pytest.approx(1 / (1 + math.exp(-epsilon)), rel=1e-7)
    for asked in (0, epsilon / 2, epsilon):  # a randomized bit has this delta
        p = 1 / (1 + math.exp(-epsilon))
        assert p - math.exp(asked) * (1 - p) <= normal_delta(counted.mu, asked) * (1 + 1e-6) + 1e-12
    assert pure(800).rho == math.inf
    assert pure(0).rho == 0


def test_a_run_asks_for_little_where_many_take_part():
    life = rho_of(LIFE_EPSILON)
    asked = [proposed_epsilon(people) for people in (1, 1_000, 50_000, 10**5, 10**6, 10**7)]
    assert asked == sorted(asked, reverse=True)
    assert asked[0] == asked[1] == 1.8
    for people, epsilon in zip((10**5, 10**6), asked[3:], strict=False):
        assert 18_000 <= people * math.sqrt(rho_of(epsilon)) <= 20_000
    assert all(rho_of(epsilon) <= life / 4 for epsilon in asked)


def test_what_cannot_be_is_refused():
    for wrong, delta in product((0, -1, math.inf, math.nan), (1e-5,)):
        with pytest.raises(PrivacyError):
            rho_of(wrong, delta)
    for delta in (0, 1):
        with pytest.raises(PrivacyError):
            Spent(1).epsilon(delta)
    for wrong in (lambda: Spent(-1), lambda: pure(-1), lambda: gaussian(1, [(1, 1)])):
        with pytest.raises(PrivacyError):
            wrong()
    assert Spent().epsilon() == 0
    assert Spent(math.inf).epsilon() == math.inf


def test_the_sentence_rounds_up():
    none = Spent(rho_of(8))
    said = sentence(none, none.times(2))
    assert "at most 80 %" in said
    assert "at most 89 %" in said
    assert "2.8 % and 22.1 %" in said
