"""Seeded noise for simulations: fast, repeatable, and never for anything that is sent to anyone."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from hdpmf.errors import ConfigError
from hdpmf.privacy.sampling.rounding import HALF_WORD, bit_thresholds, grid_scale, share_shape, whole_sigmas

Size = int | tuple[int, ...]


class SeededNoise:
    """Draws that a seed repeats. They have the laws of ``ReleasedNoise`` to the precision of a double.

    Whoever knows the seed can subtract them, so what leaves a device takes ``ReleasedNoise``, another type.

    Args:
        seed: Equal seeds give equal draws.
        stream: Another stream of the same seed is independent.
    """

    __slots__ = ("_generator",)

    def __init__(self, seed: int, stream: int = 0) -> None:
        self._generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, stream])))

    @property
    def state(self) -> tuple[int, ...]:
        """How far the stream is. Set it, and the same draws follow."""
        state: Any = self._generator.bit_generator.state
        return (*map(int, state["state"]["state"]), int(state["has_uint32"]), int(state["uinteger"]))

    @state.setter
    def state(self, value: tuple[int, ...]) -> None:
        *words, has_half, half = value
        self._generator.bit_generator.state = {
            "bit_generator": "SFC64",
            "state": {"state": np.array(words, np.uint64)},
            "has_uint32": has_half,
            "uinteger": half,
        }

    def exponentials(self, shape: tuple[int, ...]) -> np.ndarray:
        """Exp(1) draws."""
        return self._generator.standard_exponential(shape, dtype=np.float32)

    def normals(self, shape: tuple[int, ...]) -> np.ndarray:
        """N(0, 1) draws."""
        return self._generator.standard_normal(shape, dtype=np.float32)

    def discrete_laplace(self, scale: float | Fraction, size: Size) -> np.ndarray:
        """As ``ReleasedNoise.discrete_laplace``."""
        stop = _stop_probability(scale)
        drawn: np.ndarray = self._generator.geometric(stop, size) - self._generator.geometric(stop, size)
        return drawn

    def laplace_share(self, scale: float | Fraction, n_shares: int, size: Size, *, count: int = 1) -> np.ndarray:
        """As ``ReleasedNoise.laplace_share``."""
        if count == n_shares:
            return self.discrete_laplace(scale, size)
        shape, stop = float(share_shape(n_shares, count)), _stop_probability(scale)
        plus = self._generator.negative_binomial(shape, stop, size)
        drawn: np.ndarray = plus - self._generator.negative_binomial(shape, stop, size)
        return drawn

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        """As ``ReleasedNoise.discrete_gaussian``, by rounding: the variance is larger by 1/12, whatever sigma is."""
        whole = whole_sigmas(sigma)
        drawn: np.ndarray = np.rint(whole * self._generator.standard_normal(whole.shape)).astype(np.int64)
        return drawn

    def uniforms(self, n: int) -> np.ndarray:
        """As ``ReleasedNoise.uniforms``."""
        return self._generator.random(n)

    def bits(self, p_plus: np.ndarray, epsilon: np.ndarray | float | None = None) -> np.ndarray:
        """As ``ReleasedNoise.bits``."""
        thresholds = bit_thresholds(p_plus, epsilon)
        drawn: np.ndarray = self._generator.integers(0, 1 << HALF_WORD, thresholds.shape, np.uint64) < thresholds
        return drawn


def seed_of(rng: int | np.random.Generator | None) -> int:
    """The 63-bit seed that an ``rng`` argument stands for: itself, a draw from it, or fresh entropy."""
    if rng is None:
        rng = np.random.default_rng()
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**63))
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) and 0 <= rng < 2**63:
        return int(rng)
    raise ConfigError(
        f"rng must be an int from 0 to 2^63 - 1, a numpy Generator or None, not {type(rng).__name__}"
        + (f" {rng}" if isinstance(rng, int) else "")
    )


def _stop_probability(scale: float | Fraction) -> float:
    return -math.expm1(-1.0 / float(grid_scale(scale)))
