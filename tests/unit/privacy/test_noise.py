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
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from hashlib import sha256
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
)
from hdpmf.common.privacy.sampling import noise as released
from hdpmf.common.privacy.sampling.exact import (
    _cumulated,
    _table,
    below,
    bernoulli,
    bernoulli_exp,
    discrete_gaussian,
    geometric,
)
from hdpmf.common.privacy.sampling.noise import whole_sigmas
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
        ReleasedNoise().discrete_laplace(Fraction(13, 2), n),
    )
    table = np.array([np.histogram(sample, edges)[0] for sample in samples])
    assert stats.chi2_contingency(table).pvalue > 1e-6


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
                most = Decimal(budget).exp(Context(prec=60, rounding=ROUND_FLOOR))
                assert Fraction(common, rare) <= Fraction(most)
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
    drawn = first.discrete_laplace(50, 100)
    np.testing.assert_array_equal(drawn, again.discrete_laplace(50, 100))
    assert (drawn != other.discrete_laplace(50, 100)).any()


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
    noise.discrete_gaussian(np.full(10, 1e6))
    noise.bits(np.full(10, 0.3), 2.0)


def test_integer_draws_neither_know_generators_nor_floats():
    """All but the decisions that compare doubles first, and more digits where these are close."""
    names = {"below", "bernoulli_exp", "geometric"}
    whole = ast.parse(Path(exact.__file__).read_text())
    body = [node for node in whole.body if getattr(node, "name", None) in names]
    assert len(body) == len(names)
    nodes = list(ast.walk(ast.Module(body, [])))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert not used & {"random", "Generator", "default_rng", "float64", "float32", "exp", "log"}
    assert not [n for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, float)]
    assert not [n for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]


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


# Discrete Gaussian draws; ways that are taken once in 10^11 draws are made frequent.


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
    assert released.whole_sigmas(np.array([0.0, 0.1, 1.0, 1.5])).tolist() == [0, 1, 1, 2]
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


class Words:
    """Words of a generator with a fixed seed, counted."""

    def __init__(self) -> None:
        self._words = seeded_words(0)
        self.drawn = 0

    def __call__(self, n: int) -> np.ndarray:
        self.drawn += n
        return self._words(n)


def _short(*values: object) -> str:
    text = repr([value.tolist() if isinstance(value, np.ndarray) else value for value in values])
    return sha256(text.encode()).hexdigest()[:12]


# The same words give the same draws, so that no law changes unnoticed by a little.

SCALE, HUGE = Fraction(7, 2), Fraction(10**7, 3)
CASES: dict[str, tuple[Callable[[Words], object], str]] = {
    "below": (
        lambda w: below(w, np.array([1, 2, 3, 10, 2**63 + 1, 2**64 - 1] * 50, np.uint64)),
        "1009bcb23111",
    ),
    "bernoulli-exp": (
        lambda w: bernoulli_exp(w, np.arange(300, dtype=np.uint64) % np.uint64(8), 7),
        "1eec7bd02dce",
    ),
    "geometric": (lambda w: geometric(w, SCALE, 300), "7013a0576b8f"),
    "geometric-huge": (lambda w: geometric(w, HUGE, 100), "cbeec13cc9a9"),
    "gaussian": (lambda w: discrete_gaussian(w, np.array([1, 2, 17, 2**40] * 80)), "093274e80b5a"),
    "bits": (
        lambda w: bernoulli(
            w, np.linspace(0, 1, 200), lambda place, context: context.create_decimal(0)
        ),
        "5a0b17ef0abd",
    ),
}
TABLES: dict[str, tuple[Callable[[], object], str]] = {
    "gaussian-table": (
        lambda: [_table(), *(str(_cumulated(k, 30)) for k in range(4))],
        "5af70cf621b4",
    ),
    "thresholds": (
        lambda: bit_thresholds(np.array([0.0, 0.1, 0.25, 0.5, 0.7, 1.0]), None),
        "86a9cc5763da",
    ),
    "thresholds-with-budgets": (
        lambda: bit_thresholds(np.linspace(0, 1, 9), np.linspace(0.1, 3, 9)) >> np.uint64(20),
        "925d72b18248",
    ),
    "grid-scales": (
        lambda: [str(grid_scale(scale)) for scale in (1, 0.1, 3.7, 1e6, Fraction(1, 3))],
        "3b3fe5c111be",
    ),
    "sigmas": (lambda: whole_sigmas(np.array([0.2, 1.0, 1.5, 1e9])), "ce5ee4ab4097"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_words_give_the_same_draws(case: str) -> None:
    draw, expected = CASES[case]
    words = Words()
    drawn = draw(words)
    assert _short(drawn, words.drawn) == expected


@pytest.mark.parametrize("case", TABLES)
def test_what_draws_are_compared_with(case: str) -> None:
    table, expected = TABLES[case]
    assert _short(*(found if isinstance(found := table(), list) else [found])) == expected


def test_simulated_noise_is_the_same_for_ever() -> None:
    """Published results name a seed: it has to give them in later versions, too."""
    noise = SeededNoise(7, stream=3)
    drawn = [
        noise.discrete_laplace(3.5, 50),
        noise.bits(np.linspace(0.1, 0.9, 50)),
        noise.discrete_gaussian(np.full(20, 5.0)),
        np.round(noise.uniforms(5), 12),
        np.round(noise.normals((5,)).astype(float), 5),
        np.round(noise.exponentials((5,)).astype(float), 5),
    ]
    assert _short(*drawn) == "e162678b63a1"


def test_released_uniforms_are_numbers_from_0_to_1() -> None:
    drawn = ReleasedNoise().uniforms(2000)
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert abs(float(drawn.mean()) - 0.5) < 0.05  # 7.7 standard deviations
    assert len(np.unique(drawn)) == 2000
