"""What a recommender has seen of canaries: scores for its guesses, and how large the noise was."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class CanaryNumbers:
    """Numbers about the canaries that the recommender has seen: one of two numbers each, and noise.

    Attributes:
        seen: A row per canary.
        ends: What they would be without noise if the canary is low (or not there), and if it is high.
        scale: Of the Laplace noise by the proof's law.
    """

    seen: np.ndarray
    ends: tuple[float, float]
    scale: float

    def scores(self) -> np.ndarray:
        """Log-likelihood ratios of the canaries."""
        low, high = self.ends
        return np.asarray((np.abs(self.seen - low) - np.abs(self.seen - high)).sum(axis=1) / self.scale)

    def sizes(self, truth: np.ndarray) -> np.ndarray:
        """Sizes of the noise, over their mean by the law."""
        return np.asarray(np.abs(self.seen - np.where(truth[:, None], self.ends[1], self.ends[0])) / self.scale)


@dataclass(frozen=True, slots=True)
class Bits:
    """One bit about each canary.

    Attributes:
        plus: 1 or 0; -1 where none came.
        p: Probability of a 1 if the canary is low, and if it is high.
    """

    plus: np.ndarray
    p: tuple[float, float]

    def scores(self) -> np.ndarray:
        """Log-likelihood ratios of the canaries."""
        low, high = self.p
        ratios = np.where(self.plus > 0, np.log(high / low), np.log((1.0 - high) / (1.0 - low)))
        return np.where(self.plus < 0, 0.0, ratios)

    def sizes(self, truth: np.ndarray) -> np.ndarray:
        """Wrong bits, over how many there are by the law."""
        return np.asarray((self.plus > 0) != truth) / self.p[0]


@dataclass(slots=True)
class ObservedCanaries:
    """What the recommender has got.

    Attributes:
        about: Numbers about the canaries.
        knowing_h: Scores of whoever knows h, where there is one.
    """

    about: list[CanaryNumbers | Bits] = field(default_factory=list)
    knowing_h: np.ndarray | None = None

    def scores(self) -> np.ndarray:
        """Log-likelihood ratios by all of them."""
        return np.asarray(np.sum([numbers.scores() for numbers in self.about], axis=0))

    def noise(self, truth: np.ndarray) -> tuple[float, float]:
        """Mean size of the noise over that of the law, and its standard deviation by the law."""
        sizes = np.concatenate([numbers.sizes(truth).ravel() for numbers in self.about])
        # The size of Laplace noise has the exponential law; a bit is wrong or not.
        variance = np.mean([1.0 / numbers.p[0] - 1.0 if isinstance(numbers, Bits) else 1.0 for numbers in self.about])
        return float(sizes.mean()), float(np.sqrt(variance / len(sizes)))
