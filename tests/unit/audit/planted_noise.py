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

    def discrete_laplace(self, scale, size):
        return self._noise.discrete_laplace(Fraction(scale) * self._factor, size)


@dataclass(frozen=True)
class WeakDesign(Design):
    """A design whose devices draw too little noise."""

    factor: float = 0.5

    def answer(self, survey, ratings, weights, noise):
        return super().answer(survey, ratings, weights, SmallerNoise(noise, self.factor))
