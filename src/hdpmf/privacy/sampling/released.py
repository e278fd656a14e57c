"""Noise that is really released. Its seeded counterpart for simulations is another type (``seeded``)."""

from __future__ import annotations

import math
import os
from fractions import Fraction
from typing import Final, final

import numpy as np

from hdpmf.errors import PrivacyError
from hdpmf.privacy.sampling.discrete_gaussian import discrete_gaussian
from hdpmf.privacy.sampling.rounding import bit_thresholds, grid_scale, share_shape, whole_sigmas
from hdpmf.privacy.sampling.seeded import SeededNoise
from hdpmf.privacy.sampling.shares import negative_binomial

Size = int | tuple[int, ...]

# The sampler multiplies draws by n_shares in 64 bits: a draw of 1,024 scales has a probability of e^-1024.
_PRODUCT_LIMIT: Final = 1 << 53


@final
class ReleasedNoise:
    """Noise for what leaves a device: exact laws, entropy from the operating system, nothing to seed.

    No bytes are kept between calls, so that a forked process can never repeat its parent's draws.

    What is exact: ``discrete_laplace`` and ``laplace_share`` have exactly the stated law at the scale
    ``grid_scale(scale)``, which is never smaller than ``scale``. ``discrete_gaussian`` has exactly the stated law with
    sigma rounded up to a whole number of grid units. ``bits`` has probabilities that are whole multiples of 2^-63,
    rounded towards one half.
    """

    __slots__ = ()

    def discrete_laplace(self, scale: float | Fraction, size: Size) -> np.ndarray:
        """Two-sided geometric noise, P(k) proportional to exp(-abs(k) / scale), as int64."""
        return self.laplace_share(scale, 1, size)

    def laplace_share(self, scale: float | Fraction, n_shares: int, size: Size, *, count: int = 1) -> np.ndarray:
        """One user's share of discrete Laplace noise: ``n_shares`` independent shares add up to exactly that.

        Args:
            scale: Of the whole noise, in grid units.
            n_shares: How many shares make it up. More shares than that only add noise.
            size: Shape of the result.
            count: Draw the sum of so many shares at once (a shard that holds so many users).
        """
        grid, shape, n = grid_scale(scale), share_shape(n_shares, count), _length(size)
        if grid * n_shares >= _PRODUCT_LIMIT:
            raise PrivacyError("the noise is too large for so many shares; use a larger epsilon or a coarser grid")
        plus = negative_binomial(_entropy, grid, shape, n)
        minus = negative_binomial(_entropy, grid, shape, n)
        drawn: np.ndarray = (plus - minus).reshape(size)
        return drawn

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        """Noise with P(k) proportional to exp(-k^2 / (2 sigma^2)), one draw for each sigma in grid units, as int64.

        A sigma of 0 gives 0; any other is rounded up to a whole number.
        """
        whole = whole_sigmas(sigma)
        drawn = np.zeros(whole.shape, np.int64)
        drawn[whole > 0] = discrete_gaussian(_entropy, whole[whole > 0])
        return drawn

    def uniforms(self, n: int) -> np.ndarray:
        """Draws from [0, 1), whole multiples of 2^-53."""
        drawn: np.ndarray = (_entropy(n) >> np.uint64(11)) * 2.0**-53
        return drawn

    def bits(self, p_plus: np.ndarray, epsilon: np.ndarray | float | None = None) -> np.ndarray:
        """True with probability ``p_plus``; see ``bit_thresholds`` for what ``epsilon`` makes of it."""
        thresholds = bit_thresholds(p_plus, epsilon)
        words = _entropy(thresholds.size).reshape(thresholds.shape)
        drawn: np.ndarray = (words >> np.uint64(1)) < thresholds
        return drawn


Noise = ReleasedNoise | SeededNoise
"""For functions that may serve a simulation; those that release take ``ReleasedNoise`` alone."""


def require_released(noise: object) -> ReleasedNoise:
    """The noise itself if it may be released.

    Raises:
        PrivacyError: It is of any other type.
    """
    if type(noise) is not ReleasedNoise:
        raise PrivacyError(
            f"{type(noise).__name__} must not make noise that leaves a device, because whoever knows its seed can "
            "subtract it; pass a ReleasedNoise()"
        )
    return noise


def _entropy(n: int) -> np.ndarray:
    return np.frombuffer(bytearray(os.urandom(8 * n)), np.uint64)


def _length(size: Size) -> int:
    return math.prod(size) if isinstance(size, tuple) else int(size)
