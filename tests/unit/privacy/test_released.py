"""Released noise: exact laws, operating-system entropy, and no way to pass a seeded generator for
it.

Distribution tests feed the exact samplers a fixed stream of words, so that they are repeatable;
they are chi-square tests at level 0.001 (a wrong law of any size worth noticing fails them by far
at these sample sizes).
"""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.privacy.sampling import (
    KeyedNoise,
    ReleasedNoise,
    SeededNoise,
    bit_thresholds,
    exact,
    grid_scale,
    require_released,
    shares,
)
from hdpmf.common.privacy.sampling import noise as released
from hdpmf.common.privacy.sampling import shares as negative_binomial
from hdpmf.common.privacy.sampling.shares import share_table
from hdpmf.errors import PrivacyError

LEVEL = 1e-3


def seeded_words(seed):
    generator = np.random.default_rng(seed)
    return lambda n: generator.integers(0, 2**64, n, np.uint64)


@pytest.fixture
def fixed_entropy(monkeypatch):
    monkeypatch.setattr(released, "_entropy", seeded_words(20260101))


def discrete_laplace_law(scale):
    q = math.exp(-1 / float(scale))
    return lambda k: (1 - q) / (1 + q) * q ** np.abs(k)


def nb_law(shape, scale):
    return lambda k: stats.nbinom.pmf(k, float(shape), -math.expm1(-1 / float(scale)))


def difference_law(shape, scale, reach):
    """Of two independent negative binomials, by convolution."""
    one = nb_law(shape, scale)(np.arange(reach))
    both = np.convolve(one, one[::-1])
    return lambda k: both[np.asarray(k) + reach - 1]


def p_value(draws, law, low, high):
    """Chi-square of the draws in [low, high] and of those outside, cells with small expectation
    joined.
    """
    values = np.arange(low, high + 1)
    expected = law(values) * len(draws)
    observed = np.array([(draws == value).sum() for value in values])
    kept = expected >= 8
    expected = np.append(expected[kept], len(draws) - expected[kept].sum())
    observed = np.append(observed[kept], len(draws) - observed[kept].sum())
    if expected[-1] < 8:
        expected[-2:-1] += expected[-1]
        observed[-2:-1] += observed[-1]
        expected, observed = expected[:-1], observed[:-1]
    return stats.chisquare(observed, expected * (observed.sum() / expected.sum())).pvalue


def noises():
    return [
        pytest.param(ReleasedNoise, id="released"),
        pytest.param(lambda: SeededNoise(5), id="simulated"),
    ]


@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.parametrize("make", noises())
@pytest.mark.parametrize("scale", [Fraction(1, 3), 1, 2.5, Fraction(64, 3)])
def test_discrete_laplace_has_its_law(make, scale):
    draws = make().discrete_laplace(scale, 60_000)
    reach = int(6 * scale) + 3
    assert draws.dtype == np.int64
    assert p_value(draws, discrete_laplace_law(scale), -reach, reach) > LEVEL


def test_opendp_draws_from_the_same_law():
    """Two samples, both with real entropy: level 1e-6, so that this fails by chance once in a
    million times.
    """
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    theirs = dp.m.make_laplace(
        dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), scale=6.5
    )
    n, edges = 40_000, [-np.inf, *np.arange(-25.5, 26), np.inf]
    samples = (
        np.array(theirs([0] * n)),
        ReleasedNoise().laplace_share(Fraction(13, 2), 5, (5, n)).sum(axis=0),
    )
    table = np.array([np.histogram(sample, edges)[0] for sample in samples])
    assert stats.chi2_contingency(table).pvalue > 1e-6


@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.parametrize("make", noises())
@pytest.mark.parametrize(
    ("scale", "n_shares", "count"), [(3, 2, 1), (Fraction(7, 2), 25, 1), (3, 5, 3), (2, 4, 7)]
)
def test_a_share_is_a_difference_of_negative_binomials(make, scale, n_shares, count):
    draws = make().laplace_share(scale, n_shares, 60_000, count=count)
    reach = int(8 * scale) + 4
    law = difference_law(Fraction(count, n_shares), scale, 60 * math.ceil(scale))
    assert p_value(draws, law, -reach, reach) > LEVEL


@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.parametrize("make", noises())
@pytest.mark.parametrize("n_shares", [2, 7, 40])
def test_shares_add_up_to_discrete_laplace(make, n_shares):
    sums = make().laplace_share(4, n_shares, (n_shares, 40_000)).sum(axis=0)
    assert p_value(sums, discrete_laplace_law(4), -24, 24) > LEVEL


