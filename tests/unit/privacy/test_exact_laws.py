"""Discrete Gaussian draws and the far tail of noise shares have exactly their laws.

Chi-square tests at level 0.001 on a fixed stream of words. The ways that are taken once in 10^11
draws are tested by making them frequent.
"""

from __future__ import annotations

import math
from decimal import Context
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.privacy.sampling import ReleasedNoise, SeededNoise, exact, noise, shares
from hdpmf.common.privacy.sampling import shares as negative_binomial
from hdpmf.common.privacy.sampling import shares as share_tail
from hdpmf.errors import PrivacyError

LEVEL = 1e-3


def seeded_words(seed):
    generator = np.random.default_rng(seed)
    return lambda n: generator.integers(0, 2**64, n, np.uint64)


@pytest.fixture
def fixed_entropy(monkeypatch):
    monkeypatch.setattr(noise, "_entropy", seeded_words(20260102))


def gaussian_p_value(draws, sigma, width):
    """Chi-square over cells of ``width`` integers, from the exact sums of exp(-k^2 / (2
    sigma^2)).
    """
    reach = math.ceil(5 * sigma / width) * width
    values = np.arange(-reach, reach)
    law = np.exp(-(values.astype(float) ** 2) / (2 * sigma**2))
    cells = law.reshape(-1, width).sum(axis=1) / law.sum()
    counts = np.bincount(np.clip((draws + reach) // width, 0, len(cells) - 1), minlength=len(cells))
    kept = cells * len(draws) >= 8
    expected = np.append(cells[kept], cells[~kept].sum()) * len(draws)
    return stats.chisquare(np.append(counts[kept], counts[~kept].sum()), expected).pvalue


@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.parametrize(("sigma", "width"), [(1, 1), (2, 1), (7, 1), (100, 9), (4321, 300)])
def test_a_discrete_gaussian_has_its_law(sigma, width):
    draws = ReleasedNoise().discrete_gaussian(np.full(60_000, float(sigma)))
    assert draws.dtype == np.int64
    assert gaussian_p_value(draws, sigma, width) > LEVEL
    assert gaussian_p_value(draws, 1.05 * sigma, width) < LEVEL  # the test can tell


@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.parametrize("make", [ReleasedNoise, lambda: SeededNoise(4)])
def test_each_draw_has_its_own_sigma_and_the_grid_is_fine(make):
    sigmas = np.repeat([0.0, 5e3, 3e6, 2.0**45], 20_000)
    draws = make().discrete_gaussian(sigmas).reshape(4, -1)
    assert not draws[0].any()
    for row, sigma in zip(draws[1:], (5e3, 3e6, 2.0**45), strict=True):
        assert stats.kstest(row / sigma, "norm").pvalue > LEVEL
        assert abs((row % 2).mean() - 0.5) < 5 * 0.5 / math.sqrt(20_000)


def test_sigmas_are_rounded_up_or_refused():
    assert noise.whole_sigmas(np.array([0.0, 0.1, 1.0, 1.5])).tolist() == [0, 1, 1, 2]
    for bad in (-1.0, np.nan, np.inf, 2.0**51):
        with pytest.raises(PrivacyError):
            ReleasedNoise().discrete_gaussian(np.array([bad]))
    assert ReleasedNoise().discrete_gaussian(np.zeros((3, 2))).shape == (3, 2)
    assert ReleasedNoise().discrete_gaussian(np.zeros((0, 2))).shape == (0, 2)


def test_further_bits_give_the_same_law(monkeypatch):
    """Every acceptance is decided by digits, every k by further bits of a number of which none
    is known.
    """
    monkeypatch.setattr(exact, "BAND", 1.0)
    words = seeded_words(1)
    monkeypatch.setattr(
        exact,
        "_steps",
        lambda words, n: np.array([exact._locate(words, 0, 0) for _ in range(n)]),
    )
    draws = exact.discrete_gaussian(words, np.full(4_000, 3))
    assert gaussian_p_value(draws, 3, 1) > LEVEL


@pytest.mark.parametrize(("bits", "further"), [(0, 0), (2**64 - 1, 1)])
def test_a_word_that_equals_an_entry_is_told_apart_by_further_bits(bits, further):
    """The entry is the limit rounded down: what begins with it is below the limit, or above."""
    table = exact._table()
    drawn = np.concatenate([table, table[:-1] + np.uint64(1), np.zeros(1, np.uint64)])
    words = iter([drawn])
    found = exact._steps(lambda n: next(words, np.full(n, bits, np.uint64)), len(drawn))
    entries, next_to = np.arange(len(table)) + further, np.arange(1, len(table))
    # The one above the last entry has a k that no table has.
    assert found[: len(table) - 1].tolist() == entries[:-1].tolist()
    assert found[len(table) :].tolist() == [*next_to.tolist(), 0]
    assert found[len(table) - 1] >= len(table) - 1


def test_a_decision_close_to_its_probability_asks_for_digits():
    asked = []

    def digits(place, context):
        asked.append(place)
        return context.divide(context.create_decimal(1), context.create_decimal(3))

    stream = iter([[2**64 // 3, 2**64 // 3 + 2**40, 0], [2**63], []])
    found = exact.bernoulli(
        lambda n: np.array(next(stream)[:n], np.uint64), np.full(3, 1 / 3), digits
    )
    # 1/3 is 0.0101... in bits: after the first 64 of them the next begin with 01, and those drawn
    # begin with 1.
    assert asked == [0]
    assert found.tolist() == [False, False, True]


@pytest.mark.parametrize("shape", [Fraction(1, 943), Fraction(1, 2), Fraction(5, 6)])
def test_gammas_in_digits_and_in_doubles_agree(shape):
    for k in (16, 100, 10**5, 3 * 10**8):
        in_digits = share_tail._log_gammas(k, shape, Context(prec=40))
        in_more = share_tail._log_gammas(k, shape, Context(prec=80))
        assert abs(in_digits - in_more) < Context(prec=40).create_decimal("1e-35")
        assert share_tail.log_gammas(np.array([k]), float(shape))[0] == pytest.approx(
            float(in_digits), abs=1e-13
        )
    small = math.lgamma(20 + float(shape)) - math.lgamma(21)
    assert share_tail.log_gammas(np.array([20]), float(shape))[0] == pytest.approx(small, abs=1e-12)


def tail_p_value(draws, shape, scale, start):
    stop = -math.expm1(-1 / float(scale))
    edges = np.unique(np.geomspace(start, 12 * float(scale), 40).astype(int))
    cumulated = stats.nbinom.sf(edges - 1, float(shape), stop) / stats.nbinom.sf(
        start - 1, float(shape), stop
    )
    expected = np.append(-np.diff(cumulated), cumulated[-1]) * len(draws)
    counts = np.histogram(draws, [*edges, np.inf])[0]
    kept = expected >= 8
    return stats.chisquare(
        np.append(counts[kept], counts[~kept].sum()),
        np.append(expected[kept], expected[~kept].sum()),
    ).pvalue


@pytest.mark.parametrize("shape", [Fraction(1, 943), Fraction(1, 3), Fraction(9, 10)])
@pytest.mark.parametrize(("scale", "start"), [(Fraction(300), 16), (Fraction(10**6), 2**14)])
def test_the_tail_has_its_law(shape, scale, start):
    draws = share_tail.tails(seeded_words(7), scale, shape, start, 30_000)
    assert draws.min() >= start
    assert tail_p_value(draws, shape, scale, start) > LEVEL
    assert tail_p_value(draws, shape, scale * Fraction(11, 10), start) < LEVEL


@pytest.mark.slow
def test_the_tail_by_digits_has_the_same_law(monkeypatch):
    monkeypatch.setattr(exact, "BAND", 1.0)
    draws = share_tail.tails(seeded_words(8), Fraction(300), Fraction(1, 3), 16, 3_000)
    assert tail_p_value(draws, Fraction(1, 3), Fraction(300), 16) > LEVEL


def test_shares_of_a_large_scale_add_up(monkeypatch):
    """Table and tail together: 5 shares of scale 500 with a table of 32 entries make discrete
    Laplace noise.
    """
    monkeypatch.setattr(negative_binomial, "MAX_LENGTH", 32)
    negative_binomial.share_table.cache_clear()
    words = seeded_words(9)
    drawn = (
        shares.negative_binomial(words, Fraction(500), Fraction(1, 5), 200_000)
        .reshape(5, -1)
        .sum(axis=0)
    )
    negative_binomial.share_table.cache_clear()
    q = math.exp(-1 / 500)
    edges = np.append(np.arange(0, 3_000, 100), np.inf)
    expected = -np.diff(np.append(q ** edges[:-1], 0)) * len(drawn)
    assert stats.chisquare(np.histogram(drawn, edges)[0], expected).pvalue > LEVEL
