"""Gradients as whole numbers: on a grid, noise is exact and sums are."""

from __future__ import annotations

import numpy as np

GRADIENT_STEP = 2.0**-20
"""What 1 stands for in a sum of gradients."""

_LARGEST = 2.0**41


def to_grid(gradients: np.ndarray) -> np.ndarray:
    """Gradients in whole units of ``GRADIENT_STEP``; what is beyond 2^41 becomes that, and what is
    no number 0.

    Nothing is refused here: whoever could choose the factors would learn from a refusal which
    gradients are large.
    """
    finite = np.nan_to_num(gradients.astype(np.float64), nan=0.0).clip(-_LARGEST, _LARGEST)
    return np.rint(finite * (1.0 / GRADIENT_STEP)).astype(np.int64)


def from_grid(units: np.ndarray) -> np.ndarray:
    """What whole units of ``GRADIENT_STEP`` stand for, as float32."""
    return (units * GRADIENT_STEP).astype(np.float32)
