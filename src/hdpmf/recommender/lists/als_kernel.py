"""The loops of implicit ALS: a few steps of conjugate gradients for each row, on the rows' own threads.

A row's system is ``gram + ridge I + sum of y y^T`` over the vectors y of its partners. It is never formed: conjugate
gradients only multiply with it, which takes two passes over a partner's vector instead of rank of them. Rows are
independent, and the Gram matrix is summed in blocks of fixed size, so threads do not change results.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Sums may be reordered and fused, so that they are vectors' work; nothing is assumed about infinities or NaN.
_FAST = {"reassoc", "contract", "nsz"}
_NOTHING_LEFT = np.float32(1e-12)


@njit(cache=True, nogil=True, fastmath=_FAST)
def add_gram(first: int, end: int, vectors: np.ndarray, out: np.ndarray) -> None:
    """Add vectors^T vectors of some rows to ``out``."""
    rank = vectors.shape[1]
    for row in range(first, end):
        vector = vectors[row]
        for j in range(rank):
            factor, line = vector[j], out[j]
            for k in range(rank):
                line[k] += factor * vector[k]


@njit(cache=True, nogil=True, fastmath=_FAST)
def sum_partners(
    first: int, end: int, start: np.ndarray, partners: np.ndarray, vectors: np.ndarray, out: np.ndarray
) -> None:
    """For some rows, the sum of their partners' vectors."""
    rank = vectors.shape[1]
    for row in range(first, end):
        line = out[row]
        line[:] = 0.0
        for place in range(start[row], start[row + 1]):
            vector = vectors[partners[place]]
            for k in range(rank):
                line[k] += vector[k]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _multiply(
    own: np.ndarray,
    fixed: np.ndarray,
    gram: np.ndarray,
    ridge: np.float32,
    vector: np.ndarray,
    target: np.float32,
    out: np.ndarray,
) -> None:
    """The system times a vector, less ``target`` times the sum of the partners' vectors; four partners at a time."""
    rank = len(vector)
    for k in range(rank):
        out[k] = ridge * vector[k]
    for j in range(rank):
        factor, line = vector[j], gram[j]
        for k in range(rank):
            out[k] += factor * line[k]
    whole = len(own) - len(own) % 4
    for place in range(0, whole, 4):
        p, q, r, s = fixed[own[place]], fixed[own[place + 1]], fixed[own[place + 2]], fixed[own[place + 3]]
        a, b, c, d = -target, -target, -target, -target
        for k in range(rank):
            a += p[k] * vector[k]
            b += q[k] * vector[k]
            c += r[k] * vector[k]
            d += s[k] * vector[k]
        for k in range(rank):
            out[k] += a * p[k] + b * q[k] + c * r[k] + d * s[k]
    for place in range(whole, len(own)):
        p = fixed[own[place]]
        a = -target
        for k in range(rank):
            a += p[k] * vector[k]
        for k in range(rank):
            out[k] += a * p[k]


@njit(cache=True, nogil=True, fastmath=_FAST)
def solve_rows(
    first: int,
    end: int,
    start: np.ndarray,
    partners: np.ndarray,
    fixed: np.ndarray,
    free: np.ndarray,
    gram: np.ndarray,
    ridge: np.float32,
    ridge_per_partner: np.float32,
    steps: int,
) -> None:
    """Some rows of ``free``, by so many steps from where they are."""
    rank = fixed.shape[1]
    residual, direction, image = np.empty(rank, np.float32), np.empty(rank, np.float32), np.empty(rank, np.float32)
    for row in range(first, end):
        own, solution = partners[start[row] : start[row + 1]], free[row]
        if len(own) == 0:
            solution[:] = 0.0
            continue
        weight = ridge + ridge_per_partner * np.float32(len(own))
        _multiply(own, fixed, gram, weight, solution, np.float32(1.0), image)
        size = np.float32(0.0)
        for k in range(rank):
            residual[k] = -image[k]
            direction[k] = residual[k]
            size += residual[k] * residual[k]
        for _ in range(steps):
            if size < _NOTHING_LEFT:
                break
            _multiply(own, fixed, gram, weight, direction, np.float32(0.0), image)
            curvature = np.float32(0.0)
            for k in range(rank):
                curvature += direction[k] * image[k]
            length, left = size / curvature, np.float32(0.0)
            for k in range(rank):
                solution[k] += length * direction[k]
                residual[k] -= length * image[k]
                left += residual[k] * residual[k]
            for k in range(rank):
                direction[k] = residual[k] + left / size * direction[k]
            size = left
