"""Loops over vectors of elements, compiled by Numba; ``plain`` has the same ones in NumPy.

The permutation of the hash is written for LLVM directly, lane by lane and without a jump: from
Python code Numba needs ten seconds to compile it.

Numba's cache sees changes in a kernel's own file only: after a change of a formula, ``make clean``.
"""

from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic, overload, register_jitable

from hdpmf.common.aggregation.two_servers.prio import arithmetic
from hdpmf.common.aggregation.two_servers.prio.arithmetic import (
    add,
    digit_constraints,
    mul,
    sub,
    wide_mul,
)
from hdpmf.common.aggregation.two_servers.prio.plain import RATE_LANES, ROTATIONS, ROUNDS

_LANE = ir.IntType(64)

for _formula in (
    *(add, sub, mul, arithmetic.reduce, arithmetic.add_words),
    *(arithmetic.digit_constraint, digit_constraints),
):
    register_jitable(_formula)


@intrinsic
def _wide_mul(context: Any, left: Any, right: Any) -> Any:
    """The product of two words as (low, high)."""

    def generate(context: Any, builder: Any, signature: Any, words: Any) -> Any:
        double = ir.IntType(128)  # no mutant: of a wider one the same halves are taken
        product = builder.mul(*(builder.zext(word, double) for word in words))
        halves = [product, builder.lshr(product, ir.Constant(double, 64))]
        return context.make_tuple(
            builder, signature.return_type, [builder.trunc(half, ir.IntType(64)) for half in halves]
        )

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate


@overload(wide_mul, strict=False)
def _wide_product(left: Any, right: Any) -> Any:
    return lambda left, right: _wide_mul(left, right)


_STRANDS = 16


@njit(nogil=True, cache=True)
def add_vectors(a: Any, b: Any) -> Any:
    """Element by element."""
    out = np.empty_like(a)
    for i in range(len(a)):
        out[i] = add(a[i], b[i])
    return out


@njit(nogil=True, cache=True)
def sub_vectors(a: Any, b: Any) -> Any:
    """Element by element."""
    out = np.empty_like(a)
    for i in range(len(a)):
        out[i] = sub(a[i], b[i])
    return out


@njit(nogil=True, cache=True)
def mul_vectors(a: Any, b: Any) -> Any:
    """Element by element."""
    out = np.empty_like(a)
    for i in range(len(a)):
        out[i] = mul(a[i], b[i])
    return out


@njit(nogil=True, cache=True)
def powers(base: Any, count: Any) -> Any:
    """The first powers of a vector's only element, from the first one on."""
    out = np.empty(count, base.dtype)
    power = base[0]
    for i in range(min(count, _STRANDS)):
        out[i] = power
        power = mul(power, base[0])
    # Sixteen strands: a product need not wait for the one before it.
    for i in range(_STRANDS, count):
        out[i] = mul(out[i - _STRANDS], out[_STRANDS - 1])
    return out


@njit(nogil=True, cache=True)
def combine_rows(factors: Any, rows: Any) -> Any:
    """The sum of a matrix's rows, each times its factor."""
    out = np.zeros(rows.shape[1], rows.dtype)
    for i in range(len(factors)):
        factor = factors[i]
        for j in range(rows.shape[1]):
            out[j] = add(out[j], mul(factor, rows[i, j]))
    return out


