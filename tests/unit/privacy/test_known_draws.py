"""Known answers: the same random words give the same draws, so that no law changes unnoticed by a
little.

The laws themselves are tested in test_exact_laws.py and test_released.py; those tests see large
differences only.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256

import numpy as np
import pytest

from hdpmf.common.privacy.sampling import ReleasedNoise, SeededNoise
from hdpmf.common.privacy.sampling.exact import (
    _cumulated,
    _table,
    below,
    bernoulli,
    bernoulli_exp,
    discrete_gaussian,
    geometric,
)
from hdpmf.common.privacy.sampling.noise import (
    bit_thresholds,
    grid_scale,
    share_shape,
    whole_sigmas,
)
from hdpmf.common.privacy.sampling.shares import (
    _accepted,
    _bernoulli_number,
    _blocks,
    _exp_minus,
    _log_gammas_to,
    _power,
    _root,
    _tail,
    log_gammas,
    negative_binomial,
    refine,
    share_table,
    tails,
)


class Words:
    """Words of a generator with a fixed seed, counted."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self.drawn = 0

    def __call__(self, n: int) -> np.ndarray:
        self.drawn += n
        return (
            self._rng.integers(0, 2**64, n, np.uint64, endpoint=False)
            if n
            else np.empty(0, np.uint64)
        )


def _short(*values: object) -> str:
    text = repr([value.tolist() if isinstance(value, np.ndarray) else value for value in values])
    return sha256(text.encode()).hexdigest()[:12]


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
    "shares": (lambda w: negative_binomial(w, SCALE, Fraction(1, 30), 3000), "2f1a22959061"),
    "shares-of-several": (
        lambda w: negative_binomial(w, SCALE, Fraction(7, 3), 500),
        "1649b14f79f3",
    ),
    "shares-huge": (lambda w: negative_binomial(w, HUGE, Fraction(1, 5), 400), "d4afe551bf6d"),
    "tails": (lambda w: tails(w, HUGE, Fraction(2, 7), 16, 200), "c4660db1c173"),
    "tail": (
        lambda w: np.array([_tail(w, SCALE, Fraction(1, 3), 5) for _ in range(60)]),
        "d66217662a1a",
    ),
    "accepted": (lambda w: [_accepted(w, 3, last, 1, 2) for last in range(2, 40)], "1f614cb0dfb5"),
    "refined": (
        lambda w: [refine(w, SCALE, Fraction(1, 3), prefix << 60, 64) for prefix in range(16)],
        "ba92ce22fdbf",
    ),
    "gaussian": (lambda w: discrete_gaussian(w, np.array([1, 2, 17, 2**40] * 80)), "093274e80b5a"),
    "bits": (
        lambda w: bernoulli(
            w, np.linspace(0, 1, 200), lambda place, context: context.create_decimal(0)
        ),
        "5a0b17ef0abd",
    ),
}
TABLES: dict[str, tuple[Callable[[], object], str]] = {
    "share-table": (
        lambda: [
            (t := share_table(SCALE, Fraction(1, n), 64)).low.tolist() + t.high.tolist()
            for n in (2, 30)
        ],
        "546024a41a67",
    ),  # type: ignore[union-attr]
    "share-table-finer": (
        lambda: [(t := share_table(SCALE, Fraction(2, 5), 128)).low, t.high, t.bits],
        "08af5e2b4eb3",
    ),
    "share-table-huge": (
        lambda: share_table(HUGE, Fraction(1, 5), 64).low[::500].tolist(),
        "a57d9069074d",
    ),  # type: ignore[union-attr]
    "exp-minus": (
        lambda: [_exp_minus(Fraction(n, 7), 80) for n in (1, 6, 7, 8, 15, 50, 700)],
        "c044062cf2ed",
    ),
    "power": (lambda: [_power(2**60 // 3, n, 60) for n in (0, 1, 2, 3, 7, 20)], "1e44eb692596"),
    "root": (
        lambda: [_root(2**60 // n, k, 60) for n in (1, 2, 3) for k in (1, 2, 5)],
        "64ca0a270afc",
    ),
    "gaussian-table": (
        lambda: [_table(), *(str(_cumulated(k, 30)) for k in range(4))],
        "5af70cf621b4",
    ),
    "gammas": (
        lambda: [str(_log_gammas_to(k, Fraction(1, 3), 40)) for k in (16, 100, 10**6)],
        "00687b9f949f",
    ),
    "gammas-in-doubles": (
        lambda: np.round(log_gammas(np.array([16, 40, 1000, 10**7]), 0.3), 12),
        "32dd5755245d",
    ),
    "bernoulli-numbers": (lambda: [str(_bernoulli_number(n)) for n in range(12)], "1ea866674d56"),
    "blocks": (
        lambda: [(b := _blocks(HUGE, Fraction(2, 7), 16)).starts, b.cumulated],
        "cad041e0dad5",
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
    "share-shapes": (
        lambda: [str(share_shape(n, count)) for n, count in ((1, 1), (30, 1), (30, 7), (10, 25))],
        "7eb852a173cf",
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
        noise.laplace_share(3.5, 10, 50),
        noise.laplace_share(3.5, 10, 50, count=4),
        noise.bits(np.linspace(0.1, 0.9, 50)),
        noise.discrete_gaussian(np.full(20, 5.0)),
        np.round(noise.uniforms(5), 12),
        np.round(noise.normals((5,)).astype(float), 5),
        np.round(noise.exponentials((5,)).astype(float), 5),
    ]
    assert _short(*drawn) == "f7f8de40d0f9"


def test_released_uniforms_are_numbers_from_0_to_1() -> None:
    drawn = ReleasedNoise().uniforms(2000)
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert abs(float(drawn.mean()) - 0.5) < 0.05  # 7.7 standard deviations
    assert len(np.unique(drawn)) == 2000
