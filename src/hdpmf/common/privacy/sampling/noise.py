"""Types of noise: what leaves a device, what a server adds to a sum, and simulations.

``ReleasedNoise`` is for what leaves a device, ``KeyedNoise`` for the sums of a server, and
``SeededNoise`` for simulations.

Parameters are rounded so that there is never less noise than asked for, and that 64-bit sums hold
it.
"""

import math
import os
from fractions import Fraction
from functools import lru_cache
from hashlib import shake_256
from typing import Any, Final, final

import numpy as np

from hdpmf.common.privacy.sampling.exact import MAX_SIGMA, Words, discrete_gaussian, geometric
from hdpmf.errors import ConfigError, PrivacyError

HALF_WORD: Final = 63
"""Probabilities of bits are whole multiples of 2 to the minus this."""

_LIMIT: Final = 1 << 40


def grid_scale(scale: float | Fraction) -> Fraction:
    """Return ``scale`` where its fraction is small enough, else the next larger one.

    Rounding up means more noise than asked for, by less than 2^-39 of it for scales of at least
    1/2.

    Raises:
        PrivacyError: The scale is not positive, not finite, or too large for 64-bit sums.
    """
    valid = isinstance(scale, (int, float, Fraction, np.number)) and not isinstance(scale, bool)
    if not valid or (not isinstance(scale, Fraction) and not math.isfinite(scale)) or scale <= 0:
        raise PrivacyError(
            f"the scale of noise must be a positive number of grid units, not {scale!r}"
        )
    exactly = (
        scale
        if isinstance(scale, Fraction)
        else Fraction(scale if isinstance(scale, int) else float(scale))
    )
    if exactly >= _LIMIT:
        raise PrivacyError(
            "the noise would be too large for 64-bit sums; use a larger epsilon or a coarser grid"
        )
    if max(exactly.numerator, exactly.denominator) <= _LIMIT:
        return exactly
    whole = math.ceil(exactly)
    denominator = _LIMIT >> (whole - 1).bit_length()
    return Fraction(math.ceil(exactly * denominator), denominator)


def whole_sigmas(sigma: np.ndarray) -> np.ndarray:
    """Round standard deviations up to whole grid units.

    Raises:
        PrivacyError: One is negative, not a number, or too large for 64-bit sums.
    """
    whole = np.ceil(np.asarray(sigma, np.float64))
    if not bool(((whole >= 0) & (whole <= MAX_SIGMA)).all()):
        raise PrivacyError("the deviation of noise must be a number of grid units from 0 to 2^50")
    return whole.astype(np.int64)


def bit_thresholds(p_plus: np.ndarray, epsilon: np.ndarray | float | None = None) -> np.ndarray:
    """Probabilities as whole multiples of 2^-63, rounded towards one half; uint64 from 0 to 2^63.

    With ``epsilon`` (one number, or one for each bit) they are kept within [1/(1 + e^epsilon),
    e^epsilon/(1 + e^epsilon)], the ends rounded inwards by more than the error of computing them.
    Any two bits then differ in probability by a factor of at most e^epsilon, whatever rounding
    ``p_plus`` went through.

    Raises:
        PrivacyError: A probability is outside [0, 1], or an epsilon is negative or not a number.
    """
    p = np.atleast_1d(np.asarray(p_plus, np.float64))
    if not ((p >= 0) & (p <= 1)).all():
        raise PrivacyError("the probability of a bit must be between 0 and 1")
    unit = 2.0**HALF_WORD
    # The rarer side; 1 - p is exact for p >= 1/2.
    small = np.ceil(np.minimum(p, 1.0 - p) * unit).astype(np.uint64)
    if epsilon is not None:
        budget = np.asarray(epsilon, np.float64)
        if not (budget >= 0).all():
            raise PrivacyError("the epsilon of a bit must be 0 or more")
        least = (1.0 + 2.0**-40) / (1.0 + np.exp(np.minimum(budget, 700.0)))
        small = np.maximum(small, np.ceil(np.minimum(least, 0.5) * unit).astype(np.uint64))
    thresholds = np.where(p < 0.5, small, np.uint64(1 << HALF_WORD) - small)
    return thresholds.reshape(
        np.broadcast_shapes(np.shape(p_plus), np.shape(epsilon) if epsilon is not None else ())
    )


Size = int | tuple[int, ...]


class SeededNoise:
    """Draws that a seed repeats, with the laws of ``ReleasedNoise`` to double precision.

    Whoever knows the seed can subtract them, so what leaves a device takes ``ReleasedNoise``,
    another type.

    Args:
        seed: Equal seeds give equal draws.
        stream: Another stream of the same seed is independent.
    """

    __slots__ = ("_generator",)

    def __init__(self, seed: int, stream: int = 0) -> None:
        self._generator = np.random.Generator(
            np.random.SFC64(np.random.SeedSequence([seed, stream]))
        )

    @property
    def state(self) -> tuple[int, ...]:
        """The position in the stream. Set it, and the same draws follow."""
        state: Any = self._generator.bit_generator.state
        return (
            *map(int, state["state"]["state"]),
            int(state["has_uint32"]),
            int(state["uinteger"]),
        )

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
        drawn: np.ndarray = self._generator.geometric(stop, size) - self._generator.geometric(
            stop, size
        )
        return drawn

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        """As ``ReleasedNoise.discrete_gaussian``, by rounding: the variance is larger by 1/12."""
        whole = whole_sigmas(sigma)
        drawn: np.ndarray = np.rint(whole * self._generator.standard_normal(whole.shape)).astype(
            np.int64
        )
        return drawn

    def uniforms(self, n: int) -> np.ndarray:
        """As ``ReleasedNoise.uniforms``."""
        return self._generator.random(n)

    def bits(self, p_plus: np.ndarray, epsilon: np.ndarray | float | None = None) -> np.ndarray:
        """As ``ReleasedNoise.bits``."""
        thresholds = bit_thresholds(p_plus, epsilon)
        drawn: np.ndarray = (
            self._generator.integers(0, 1 << HALF_WORD, thresholds.shape, np.uint64) < thresholds
        )
        return drawn


