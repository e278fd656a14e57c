"""A new user's vector with the item factors fixed."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq


def constrained_ridge(factors: np.ndarray, target: np.ndarray, ridge: float, bound: float | None) -> np.ndarray:
    """The vector u that minimises ``|target - factors u|^2 + ridge |u|^2`` subject to ``|u| <= bound``.

    Exact: in the eigenbasis of the normal equations the length of u falls with the ridge, so the constraint only
    asks for the larger ridge at which the length is ``bound``.
    """
    matrix = factors.astype(np.float64)
    values, basis = np.linalg.eigh(matrix.T @ matrix)
    values = np.maximum(values, 0.0)
    projected = basis.T @ (matrix.T @ target)

    def solution(strength: float) -> np.ndarray:
        return np.asarray(projected / (values + strength))

    def excess(strength: float) -> float:
        return float(np.linalg.norm(solution(strength))) - float(bound or 0.0)

    floor = max(ridge, 1e-12)
    if bound is None or excess(floor) <= 0:
        best = solution(floor)
    else:
        ceiling = float(np.linalg.norm(projected)) / bound + floor
        best = solution(float(brentq(excess, floor, ceiling)))
    return np.asarray(basis @ best, np.float32)