@pytest.mark.usefixtures("fixed_entropy")
def test_shares_beyond_the_planned_number_only_add_noise_and_missing_ones_take_it_away():
    # Planned for n' = 8 of 10 users: with all ten the noise is that of NB(10/8), with six it is
    # NB(6/8).
    shares = ReleasedNoise().laplace_share(4, 8, (10, 40_000))
    for taking_part in (6, 8, 10):
        law = difference_law(Fraction(taking_part, 8), 4, 240)
        assert p_value(shares[:taking_part].sum(axis=0), law, -24, 24) > LEVEL
    assert (
        p_value(shares.sum(axis=0), discrete_laplace_law(4), -24, 24) < LEVEL
    )  # the test can tell them apart
    # Further shares are independent of the first eight: noise of the promised law plus something.
    assert abs(np.corrcoef(shares[:8].sum(axis=0), shares[8:].sum(axis=0))[0, 1]) < 0.02
    assert shares.sum(axis=0).var() > shares[:8].sum(axis=0).var()


@pytest.mark.parametrize("shape", [Fraction(1, 2), Fraction(1, 30), Fraction(5, 6)])
def test_the_way_by_further_bits_and_by_the_tail_have_the_same_law(monkeypatch, shape):
    # A table of four values, compared with four bits: nearly every draw needs more bits or the
    # tail.
    scale, words = Fraction(5), seeded_words(3)
    monkeypatch.setattr(negative_binomial, "MAX_LENGTH", 4)
    share_table.cache_clear()
    coarse = share_table(scale, shape, 4)
    draws, refined, beyond = [], 0, 0
    for first in seeded_words(4)(4000) >> np.uint64(60):
        value = coarse.find(int(first))
        if value is None:
            refined += 1
            value = shares.refine(words, scale, shape, int(first), 4)
        if value == coarse.length:
            beyond += 1
            value = shares._tail(words, scale, shape, coarse.length)
        draws.append(value)
    share_table.cache_clear()
    assert refined > 200
    assert beyond > 10
    assert p_value(np.array(draws), nb_law(shape, scale), 0, 40) > LEVEL


@pytest.mark.parametrize("further", [0, 1, 5])
def test_what_a_finer_table_finds_beyond_the_first_one_is_drawn_as_all_that_is_beyond(
    monkeypatch, further
):
    # Kept as they came, values from the table's length on would have a law of their own.
    scale, shape = Fraction(1, 9), Fraction(2, 3)
    table = share_table(scale, shape, 64)
    assert share_table(scale, shape, 128).length > table.length  # it does find such values
    monkeypatch.setattr(shares, "refine", lambda *given: table.length + further)
    monkeypatch.setattr(shares, "_tail", lambda words, scale, shape, start: 1000 + start)
    words = iter([int(table.low[-1])])  # in the last enclosure
    drawn = shares.negative_binomial(
        lambda n: np.array([next(words) for _ in range(n)], np.uint64), scale, shape, 1
    )
    assert drawn.tolist() == [1000 + table.length]


@pytest.mark.parametrize(
    ("scale", "shape"), [(Fraction(653), Fraction(1, 943)), (Fraction(1, 9), Fraction(2, 3))]
)
def test_the_table_encloses_the_law(scale, shape):
    table = share_table(scale, shape, 64)
    assert (table.low <= table.high).all()
    assert (table.high - table.low <= 1).all()
    stop = -math.expm1(-1 / float(scale))
    expected = stats.nbinom.cdf(np.arange(table.length), float(shape), stop)
    np.testing.assert_allclose(table.low.astype(float) / 2**64, expected, rtol=1e-11)


@pytest.mark.parametrize("x", [Fraction(1, 3), Fraction(1), Fraction(29, 4), Fraction(1, 10**9)])
def test_the_exponential_is_enclosed(x):
    low, high = negative_binomial._exp_minus(x, 200)
    assert 0 < high - low < 2**8
    assert float(Fraction(low, 2**200)) == pytest.approx(math.exp(-x), rel=1e-14)


