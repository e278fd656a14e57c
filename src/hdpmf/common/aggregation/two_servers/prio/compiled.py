"""Loops over vectors of elements, compiled by Numba; ``plain`` has the same ones in NumPy.

The permutation of the hash is written for LLVM directly, lane by lane and without a jump: from
Python code Numba needs ten seconds to compile it.

Numba's cache sees changes in a kernel's own file only: after a change of a formula, ``make clean``.
"""

from __future__ import annotations

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
    add64,
    add128,
    get,
    mul,
    mul64,
    mul128,
    put,
    rating_constraints,
    sub,
    sub64,
    sub128,
    wide_mul,
)
from hdpmf.common.aggregation.two_servers.prio.plain import RATE_LANES, ROTATIONS, ROUNDS

_LANE = ir.IntType(64)

for _formula in (
    *(add64, sub64, arithmetic.reduce64, mul64, add128, sub128, mul128),
    *(arithmetic.add_words, arithmetic.montgomery),
    *(arithmetic.digit_constraint, rating_constraints),
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


def _is_pair(kind: Any) -> bool:
    return isinstance(getattr(kind, "dtype", kind), types.Record) or isinstance(
        kind, types.UniTuple
    )


@overload(get, strict=False)
def _get(vector: Any, index: Any) -> Any:
    if _is_pair(vector):
        return lambda vector, index: (vector[index].low, vector[index].high)
    return lambda vector, index: vector[index]


@overload(put, strict=False)
def _put(vector: Any, index: Any, element: Any) -> Any:
    def put_pair(vector: Any, index: Any, element: Any) -> None:
        vector[index].low = element[0]
        vector[index].high = element[1]

    def put_word(vector: Any, index: Any, element: Any) -> None:
        vector[index] = element

    return put_pair if _is_pair(vector) else put_word


@overload(add, strict=False)
def _add(a: Any, b: Any) -> Any:
    return (lambda a, b: add128(a, b)) if _is_pair(a) else (lambda a, b: add64(a, b))


@overload(sub, strict=False)
def _sub(a: Any, b: Any) -> Any:
    return (lambda a, b: sub128(a, b)) if _is_pair(a) else (lambda a, b: sub64(a, b))


@overload(mul, strict=False)
def _mul(a: Any, b: Any) -> Any:
    return (lambda a, b: mul128(a, b)) if _is_pair(a) else (lambda a, b: mul64(a, b))


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


@njit(nogil=True, cache=True)
def sum_of_products(points: Any) -> Any:
    """The sum over pairs of rows of their products."""
    out = np.zeros(points.shape[1], points.dtype)
    for pair in range(0, len(points), 2):
        for i in range(points.shape[1]):
            put(out, i, add(get(out, i), mul(get(points, (pair, i)), get(points, (pair + 1, i)))))
    return out


@njit(nogil=True, cache=True)
def sum_of_constraints(points: Any, factors: Any, valued: Any, constants: Any) -> Any:
    """The constraints of ``OneRatingPerItem`` at many points, over all slots."""
    out = np.zeros(points.shape[1], points.dtype)
    for slot in range(len(valued)):
        for i in range(points.shape[1]):
            term = rating_constraints(points, factors, valued, constants, slot, i)
            put(out, i, add(get(out, i), term))
    return out


@njit(nogil=True, cache=True)
def at_point(
    polynomial: Any, point: Any, one: Any, reversal: Any, roots: Any, inverse: Any, scale: Any
) -> Any:
    """Return a polynomial at a point and at roots of unity, and how values there make the first.

    Args:
        polynomial: Its coefficients; there may be more than roots.
        point: A vector of one element.
        one: 1, as such a vector.
        reversal: As for ``transform``, for as many coefficients as there are roots.
        roots: As for ``transform``.
        inverse: The same of the inverse root.
        scale: The inverse of the number of roots, as a vector of one element.

    Returns:
        Weights: with these, values of a short polynomial at the roots make its value at the point;
        the polynomial at the roots; the polynomial at the point; the point to the number of roots.
    """
    span = len(reversal)
    count = max(span + 1, len(polynomial))
    power = np.empty(count, polynomial.dtype)
    put(power, 0, get(one, 0))
    further = powers(point, count - 1)
    for i in range(1, count):
        put(power, i, get(further, i - 1))
    folded = np.zeros((1, span), polynomial.dtype)
    value = np.zeros(1, polynomial.dtype)
    for i in range(len(polynomial)):
        put(folded, (0, i % span), add(get(folded, (0, i % span)), get(polynomial, i)))
        put(value, 0, add(get(value, 0), mul(get(polynomial, i), get(power, i))))
    outputs = transform(folded, reversal, roots)[0]
    weights = transform(power[:span].copy().reshape(1, span), reversal, inverse)[0]
    for i in range(span):
        put(weights, i, mul(get(weights, i), get(scale, 0)))
    return weights, outputs, value, power[span : span + 1]


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
    return sub64(arithmetic.reduce64(low, high), over << np.uint64(32))  # 2^128 = -2^32


@njit(nogil=True, cache=True)
def rating_inputs(weights: Any, seeds: Any, vector: Any, items: Any, slots: Any) -> Any:
    """The seeds and the wires of each call of ``OneRatingPerItem``, each times its weight."""
    out = np.empty(3 * slots, vector.dtype)
    calls = len(weights) - 1
    for part in range(3):
        for slot in range(slots):
            full = calls if (calls - 1) * slots + slot < items else calls - 1
            wires = strided_dot(weights[1 : full + 1], vector, part * items + slot, slots)
            seed = mul64(weights[0], seeds[part * slots + slot])
            out[part * slots + slot] = add64(seed, wires)
    return out


@njit(nogil=True, cache=True)
def rating_result(
    outputs: Any, vector: Any, factors: Any, joint: Any, items: Any, slots: Any
) -> Any:
    """What calls of ``OneRatingPerItem`` give, less scores and subtotals, with their factors."""
    out = np.zeros(1, vector.dtype)
    for call in range(len(outputs)):
        first = call * slots
        here = factors[3 * slots : 3 * slots + min(slots, items - first)]
        claimed = add64(
            strided_dot(here, vector, 3 * items + first, 1),
            mul64(factors[4 * slots], vector[4 * items + call]),
        )
        out[0] = add64(out[0], mul64(joint[1 + call], sub64(outputs[call], claimed)))
    return out


@njit(nogil=True, cache=True)
def rating_values(factors: Any, polynomials: Any) -> Any:
    """For each slot of ``OneRatingPerItem`` the polynomial of code and ruler, with factors."""
    slots = len(factors) // 4
    out = np.empty((slots, polynomials.shape[1]), factors.dtype)
    for slot in range(slots):
        for k in range(polynomials.shape[1]):
            code = mul64(factors[3 * slots + slot], polynomials[0, k])
            out[slot, k] = add64(code, mul64(factors[4 * slots], polynomials[1, k]))
    return out


@njit(nogil=True, cache=True)
def rating_outputs(vector: Any, items: Any, upper: Any) -> Any:
    """Scores, weights and the sum of subtotals; ``upper`` is what upper digits count."""
    out = np.zeros(2 * items + 1, vector.dtype)
    for i in range(items):
        out[i] = vector[3 * items + i]
        out[items + i] = add64(vector[i], mul64(vector[items + i], upper[0]))
    for i in range(4 * items, len(vector)):
        out[2 * items] = add64(out[2 * items], vector[i])
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
