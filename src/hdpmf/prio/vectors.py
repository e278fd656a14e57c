"""Loops over vectors and matrices of field elements, the same code for both fields.

They are functions of a module, compiled when first called and kept on the disk by Numba: another process starts at
once. Sizes are public and may decide which way to go; elements never do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hdpmf.prio.arithmetic import add, get, mul, put, sub

_STRANDS = 16


@njit(nogil=True, cache=True)
def add_vectors(a: Any, b: Any) -> Any:
    """Element by element."""
    out = np.empty_like(a)
    for i in range(len(a)):
        put(out, i, add(get(a, i), get(b, i)))
    return out


@njit(nogil=True, cache=True)
def sub_vectors(a: Any, b: Any) -> Any:
    """Element by element."""
    out = np.empty_like(a)
    for i in range(len(a)):
        put(out, i, sub(get(a, i), get(b, i)))
    return out


@njit(nogil=True, cache=True)
def mul_vectors(a: Any, b: Any) -> Any:
    """Element by element."""
    out = np.empty_like(a)
    for i in range(len(a)):
        put(out, i, mul(get(a, i), get(b, i)))
    return out


@njit(nogil=True, cache=True)
def powers(base: Any, count: Any) -> Any:
    """The first powers of a vector's only element, from the first one on."""
    out = np.empty(count, base.dtype)
    power = get(base, 0)
    for i in range(min(count, _STRANDS)):
        put(out, i, power)
        power = mul(power, get(base, 0))
    # Sixteen strands: a product need not wait for the one before it.
    for i in range(_STRANDS, count):
        put(out, i, mul(get(out, i - _STRANDS), get(out, _STRANDS - 1)))
    return out


@njit(nogil=True, cache=True)
def combine_rows(factors: Any, rows: Any) -> Any:
    """The sum of a matrix's rows, each times its factor."""
    out = np.zeros(rows.shape[1], rows.dtype)
    for i in range(len(factors)):
        factor = get(factors, i)
        for j in range(rows.shape[1]):
            put(out, j, add(get(out, j), mul(factor, get(rows, (i, j)))))
    return out


@njit(nogil=True, cache=True)
def transform(rows: Any, reversal: Any, roots: Any) -> Any:
    """Each row's polynomial at all the 2 len(roots) powers of a root of unity, in their order.

    Args:
        rows: Coefficients, as many as ``reversal`` has places (a power of two); further ones are zero.
        reversal: The places with their bits in the other order.
        roots: The first half of the root's powers.
    """
    length, size = len(reversal), 2 * len(roots)
    out = np.empty((len(rows), size), rows.dtype)
    copies = size // length
    for row in range(len(rows)):
        # The first rounds would only copy, because coefficients from ``length`` on are zero.
        for i in range(size):
            put(out, (row, i), get(rows, (row, reversal[i // copies])))
        half = copies
        while half < size:
            step = size // (2 * half)
            for start in range(0, size, 2 * half):
                for i in range(half):
                    low = get(out, (row, start + i))
                    high = mul(get(out, (row, start + half + i)), get(roots, i * step))
                    put(out, (row, start + i), add(low, high))
                    put(out, (row, start + half + i), sub(low, high))
            half *= 2
    return out