@njit(nogil=True, cache=True)
def transform(rows: Any, reversal: Any, roots: Any) -> Any:
    """Each row's polynomial at all the 2 len(roots) powers of a root of unity, in their order.

    Args:
        rows: Coefficients, as many as ``reversal`` has entries (a power of two); further ones are
            zero.
        reversal: Indices with their bits reversed.
        roots: The first half of the root's powers.
    """
    length = len(reversal)
    size = 2 * len(roots)
    out = np.empty((len(rows), size), rows.dtype)
    copies = size // length
    for row in range(len(rows)):
        # The first rounds would only copy, because coefficients from ``length`` on are zero.
        for i in range(size):
            out[row, i] = rows[row, reversal[i // copies]]
        half = copies
        while half < size:
            step = size // (2 * half)
            for start in range(0, size, 2 * half):
                for i in range(half):
                    low = out[row, start + i]
                    high = mul(out[row, start + half + i], roots[i * step])
                    out[row, start + i] = add(low, high)
                    out[row, start + half + i] = sub(low, high)
            half *= 2
    return out


@njit(nogil=True, cache=True)
def sum_of_products(points: Any) -> Any:
    """The sum over pairs of rows of their products."""
    out = np.zeros(points.shape[1], points.dtype)
    for pair in range(0, len(points), 2):
        for i in range(points.shape[1]):
            out[i] = add(out[i], mul(points[pair, i], points[pair + 1, i]))
    return out


@njit(nogil=True, cache=True)
def sum_of_digits(points: Any, factors: Any, constants: Any) -> Any:
    """The constraints of ``BoundedVector`` at many points, over all slots."""
    out = np.zeros(points.shape[1], points.dtype)
    for slot in range(len(factors) // 2):
        for i in range(points.shape[1]):
            out[i] = add(out[i], digit_constraints(points, factors, constants, slot, i))
    return out


@njit(nogil=True, cache=True)
def lagrange(point: Any, nodes: Any, scales: Any) -> Any:
    """How values of a short polynomial at nodes make its value at a point.

    Args:
        scales: For each node the inverse of the product of its differences to the others.
    """
    out = np.empty_like(nodes)
    before = after = np.uint64(1)
    for i in range(len(nodes)):
        out[i] = mul(scales[i], before)
        before = mul(before, sub(point[0], nodes[i]))
    for i in range(len(nodes) - 1, -1, -1):
        out[i] = mul(out[i], after)
        after = mul(after, sub(point[0], nodes[i]))
    return out


@njit(cache=True)
def strided_dot(a: Any, b: Any, begin: Any, step: Any) -> Any:
    """The sum of the products of ``a`` with every ``step``-th element of ``b``, in Field64.

    Products are added in three words and reduced once, which takes half the time; there may be
    2^32 of them.
    """
    low = high = over = np.uint64(0)
    for i in range(len(a)):
        more, much_more = wide_mul(a[i], b[begin + i * step])
        low, carry = arithmetic.add_words(low, more, np.uint64(0))
        high, carry = arithmetic.add_words(high, much_more, carry)
        over += carry
    return sub(arithmetic.reduce(low, high), over << np.uint64(32))  # 2^128 = -2^32


@njit(nogil=True, cache=True)
def inputs_of_parts(weights: Any, seeds: Any, vector: Any, items: Any, slots: Any) -> Any:
    """The seeds and the wires of each call, each times its weight.

    Wires are the first parts of a vector, each of so many items; a call has some slots of each.
    """
    out = np.empty_like(seeds)
    calls = len(weights) - 1
    for part in range(len(seeds) // slots):
        for slot in range(slots):
            full = calls if (calls - 1) * slots + slot < items else calls - 1
            wires = strided_dot(weights[1 : full + 1], vector, part * items + slot, slots)
            seed = mul(weights[0], seeds[part * slots + slot])
            out[part * slots + slot] = add(seed, wires)
    return out


@njit(nogil=True, cache=True)
def quadratic(row: Any, products: Any) -> Any:
    """The sum of row_j row_k p_jk over all ordered pairs; ``products`` are p_jk for j <= k."""
    out = np.zeros(1, row.dtype)
    begin = 0
    for j in range(len(row)):
        above = strided_dot(row[j + 1 :], products, begin + 1, 1)
        whole = add(mul(row[j], products[begin]), add(above, above))
        out[0] = add(out[0], mul(row[j], whole))
        begin += len(row) - j
    return out


def _rotated(builder: Any, lane: Any, by: int) -> Any:
    if by == 0:
        return lane
    return builder.or_(
        builder.shl(lane, ir.Constant(_LANE, by)), builder.lshr(lane, ir.Constant(_LANE, 64 - by))
    )


def _round(
    builder: Any, lanes: dict[tuple[int, int], Any], constant: int
) -> dict[tuple[int, int], Any]:
    """One round of Keccak: theta, rho and pi, chi, iota."""
    xor = builder.xor
    coordinates = list(product(range(5), range(5)))
    parity = []
    for x in range(5):
        column = lanes[x, 0]
        for y in range(1, 5):
            column = xor(column, lanes[x, y])
        parity.append(column)
    spread = [xor(parity[x - 1], _rotated(builder, parity[(x + 1) % 5], 1)) for x in range(5)]
    moved = {
        (y, (2 * x + 3 * y) % 5): _rotated(builder, xor(lanes[x, y], spread[x]), ROTATIONS[x][y])
        for x, y in coordinates
    }
    after = {
        (x, y): xor(
            moved[x, y], builder.and_(builder.not_(moved[(x + 1) % 5, y]), moved[(x + 2) % 5, y])
        )
        for x, y in coordinates
    }
    after[0, 0] = xor(after[0, 0], ir.Constant(_LANE, constant))
    return after


@intrinsic
def _permute(context: Any, state: Any) -> Any:
    """Keccak-p[1600, 12] on an array of 25 words, lane (x, y) at x + 5 y."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointers = {
            (x, y): builder.gep(words, [ir.Constant(_LANE, x + 5 * y)])
            for x in range(5)
            for y in range(5)
        }
        lanes = {lane: builder.load(pointer) for lane, pointer in pointers.items()}
        for constant in ROUNDS:
            lanes = _round(builder, lanes, constant)
        for lane, pointer in pointers.items():
            builder.store(lanes[lane], pointer)
        return context.get_dummy_value()

    return types.void(state), generate


@njit(nogil=True, cache=True)
def sponge(message: Any, out: Any) -> None:
    """Absorb a padded message of whole blocks, then fill ``out``, whole blocks too."""
    state = np.zeros(25, np.uint64)
    last = len(message) - RATE_LANES
    for start in range(0, last + len(out), RATE_LANES):
        if start <= last:
            for i in range(RATE_LANES):
                state[i] ^= message[start + i]
        _permute(state)
        if start >= last:
            for i in range(RATE_LANES):
                out[start - last + i] = state[i]
