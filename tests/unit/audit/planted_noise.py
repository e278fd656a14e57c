"""Noise with a planted fault, which an audit must find."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.lab.audit.one_round import Design


class SmallerNoise(SeededNoise):
    """Noise of so much of the scale that it should have."""

    def __init__(self, noise: SeededNoise, factor: float) -> None:
        self._noise = noise
        self._factor = Fraction(factor)

    def laplace_share(self, scale, n_shares, size, *, count=1):
        smaller = Fraction(scale) * self._factor
        return self._noise.laplace_share(smaller, n_shares, size, count=count)


@dataclass(frozen=True)
class WeakDesign(Design):
    """A design whose clients draw too little noise."""

    factor: float = 0.5

    def client(self, ratings, weights, noise, n_users):
        return super().client(ratings, weights, SmallerNoise(noise, self.factor), n_users)
