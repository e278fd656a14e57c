"""Elements of the two fields inside kernels: ``get``, ``put``, ``add``, ``sub``, ``mul``.

An element of Field64 is a word, one of Field128 a pair of words (low, high); the type of the array
tells which, so that every kernel is written once. Elements are always below the modulus. Shares are
secret, so nothing here branches or looks up by value: a carry is a comparison that becomes 0 or 1,
and what depends on it is taken by a mask (``tests/unit/prio/test_prio_fields.py`` looks for jumps
in the compiled code).

Field64 has p = 2^64 - 2^32 + 1, so 2^64 = 2^32 - 1 and 2^96 = -1. Field128 has p = 2^128 - 28 2^64
+ 1, which is 1 modulo 2^64: Montgomery's factor is a negation, and elements are kept plain by a
second multiplication.

Numba's cache sees changes in a kernel's own file only: after a change here, ``make clean``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic, overload

MODULUS64 = 2**64 - 2**32 + 1

MODULUS128 = 2**128 - 28 * 2**64 + 1

_U = np.uint64

_EPSILON = _U(2**32 - 1)  # 2^64 modulo p

_HIGH = _U(2**64 - 28)  # the modulus of Field128 is this and, in the low word, 1

_FOLD_LOW = _U(2**64 - 1)
_FOLD_HIGH = _U(27)  # 2^128 modulo p

_SQUARE_LOW, _SQUARE_HIGH = (_U(word) for word in reversed(divmod(2**256 % MODULUS128, 2**64)))


@intrinsic
def wide_mul(context: Any, left: Any, right: Any) -> Any:
    """The product of two words as (low, high)."""

    def generate(context: Any, builder: Any, signature: Any, words: Any) -> Any:
        double = ir.IntType(128)  # no mutant: of a wider one the same halves are taken
        product = builder.mul(*(builder.zext(word, double) for word in words))
        halves = [product, builder.lshr(product, ir.Constant(double, 64))]
        return context.make_tuple(
            builder, signature.return_type, [builder.trunc(half, ir.IntType(64)) for half in halves]
        )

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate


@njit(cache=True)
def add64(a: Any, b: Any) -> Any:
    """Sum in Field64."""
    total = a + b
    reduced = total + _EPSILON
    past = _U(total < a) | _U(reduced < total)
    return total ^ ((total ^ reduced) & (_U(0) - past))


@njit(cache=True)
def sub64(a: Any, b: Any) -> Any:
    """Difference in Field64."""
    return a - b - (_EPSILON & (_U(0) - _U(a < b)))


@njit(cache=True)
def mul64(a: Any, b: Any) -> Any:
    """Product in Field64."""
    low, high = wide_mul(a, b)
    top = high >> _U(32)
    middle = high & _EPSILON
    first = low - top - (_EPSILON & (_U(0) - _U(low < top)))
    second = (middle << _U(32)) - middle
    total = first + second
    total += _EPSILON & (_U(0) - _U(total < first))
    reduced = total + _EPSILON
    return total ^ ((total ^ reduced) & (_U(0) - _U(reduced < total)))


@njit(cache=True)
def _add_words(a: Any, b: Any, carry: Any) -> Any:
    partial = a + b
    total = partial + carry
    return total, _U(partial < a) | _U(total < partial)


@njit(cache=True)
def add128(a: Any, b: Any) -> Any:
    """Sum in Field128."""
    low, carry = _add_words(a[0], b[0], _U(0))
    high, over = _add_words(a[1], b[1], carry)
    low_reduced, carry = _add_words(low, _FOLD_LOW, _U(0))
    high_reduced, past = _add_words(high, _FOLD_HIGH, carry)
    mask = _U(0) - (over | past)
    return low ^ ((low ^ low_reduced) & mask), high ^ ((high ^ high_reduced) & mask)


@njit(cache=True)
def sub128(a: Any, b: Any) -> Any:
    """Difference in Field128."""
    low = a[0] - b[0]
    borrow = _U(a[0] < b[0])
    under = _U(a[1] < b[1]) | (_U(a[1] == b[1]) & borrow)
    high = a[1] - b[1] - borrow
    mask = _U(0) - under
    fold = _FOLD_LOW & mask
    return low - fold, high - (_FOLD_HIGH & mask) - _U(low < fold)


@njit(cache=True)
def _montgomery(a: Any, b: Any) -> Any:
    """The product divided by 2^128, word by word of ``a``."""
    word0 = _U(0)
    word1 = _U(0)
    word2 = _U(0)
    for digit in a:
        low, carry = wide_mul(digit, b[0])
        word0, over = _add_words(word0, low, _U(0))
        carry += over
        low, high = wide_mul(digit, b[1])
        low, over = _add_words(low, carry, _U(0))
        word1, once_more = _add_words(word1, low, _U(0))
        word2 += high + over + once_more
        # Add the multiple of p that makes the lowest word 0, and drop that word.
        factor = _U(0) - word0
        low, high = wide_mul(factor, _HIGH)
        word0, over = _add_words(word1, low, _U(word0 != _U(0)))
        word1, word2 = _add_words(word2, high, over)
    low, carry = _add_words(word0, _FOLD_LOW, _U(0))
    high, past = _add_words(word1, _FOLD_HIGH, carry)
    mask = _U(0) - (past | word2)
    return word0 ^ ((word0 ^ low) & mask), word1 ^ ((word1 ^ high) & mask)


@njit(cache=True)
def mul128(a: Any, b: Any) -> Any:
    """Product in Field128."""
    return _montgomery(_montgomery(a, b), (_SQUARE_LOW, _SQUARE_HIGH))


def get(vector: Any, index: Any) -> Any:
    """Return an element of a vector or matrix; for kernels only, as all below."""
    raise NotImplementedError


def put(vector: Any, index: Any, element: Any) -> None:
    """Write an element there."""
    raise NotImplementedError


def add(a: Any, b: Any) -> Any:
    """Sum of two elements."""
    raise NotImplementedError


def sub(a: Any, b: Any) -> Any:
    """Difference of two elements."""
    raise NotImplementedError


def mul(a: Any, b: Any) -> Any:
    """Product of two elements."""
    raise NotImplementedError


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
