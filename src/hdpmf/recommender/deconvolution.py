"""How much weight really stands behind each item, seen through Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_POINTS = 44
_SMALLEST = 0.05
_ITERATIONS = 60
_CHUNK = 4096  # items at a time: bounds the memory


@dataclass(frozen=True, slots=True)
class Weights:
    """Each item's true sum of weights, given what was released.

    Attributes:
        mean: Posterior mean.
        deviation: Posterior standard deviation.
        size_biased: Posterior mean where every possible sum counts in proportion to itself: what the sum is, seen
            from one of the ratings behind it.
    """

    mean: np.ndarray
    deviation: np.ndarray
    size_biased: np.ndarray


def deconvolve(released: np.ndarray, noise_scale: float) -> Weights:
    """Estimate how sums of weights are spread over items, and from that each item's own sum.

    Nonparametric maximum likelihood: a distribution on zero and a geometric grid, by expectation maximisation under
    the Laplace likelihood. It needs no assumption about popularity, which differs between catalogues.
    """
    top = max(float(released.max()), 10.0) * 1.05
    grid = np.concatenate(([0.0], np.geomspace(_SMALLEST, top, _POINTS)))
    shares = np.full(len(grid), 1.0 / len(grid))
    # Items whose released sum is alike tell the same; a histogram of them makes the iterations cheap.
    centres, counts = _histogram(released, noise_scale)
    likelihood = np.exp(-np.abs(centres[:, None] - grid) / noise_scale)
    for _ in range(_ITERATIONS):
        joint = likelihood * shares
        joint *= (counts / np.maximum(joint.sum(1), 1e-300))[:, None]
        shares = joint.sum(0) / len(released)
    parts = [
        _posterior(released[begin : begin + _CHUNK], grid, shares, noise_scale)
        for begin in range(0, len(released), _CHUNK)
    ]
    return Weights(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _histogram(released: np.ndarray, noise_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Values rounded to a fiftieth of the noise, and how often each occurs."""
    step = noise_scale / 50.0
    values, counts = np.unique(np.rint(released / step), return_counts=True)
    return values * step, counts


def _posterior(
    released: np.ndarray, grid: np.ndarray, shares: np.ndarray, noise_scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    distance = np.abs(released[:, None] - grid)
    # Relative to the nearest point: far outside the grid every likelihood would round to zero.
    joint = np.exp(-(distance - distance.min(1, keepdims=True)) / noise_scale) * shares
    joint /= np.maximum(joint.sum(1, keepdims=True), 1e-300)
    mean = joint @ grid
    square = joint @ grid**2
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    return mean, deviation, square / np.maximum(mean, 1e-12)
