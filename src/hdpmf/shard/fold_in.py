"""A new user's vector with the item factors fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hdpmf.kernels.grouping import Grouped

_BLOCK = 8192  # no mutant: users that are solved for at a time
_HALVINGS = 60  # no mutant: further ones are below the precision of a double


def constrained_ridge(factors: np.ndarray, target: np.ndarray, ridge: float, bound: float | None) -> np.ndarray:
    """The vector u that minimises ``|target - factors u|^2 + ridge |u|^2`` subject to ``|u| <= bound``.

    Exact: in the eigenbasis of the normal equations the length of u falls with the ridge, so the constraint only
    asks for the larger ridge at which the length is ``bound``.
    """
    from scipy.optimize import brentq  # here, because importing it takes longer than training starts

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


def constrained_ridges(by_user: Grouped, factors: np.ndarray, ridge: float) -> np.ndarray:
    """``constrained_ridge`` within the unit ball for every user at once, to the precision of the result."""
    K = factors.shape[1]
    matrix = factors.astype(np.float64)
    vectors = np.zeros((by_user.n_rows, K), np.float32)
    floor = max(ridge, 1e-12)
    for first in range(0, by_user.n_rows, _BLOCK):
        rows = range(first, min(first + _BLOCK, by_user.n_rows))
        grams, sides = np.zeros((len(rows), K, K)), np.zeros((len(rows), K))
        for place, row in enumerate(rows):
            own = slice(by_user.start[row], by_user.start[row + 1])
            rated = matrix[by_user.partner[own]]
            grams[place], sides[place] = rated.T @ rated, rated.T @ by_user.target[own]
        values, bases = np.linalg.eigh(grams)
        projected = np.einsum("nkl,nk->nl", bases, sides)
        strength = _strengths(np.maximum(values, 0.0), projected, floor)
        solved = projected / (np.maximum(values, 0.0) + strength)
        vectors[first : first + len(rows)] = np.einsum("nkl,nl->nk", bases, solved)
    return vectors


def _strengths(values: np.ndarray, projected: np.ndarray, floor: float) -> np.ndarray:
    """The ridge of each row, at least ``floor``, that brings its solution into the unit ball."""

    def too_long(strength: np.ndarray) -> np.ndarray:
        return np.asarray(((projected / (values + strength)) ** 2).sum(axis=1, keepdims=True) > 1.0)

    low = np.full((len(values), 1), floor)
    high = np.where(too_long(low), np.linalg.norm(projected, axis=1, keepdims=True) + floor, floor)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        longer = too_long(middle)
        low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    return high
