"""Formulas on elements of the two fields, and on the constraints of circuits.

An element of Field64 is a word, one of Field128 a pair of words (low, high); the type of the array
tells which (``get``, ``put``). Every formula is written once and run in two ways (``kernels``): on
one element at a time by loops that Numba compiles, and on whole arrays by NumPy. Elements are
always below the modulus. Shares are secret, so nothing here branches or looks up by value: a carry
is a comparison that becomes 0 or 1, and what depends on it is taken by a mask
(``tests/unit/prio/test_prio_fields.py`` looks for jumps in the compiled code).

Field64 has p = 2^64 - 2^32 + 1, so 2^64 = 2^32 - 1 and 2^96 = -1. Field128 has p = 2^128 - 28 2^64
+ 1, which is 1 modulo 2^64: Montgomery's factor is a negation, and elements are kept plain by a
second multiplication.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MODULUS64 = 2**64 - 2**32 + 1

MODULUS128 = 2**128 - 28 * 2**64 + 1

_U = np.uint64

_HALF = _U(32)

_EPSILON = _U(2**32 - 1)  # 2^64 modulo p, and the lower half of a word

_HIGH = _U(2**64 - 28)  # the modulus of Field128 is this and, in the low word, 1

_FOLD_LOW = _U(2**64 - 1)
_FOLD_HIGH = _U(27)  # 2^128 modulo p

_SQUARE_LOW, _SQUARE_HIGH = (_U(word) for word in reversed(divmod(2**256 % MODULUS128, 2**64)))

UPPER = 7
"""What the upper digit of a rating's weight counts: 8 + 7 * 8 is the largest weight."""


def wide_mul(left: Any, right: Any) -> Any:
    """The product of two words as (low, high)."""
    upper, lower = left >> _HALF, left & _EPSILON
    high, low = right >> _HALF, right & _EPSILON
    lowest = lower * low
    first = upper * low + (lowest >> _HALF)
    second = lower * high + (first & _EPSILON)
    return (second << _HALF) | (lowest & _EPSILON), upper * high + (first >> _HALF) + (
        second >> _HALF
    )


def add64(a: Any, b: Any) -> Any:
    """Sum in Field64."""
    total = a + b
    reduced = total + _EPSILON
    past = _U(total < a) | _U(reduced < total)
    return total ^ ((total ^ reduced) & (_U(0) - past))


def sub64(a: Any, b: Any) -> Any:
    """Difference in Field64."""
    return a - b - (_EPSILON & (_U(0) - _U(a < b)))


def mul64(a: Any, b: Any) -> Any:
    """Product in Field64."""
    low, high = wide_mul(a, b)
    return reduce64(low, high)


def reduce64(low: Any, high: Any) -> Any:
    """A number of two words in Field64."""
    top = high >> _HALF
    middle = high & _EPSILON
    first = low - top - (_EPSILON & (_U(0) - _U(low < top)))
    second = (middle << _HALF) - middle
    total = first + second
    total += _EPSILON & (_U(0) - _U(total < first))
    reduced = total + _EPSILON
    return total ^ ((total ^ reduced) & (_U(0) - _U(reduced < total)))


def add_words(a: Any, b: Any, carry: Any) -> Any:
    """The sum of two words and a carry, and the next carry."""
    partial = a + b
    total = partial + carry
    return total, _U(partial < a) | _U(total < partial)


def add128(a: Any, b: Any) -> Any:
    """Sum in Field128."""
    low, carry = add_words(a[0], b[0], _U(0))
    high, over = add_words(a[1], b[1], carry)
    low_reduced, carry = add_words(low, _FOLD_LOW, _U(0))
    high_reduced, past = add_words(high, _FOLD_HIGH, carry)
    mask = _U(0) - (over | past)
    return low ^ ((low ^ low_reduced) & mask), high ^ ((high ^ high_reduced) & mask)