def test_powers_and_roots_are_enclosed():
    one = 1 << 100
    low, high = negative_binomial._root(one // 5, 12, 100)
    assert low**12 <= (one // 5) * one**11 <= high**12
    assert high - low < 1000
    low, high = negative_binomial._power(one // 3, 7, 100)
    assert low * one**6 <= (one // 3) ** 7 <= high * one**6


def test_uniform_integers_are_uniform_also_for_awkward_bounds():
    bounds = np.full(30_000, 2**63 + 2**62 - 1, np.uint64)
    drawn = exact.below(seeded_words(1), bounds)
    assert (drawn < bounds).all()
    thirds = np.bincount((drawn // np.uint64(2**62)).astype(int), minlength=3)
    assert stats.chisquare(thirds).pvalue > LEVEL


@pytest.mark.parametrize("numerator", [0, 1, 5, 7])
def test_bernoulli_exp_has_its_probability(numerator):
    drawn = exact.bernoulli_exp(seeded_words(numerator), np.full(40_000, numerator, np.uint64), 7)
    assert stats.binomtest(int(drawn.sum()), 40_000, math.exp(-numerator / 7)).pvalue > LEVEL


@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.parametrize("make", noises())
def test_bits_have_their_probabilities(make):
    p = np.repeat([0.0, 1.0, 0.5, 0.01, 0.731], 20_000)
    rates = make().bits(p).reshape(5, -1).sum(axis=1)
    assert rates[0] == 0
    assert rates[1] == 20_000
    for hits, chance in zip(rates[2:], [0.5, 0.01, 0.731], strict=True):
        assert stats.binomtest(int(hits), 20_000, chance).pvalue > LEVEL


@pytest.mark.slow
def test_bits_never_exceed_their_epsilon():
    # Over many budgets, also tiny and huge ones, with p at the ends of design L and rounded
    # outwards on purpose.
    budgets = np.concatenate((np.geomspace(1e-6, 60, 400), [0.0, 1.0, math.log(3)]))
    for nudge in (0.0, 1e-12, 1e-3):
        ends = np.clip(1 / (1 + np.exp(-budgets)) + nudge, 0, 1)
        for p in (ends, 1 - ends):
            counts = bit_thresholds(p, budgets)
            for count, budget in zip(counts.tolist(), budgets.tolist(), strict=True):
                rare, common = sorted((count, 2**63 - count))
                # A lower bound on e^budget, by integers.
                inverse = (
                    negative_binomial._exp_minus(Fraction(budget), 200)[1] if budget else 1 << 200
                )
                assert Fraction(common, rare) <= Fraction(1 << 200, inverse)
    assert (
        bit_thresholds(np.array([0.7]), 1.0) == int(0.7 * 2**63)
    ).all()  # what is inside stays as it is


@pytest.mark.parametrize("p", [0.0, 0.1, 0.9, 1.0])
def test_a_bit_that_says_more_than_its_epsilon_is_held_back(p):
    likely = math.exp(0.5) / (1 + math.exp(0.5))
    held = float(bit_thresholds(np.array([p]), 0.5)[0]) / 2**63
    assert held == pytest.approx(likely if p > 0.5 else 1 - likely, abs=1e-9)
    assert math.log(max(held, 1 - held) / min(held, 1 - held)) <= 0.5


def test_bit_shapes_and_errors():
    assert bit_thresholds(np.array(0.5)).shape == ()
    assert ReleasedNoise().bits(np.full((2, 3), 0.5), 1.0).shape == (2, 3)
    for p, epsilon in (
        (np.array([1.1]), None),
        (np.array([np.nan]), None),
        (np.array([0.5]), -1.0),
    ):
        with pytest.raises(PrivacyError):
            bit_thresholds(p, epsilon)


def test_scales_are_exact_or_rounded_up():
    assert grid_scale(0.5) == Fraction(1, 2)
    assert grid_scale(Fraction(640, 98) * 100) == Fraction(64000, 98)
    for scale in (
        0.1,
        653.06122,
        1 / 3,
        128000.7,
        Fraction(10**30 + 1, 10**29),
        2.0**39 + 0.3,
        1e-15,
    ):
        used = grid_scale(scale)
        assert used >= Fraction(scale)
        assert max(used.numerator, used.denominator) <= 2**40
        if scale >= 0.5:
            assert used <= Fraction(scale) * (1 + Fraction(1, 2**39))
    for scale in (0, -1, math.nan, math.inf, 2.0**41, "1", True):
        with pytest.raises(PrivacyError):
            grid_scale(scale)


def test_impossible_shares_are_refused():
    for n_shares, count in ((0, 1), (1.5, 1), (3, 0), (True, 1)):
        with pytest.raises(PrivacyError):
            ReleasedNoise().laplace_share(3, n_shares, 5, count=count)
    with pytest.raises(PrivacyError, match="too large"):
        ReleasedNoise().laplace_share(2**39, 2**20, 5)
    assert ReleasedNoise().laplace_share(3, 9, (0,)).shape == (0,)


def test_the_types_are_not_interchangeable():
    noise = ReleasedNoise()
    assert require_released(noise) is noise
    for other in (SeededNoise(1), None, np.random.default_rng(1), ReleasedNoise):
        with pytest.raises(PrivacyError, match="must not make noise that a device sends"):
            require_released(other)
    assert not isinstance(SeededNoise(1), ReleasedNoise)
    assert set(ReleasedNoise.__mro__) & set(SeededNoise.__mro__) == {object}
    with pytest.raises(TypeError):
        ReleasedNoise(1)  # nothing to seed


def test_simulated_noise_is_repeatable_and_streams_differ():
    first, again, other = SeededNoise(3), SeededNoise(3), SeededNoise(3, 1)
    drawn = first.laplace_share(50, 2, 100)
    np.testing.assert_array_equal(drawn, again.laplace_share(50, 2, 100))
    assert (drawn != other.laplace_share(50, 2, 100)).any()


@pytest.mark.slow
def test_released_noise_differs_between_processes_and_forks():
    program = (
        "import os, sys\n"
        "from hdpmf.common.privacy.sampling.noise import ReleasedNoise\n"
        "noise = ReleasedNoise()\n"
        "noise.discrete_laplace(1000, 10)\n"
        "read, write = os.pipe()\n"
        "child = os.fork()\n"
        "text = ' '.join(map(str, noise.discrete_laplace(1000, 30)))\n"
        "if child == 0:\n"
        "    os.write(write, text.encode()); os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(text); print(os.read(read, 100000).decode())\n"
    )
    lines: list[str] = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        lines += done.stdout.split("\n")[:2]
    assert len(set(lines)) == 4


def test_released_noise_never_touches_a_generator(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("a NumPy generator was used")

    for name in (
        "default_rng",
        "Generator",
        "SFC64",
        "PCG64",
        "random",
        "normal",
        "laplace",
        "geometric",
        "seed",
    ):
        monkeypatch.setattr(np.random, name, forbidden)
    noise = ReleasedNoise()
    noise.discrete_laplace(30, 100)
    noise.laplace_share(20_000, 2, 100)
    noise.discrete_gaussian(np.full(10, 1e6))
    noise.bits(np.full(10, 0.3), 2.0)


EXACT = {
    exact: {"below", "bernoulli_exp", "geometric"},
    shares: {
        "ShareTable",
        "share_table",
        "_exp_minus",
        "_power",
        "_root",
        "negative_binomial",
        "_from_table",
        "refine",
        "_tail",
        "_accepted",
    },
}
"""Everything but the decisions that compare doubles first, and more digits where these are too
close.
"""


def test_the_exact_modules_neither_know_generators_nor_floats():
    for module, exact_names in EXACT.items():
        whole = ast.parse(Path(module.__file__).read_text())
        body = [node for node in whole.body if getattr(node, "name", None) in exact_names]
        assert len(body) == len(exact_names)
        tree = ast.Module(body, [])
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not names & {
            "random",
            "Generator",
            "default_rng",
            "float64",
            "float32",
            "exp",
            "log",
        }
        assert not [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, float)
        ]
        divisions = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        ]
        assert len(divisions) <= 2  # of fractions: 1 / scale, x / 2^halvings


# Noise of a server's key


def test_a_key_repeats_its_noise_and_another_does_not() -> None:
    first = KeyedNoise(bytes(32))
    drawn = [first.discrete_laplace(50, 400) for _ in range(2)]
    again = KeyedNoise(bytes(32))
    assert all((again.discrete_laplace(50, 400) == one).all() for one in drawn)
    other = KeyedNoise(bytes(31) + b"\1").discrete_laplace(50, 400)
    # Scale 50: independent draws agree with a probability below 1/190; 20 of 400 are 12 deviations.
    assert (drawn[0] == other).sum() < 20
    assert (drawn[0] == drawn[1]).sum() < 20


def test_noise_of_a_key_stays_the_same_between_versions() -> None:
    """A server that is brought back years later has to add what it added."""
    drawn = KeyedNoise(bytes(range(32))).discrete_laplace(Fraction(101, 3), 12)
    assert drawn.tolist() == [-21, 19, 9, -28, -10, 28, 34, 34, 81, 163, 20, -1]


def test_noise_of_a_key_has_its_law() -> None:
    """Level 1e-6, fixed keys: 200,000 draws in nine bins, chi-squared with 8 degrees below 43.3."""
    scale, n = 4, 2000
    drawn = np.concatenate(
        [KeyedNoise(number.to_bytes(32, "big")).discrete_laplace(scale, n) for number in range(100)]
    )
    q = math.exp(-1 / scale)
    expected = np.array([(1 - q) / (1 + q) * q ** abs(k) for k in range(-4, 5)])
    expected[[0, -1]] = q**4 / (1 + q)  # both tails with their ends
    seen = np.array([np.clip(drawn, -4, 4) == k for k in range(-4, 5)]).sum(axis=1)
    assert ((seen - len(drawn) * expected) ** 2 / (len(drawn) * expected)).sum() < 43.3


def test_noise_of_a_key_is_not_for_devices() -> None:
    with pytest.raises(PrivacyError, match="KeyedNoise"):
        require_released(KeyedNoise(bytes(32)))
    with pytest.raises(PrivacyError, match="32 bytes"):
        KeyedNoise(bytes(31))