def seed_of(rng: int | np.random.Generator | None) -> int:
    """Return the 63-bit seed of an ``rng`` argument: itself, a draw from it, or fresh entropy."""
    if rng is None:
        rng = np.random.default_rng()
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**63))
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) and 0 <= rng < 2**63:
        return int(rng)
    raise ConfigError(
        "rng must be an int from 0 to 2^63 - 1, a numpy Generator or None, not "
        f"{type(rng).__name__}" + (f" {rng}" if isinstance(rng, int) else "")
    )


@lru_cache(maxsize=256, typed=True)
def _stop_probability(scale: float | Fraction) -> float:
    return -math.expm1(-1.0 / float(grid_scale(scale)))


_NOISE_KEY_BYTES: Final = 32


@final
class ReleasedNoise:
    """Noise for what leaves a device: exact laws, the system's entropy, nothing to seed.

    No bytes are kept between calls, so that a forked process can never repeat its parent's draws.

    What is exact: ``discrete_laplace`` has exactly the stated law at the scale
    ``grid_scale(scale)``, which is never smaller than ``scale``. ``discrete_gaussian`` has
    exactly the stated law with sigma rounded up to a whole number of grid units. ``bits`` has
    probabilities that are whole multiples of 2^-63, rounded towards one half.
    """

    __slots__ = ()

    def discrete_laplace(self, scale: float | Fraction, size: Size) -> np.ndarray:
        """Two-sided geometric noise, P(k) proportional to exp(-abs(k) / scale), as int64."""
        return _discrete_laplace(_entropy, scale, size)

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        """Draw k with P(k) ~ exp(-k^2 / (2 sigma^2)) for each sigma in grid units, as int64.

        A sigma of 0 gives 0; any other is rounded up to a whole number.
        """
        return _discrete_gaussian(_entropy, sigma)

    def uniforms(self, n: int) -> np.ndarray:
        """Draws from [0, 1), whole multiples of 2^-53."""
        drawn: np.ndarray = (_entropy(n) >> np.uint64(11)) * 2.0**-53
        return drawn

    def bits(self, p_plus: np.ndarray, epsilon: np.ndarray | float | None = None) -> np.ndarray:
        """True with probability ``p_plus``, which ``epsilon`` bounds (``bit_thresholds``)."""
        thresholds = bit_thresholds(p_plus, epsilon)
        words = _entropy(thresholds.size).reshape(thresholds.shape)
        drawn: np.ndarray = (words >> np.uint64(1)) < thresholds
        return drawn


@final
class KeyedNoise:
    """Noise for a server's sums that a secret key repeats: exact laws, bits from SHAKE256.

    For a server that may have to release the same sum again, and must not draw again for it. The
    law is exact for uniform bits; that these are as good as uniform is the assumption that SHAKE256
    under a secret key is a pseudorandom function. Not for what leaves a device.

    Args:
        key: 32 secret bytes, for one sum only. The same key gives the same draws.
    """

    __slots__ = ("_calls", "_key")

    def __init__(self, key: bytes) -> None:
        if len(key) != _NOISE_KEY_BYTES:
            raise PrivacyError(f"a key of noise has {_NOISE_KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        self._calls = 0

    def discrete_laplace(self, scale: float | Fraction, size: Size) -> np.ndarray:
        """As ``ReleasedNoise.discrete_laplace``; draws go on where the last ones ended."""
        return _discrete_laplace(self._words, scale, size)

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        """As ``ReleasedNoise.discrete_gaussian``; draws go on where the last ones ended."""
        return _discrete_gaussian(self._words, sigma)

    def _words(self, n: int) -> np.ndarray:
        stream = shake_256(b"hdpmf noise" + self._key + self._calls.to_bytes(8, "big"))
        self._calls += 1
        return np.frombuffer(stream.digest(8 * n), "<u8").astype(np.uint64)


Noise = ReleasedNoise | SeededNoise
"""For functions that may serve a simulation; those that release take ``ReleasedNoise`` alone."""


def require_released(noise: object) -> ReleasedNoise:
    """The noise itself if it may be released.

    Raises:
        PrivacyError: It is of any other type.
    """
    if type(noise) is not ReleasedNoise:
        raise PrivacyError(
            f"{type(noise).__name__} must not make noise that a device sends, because anyone "
            "who knows its seed can subtract it; pass a ReleasedNoise()"
        )
    return noise


def _discrete_laplace(words: Words, scale: float | Fraction, size: Size) -> np.ndarray:
    grid = grid_scale(scale)
    n = math.prod(size) if isinstance(size, tuple) else int(size)
    plus = geometric(words, grid, n)
    drawn: np.ndarray = (plus - geometric(words, grid, n)).reshape(size)
    return drawn


def _discrete_gaussian(words: Words, sigma: np.ndarray) -> np.ndarray:
    whole = whole_sigmas(sigma)
    drawn = np.zeros(whole.shape, np.int64)
    drawn[whole > 0] = discrete_gaussian(words, whole[whole > 0])
    return drawn


def _entropy(n: int) -> np.ndarray:
    return np.frombuffer(bytearray(os.urandom(8 * n)), np.uint64)