def sub128(a: Any, b: Any) -> Any:
    """Difference in Field128."""
    low = a[0] - b[0]
    borrow = _U(a[0] < b[0])
    under = _U(a[1] < b[1]) | (_U(a[1] == b[1]) & borrow)
    high = a[1] - b[1] - borrow
    mask = _U(0) - under
    fold = _FOLD_LOW & mask
    return low - fold, high - (_FOLD_HIGH & mask) - _U(low < fold)


def montgomery(a: Any, b: Any) -> Any:
    """The product divided by 2^128, word by word of ``a``."""
    word0 = _U(0)
    word1 = _U(0)
    word2 = _U(0)
    for digit in a:
        low, carry = wide_mul(digit, b[0])
        word0, over = add_words(word0, low, _U(0))
        carry += over
        low, high = wide_mul(digit, b[1])
        low, over = add_words(low, carry, _U(0))
        word1, once_more = add_words(word1, low, _U(0))
        word2 += high + over + once_more
        # Add the multiple of p that makes the lowest word 0, and drop that word.
        factor = _U(0) - word0
        low, high = wide_mul(factor, _HIGH)
        word0, over = add_words(word1, low, _U(word0 != _U(0)))
        word1, word2 = add_words(word2, high, over)
    low, carry = add_words(word0, _FOLD_LOW, _U(0))
    high, past = add_words(word1, _FOLD_HIGH, carry)
    mask = _U(0) - (past | word2)
    return word0 ^ ((word0 ^ low) & mask), word1 ^ ((word1 ^ high) & mask)


def mul128(a: Any, b: Any) -> Any:
    """Product in Field128."""
    return montgomery(montgomery(a, b), (_SQUARE_LOW, _SQUARE_HIGH))


def get(vector: Any, index: Any) -> Any:
    """Return an element of a vector or matrix, or several of them."""
    return (vector["low"][index], vector["high"][index]) if vector.dtype.names else vector[index]


def put(vector: Any, index: Any, element: Any) -> None:
    """Write an element there."""
    if vector.dtype.names:
        vector["low"][index], vector["high"][index] = element
    else:
        vector[index] = element


def add(a: Any, b: Any) -> Any:
    """Sum of two elements."""
    return add128(a, b) if isinstance(a, tuple) else add64(a, b)


def sub(a: Any, b: Any) -> Any:
    """Difference of two elements."""
    return sub128(a, b) if isinstance(a, tuple) else sub64(a, b)


def mul(a: Any, b: Any) -> Any:
    """Product of two elements."""
    return mul128(a, b) if isinstance(a, tuple) else mul64(a, b)


def digit_constraint(digit: Any, constants: Any) -> Any:
    """The product of (digit - k) for k = 0 to 8, by its symmetry about 4."""
    middle = sub(digit, get(constants, 4))
    square = mul(middle, middle)
    product = mul(middle, sub(square, get(constants, 1)))
    product = mul(product, sub(square, get(constants, 4)))
    product = mul(product, sub(square, get(constants, 9)))
    return mul(product, sub(square, get(constants, 16)))


def rating_constraints(
    points: Any, factors: Any, valued: Any, constants: Any, slot: Any, point: Any
) -> Any:
    """The constraints of a slot of ``OneRatingPerItem`` at a point, each with its factor.

    ``constants`` are 0 to 16. Slot and point are numbers, or arrays that broadcast.
    """
    slots, levels = valued.shape
    lower = get(points, (slot, point))
    upper = get(points, (slots + slot, point))
    level = get(points, (2 * slots + slot, point))
    total = mul(get(factors, (0, slot)), digit_constraint(lower, constants))
    total = add(total, mul(get(factors, (1, slot)), digit_constraint(upper, constants)))
    product = level
    value = get(valued, (slot, levels - 1))
    for k in range(1, levels):
        product = mul(product, sub(level, get(constants, k)))
        value = add(mul(value, level), get(valued, (slot, levels - 1 - k)))
    total = add(total, mul(get(factors, (2, slot)), product))
    weight = add(lower, mul(upper, get(constants, UPPER)))
    return add(total, mul(weight, value))
