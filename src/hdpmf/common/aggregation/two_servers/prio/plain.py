"""The kernels in NumPy: on whole arrays, with the formulas of ``arithmetic``.

For one person's device, which makes one report at a time. All results are those of ``compiled``, to
the bit.
"""

from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.prio.arithmetic import (
    add,
    digit_constraints,
    mul,
    sub,
)

RATE_LANES = 21
"""Words that the hash takes or gives at a time."""

ROTATIONS = (  # of lane (x, y), by x and then y
    (0, 36, 3, 41, 18),
    (1, 44, 10, 45, 2),
    (62, 6, 43, 15, 61),
    (28, 55, 25, 21, 56),
    (27, 20, 39, 8, 14),
)

ROUNDS = (
    *(0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003),
    *(0x8000000000008002, 0x8000000000000080, 0x000000000000800A, 0x800000008000000A),
    *(0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008),
)


_X, _Y = np.divmod(np.arange(25), 5)
_LEFT = np.array(ROTATIONS, np.uint64).ravel()
_RIGHT = (np.uint64(64) - _LEFT) % np.uint64(64)
# Lane (x, y) moves to (y, 2 x + 3 y): the lane that each one comes from.
_FROM = np.argsort(5 * _Y + (2 * _X + 3 * _Y) % 5)
_BEFORE, _AFTER = (np.arange(5) + 4) % 5, (np.arange(5) + 1) % 5
_NEXT, _SECOND = (5 * ((_X + step) % 5) + _Y for step in (1, 2))
_ONE, _REST = np.uint64(1), np.uint64(63)


def add_vectors(a: Any, b: Any) -> Any:
    """Element by element."""
    return add(a, b)


def sub_vectors(a: Any, b: Any) -> Any:
    """Element by element."""
    return sub(a, b)


def mul_vectors(a: Any, b: Any) -> Any:
    """Element by element."""
    return mul(a, b)


def powers(base: Any, count: Any) -> Any:
    """The first powers of a vector's only element, from the first one on."""
    out = np.empty(count, base.dtype)
    out[:1] = base[:1]
    done = 1
    while done < count:
        more = min(done, count - done)
        out[done : done + more] = mul(out[:more], out[done - 1])
        done += more
    return out


def combine_rows(factors: Any, rows: Any) -> Any:
    """The sum of a matrix's rows, each times its factor."""
    return _sum_of_rows(mul(factors[:, None], rows))


def _sum_of_rows(rows: Any) -> Any:
    """Add up a matrix's rows, one half to the other."""
    if not len(rows):
        return np.zeros(rows.shape[1], rows.dtype)
    while len(rows) > 1:
        half = len(rows) // 2
        summed = add(rows[:half], rows[half : 2 * half])
        rows = np.concatenate([summed, rows[2 * half :]])
    return rows[0]


def transform(rows: Any, reversal: Any, roots: Any) -> Any:
    """Each row's polynomial at all powers of a root of unity, as ``compiled.transform``."""
    size = 2 * len(roots)
    half = size // len(reversal)
    out = np.repeat(rows[:, reversal], half, axis=1)
    while half < size:
        pairs = out.reshape(len(rows), size // (2 * half), 2, half)
        low, high = pairs[:, :, 0], mul(pairs[:, :, 1], roots[:: size // (2 * half)])
        pairs[:, :, 0], pairs[:, :, 1] = add(low, high), sub(low, high)
        half *= 2
    return out


def sum_of_products(points: Any) -> Any:
    """The sum over pairs of rows of their products."""
    return _sum_of_rows(mul(points[::2], points[1::2]))


def sum_of_digits(points: Any, factors: Any, constants: Any) -> Any:
    """The constraints of ``BoundedVector`` at many points, over all slots."""
    slots, n_points = np.arange(len(factors) // 2)[:, None], np.arange(points.shape[1])
    return _sum_of_rows(digit_constraints(points, factors, constants, slots, n_points))


def lagrange(point: Any, nodes: Any, scales: Any) -> Any:
    """How values of a short polynomial at nodes make its value at a point."""
    differences = sub(np.repeat(point, len(nodes)), nodes)
    before, after = _products_before(differences), _products_before(differences[::-1])[::-1]
    return mul(mul(before, after), scales)


def _products_before(factors: Any) -> Any:
    """For each factor the product of those before it."""
    out = np.concatenate([np.ones(1, factors.dtype), factors[:-1]])
    step = 1
    while step < len(out):
        out[step:] = mul(out[step:], out[:-step])
        step *= 2
    return out


def _by_call(part: Any, slots: Any) -> Any:
    """A row per call, padded with zeros."""
    padded = np.zeros(-(-len(part) // slots) * slots, part.dtype)
    padded[: len(part)] = part
    return padded.reshape(-1, slots)


def inputs_of_parts(weights: Any, seeds: Any, vector: Any, items: Any, slots: Any) -> Any:
    """The seeds and the wires of each call, each times its weight, as in ``compiled``."""
    wires = range(len(seeds) // slots)
    parts = [_by_call(vector[k * items : (k + 1) * items], slots) for k in wires]
    rows = np.concatenate([seeds.reshape(1, -1), np.concatenate(parts, axis=1)])
    return combine_rows(weights, rows)


def quadratic(row: Any, products: Any) -> Any:
    """The sum of row_j row_k p_jk over all ordered pairs; ``products`` are p_jk for j <= k."""
    left, right = np.triu_indices(len(row))
    terms = mul(mul(row[left], row[right]), products)
    twice = np.where(left < right, terms, np.uint64(0))  # both are public
    return add(_sum_of_rows(terms[:, None]), _sum_of_rows(twice[:, None]))


def sponge(message: Any, out: Any) -> None:
    """Absorb a padded message of whole blocks, then fill ``out``, whole blocks too."""
    state = np.zeros(25, np.uint64)  # lane (x, y) at 5 x + y
    order = 5 * (np.arange(RATE_LANES) % 5) + np.arange(RATE_LANES) // 5
    last = len(message) - RATE_LANES
    for start in range(0, last + len(out), RATE_LANES):
        if start <= last:
            state[order] ^= message[start : start + RATE_LANES]
        state = _permuted(state)
        if start >= last:
            out[start - last : start - last + RATE_LANES] = state[order]


def _permuted(lanes: Any) -> Any:
    """Keccak-p[1600, 12]: theta, rho and pi, chi, iota in each round."""
    for constant in ROUNDS:
        parity = np.bitwise_xor.reduce(lanes.reshape(5, 5), axis=1)
        after = parity[_AFTER]
        spread = parity[_BEFORE] ^ (after << _ONE | after >> _REST)
        lanes = lanes ^ np.repeat(spread, 5)
        lanes = (lanes << _LEFT | lanes >> _RIGHT)[_FROM]
        lanes = lanes ^ (~lanes[_NEXT] & lanes[_SECOND])
        lanes[0] ^= np.uint64(constant)
    return lanes
