"""Gradients as whole numbers: on a grid, noise is exact and sums are."""

from __future__ import annotations

import numpy as np

from hdpmf.errors import ProtocolError

GRADIENT_STEP = 2.0**-20
"""What 1 stands for in a sum of gradients."""

_LARGEST = 2.0**61


def to_grid(gradients: np.ndarray) -> np.ndarray:
    """Gradients in whole units of ``GRADIENT_STEP``.

    Raises:
        ProtocolError: One is too large (beyond 2^41) or not a number.
    """
    units = np.rint(gradients.astype(np.float64) * (1.0 / GRADIENT_STEP))
    if not bool((np.abs(units) < _LARGEST).all()):
        raise ProtocolError("gradients are too large for the grid; nothing was sent")
    return units.astype(np.int64)


def from_grid(units: np.ndarray) -> np.ndarray:
    """What whole units of ``GRADIENT_STEP`` stand for, as float32."""
    return (units * GRADIENT_STEP).astype(np.float32)
