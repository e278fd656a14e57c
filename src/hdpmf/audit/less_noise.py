"""Controls of audits: a design with too little noise, which has to be found out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hdpmf.privacy.sampling import Noise


class LessNoise:
    """Noise with a fault planted: so much of it, or bits as sharp as with epsilon over this."""

    def __init__(self, noise: Noise, factor: float) -> None:
        self._noise, self._factor = noise, factor

    def laplace_share(
        self, scale: float | Fraction, n_shares: int, size: int | tuple[int, ...], *, count: int = 1
    ) -> np.ndarray:
        """Of a smaller scale."""
        return self._noise.laplace_share(Fraction(scale) * Fraction(self._factor), n_shares, size, count=count)

    def discrete_laplace(self, scale: float | Fraction, size: int | tuple[int, ...]) -> np.ndarray:
        """Of a smaller scale."""
        return self.laplace_share(scale, 1, size)

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        """Of a smaller sigma."""
        return self._noise.discrete_gaussian(sigma * self._factor)

    def uniforms(self, n: int) -> np.ndarray:
        """As they are."""
        return self._noise.uniforms(n)

    def bits(self, p_plus: np.ndarray, epsilon: np.ndarray | float | None = None) -> np.ndarray:
        """With longer logits, and bounds that allow them."""
        logits = (np.log(p_plus) - np.log1p(-p_plus)) / self._factor
        wider = None if epsilon is None else np.asarray(epsilon) / self._factor
        return self._noise.bits(1.0 / (1.0 + np.exp(-logits)), wider)
