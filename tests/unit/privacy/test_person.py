"""The numbers of a whole person: exact where the noise is Gaussian, safe where it is discrete."""

import math
from itertools import product
from statistics import NormalDist

import pytest

from hdpmf.common.privacy.accounting.accountants import normal_delta
from hdpmf.common.privacy.accounting.person import Spent, gaussian, pure, rho_of, sentence, slack
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


@pytest.mark.parametrize("sigma", [1, 2, 3.5, 10, 30])
def test_slack_bounds_the_total_variation(sigma):
    numbers = range(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1)
    whole = math.fsum(math.exp(-(k**2) / (2 * sigma**2)) for k in numbers)
    normal = NormalDist(0, sigma)
    apart = math.fsum(
        abs(math.exp(-(k**2) / (2 * sigma**2)) / whole - normal.cdf(k + 0.5) + normal.cdf(k - 0.5))
        for k in numbers
    )
    assert apart / 2 <= slack([(sigma, 1)]) <= 1.7 * apart / 2
    assert slack([(sigma, 3), (2 * sigma, 4)]) > 3 * slack([(sigma, 1)])


@pytest.mark.parametrize(("sigma", "shift"), [(1, 1), (4, 3), (60, 50), (3000, 4000)])
def test_discrete_noise_is_never_flattered(sigma, shift):
    """Against the exact law of one number: epsilon, a guess, and who could be 99 % sure."""
    found = gaussian(shift**2 / (2 * sigma**2), [(sigma, 1)])
    ends = math.ceil(12 * sigma)
    whole = math.fsum(math.exp(-(k**2) / (2 * sigma**2)) for k in range(-ends, ends + 1))
    pairs = [
        (math.exp(-(k**2) / (2 * sigma**2)) / whole,
         math.exp(-((k - shift) ** 2) / (2 * sigma**2)) / whole)
        for k in range(-ends, ends + shift + 1)
    ]  # fmt: skip
    for delta in (1e-2, 1e-5):
        bound = math.exp(found.epsilon(delta))
        assert math.fsum(max(0.0, p - bound * q) for p, q in pairs) <= delta
    assert (1 + math.fsum(abs(p - q) for p, q in pairs) / 2) / 2 <= found.right
    assert math.fsum(p for p, q in pairs if p >= 99 * q or q >= 99 * p) <= found.sure
    assert found.epsilon() >= Spent(found.rho).epsilon()


def test_small_noise_takes_the_other_conversion():
    few = gaussian(rho_of(8), [(10, 45_150)])
    assert few.epsilon() == pytest.approx(8.6, abs=0.01)
    assert rho_of(8, slack=few.slack) < rho_of(8)
    many = gaussian(rho_of(8), [(2**24 / (2 * math.sqrt(rho_of(8))), 45_150)])
    assert 8 < many.epsilon() < 8.003


@pytest.mark.parametrize("epsilon", [0.1, 1, 4, 20])
def test_pure_epsilon_counts_as_the_normal_laws_that_meet_it(epsilon):
    counted = pure(epsilon)
    assert counted.right == pytest.approx(1 / (1 + math.exp(-epsilon)), rel=1e-7)
    for asked in (0, epsilon / 2, epsilon):  # a randomized bit has this delta
        p = 1 / (1 + math.exp(-epsilon))
        assert p - math.exp(asked) * (1 - p) <= normal_delta(counted.mu, asked) * (1 + 1e-6) + 1e-12
    assert pure(800).rho == math.inf
    assert pure(0).rho == 0


def test_what_cannot_be_is_refused():
    for wrong, delta in product((0, -1, math.inf, math.nan), (1e-5,)):
        with pytest.raises(PrivacyError):
            rho_of(wrong, delta)
    for delta in (0, 1):
        with pytest.raises(PrivacyError):
            Spent(1).epsilon(delta)
    for wrong in (lambda: Spent(-1), lambda: pure(-1), lambda: slack([(0.5, 1)])):
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
