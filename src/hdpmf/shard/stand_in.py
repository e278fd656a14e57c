"""Vectors that stand in for users where their own would tell about their ratings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hdpmf.kernels.grouping import Grouped

_WITHIN = np.float32(1.0 - 1e-6)


def stand_in_vectors(by_user: Grouped, V: np.ndarray) -> np.ndarray:
    """The direction of the mean of the items that each user rated, whatever the ratings were; at most unit length.

    The factor just below 1 keeps rounded lengths within the unit ball, which the noise is calibrated to. A user
    without ratings, or whose items cancel out, gets 0.
    """
    from scipy.sparse import csr_array  # here, because importing it takes longer than training starts

    ones = np.ones(len(by_user.partner), V.dtype)
    rated = csr_array((ones, by_user.partner, by_user.start), shape=(by_user.n_rows, len(V)))
    sums: np.ndarray = rated @ V
    lengths = np.linalg.norm(sums.astype(np.float64), axis=1, keepdims=True)
    usable = np.isfinite(lengths) & (lengths > np.finfo(np.float32).tiny)
    directions = np.divide(sums, lengths, out=np.zeros_like(sums, np.float64), where=usable)
    return np.ascontiguousarray(directions.astype(V.dtype) * _WITHIN)
