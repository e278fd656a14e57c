"""Formulas on elements of the field, and on the constraints of circuits.

Every formula is written once and run in two ways (``kernels``): on one element at a time by loops
that Numba compiles, and on whole arrays by NumPy. Elements are always below the modulus. Shares are
secret, so nothing here branches or looks up by value: a carry is a comparison that becomes 0 or 1,
and what depends on it is taken by a mask (``tests/unit/prio/test_prio_fields.py`` looks for jumps
in the compiled code).

Field64 has p = 2^64 - 2^32 + 1, so 2^64 = 2^32 - 1 and 2^96 = -1.
"""

from typing import Any

import numpy as np

MODULUS = 2**64 - 2**32 + 1

_U = np.uint64

_HALF = _U(32)

_EPSILON = _U(2**32 - 1)  # 2^64 modulo p, and the lower half of a word


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


def add(a: Any, b: Any) -> Any:
    """Sum of two elements."""
    total = a + b
    reduced = total + _EPSILON
    past = _U(total < a) | _U(reduced < total)
    return total ^ ((total ^ reduced) & (_U(0) - past))


def sub(a: Any, b: Any) -> Any:
    """Difference of two elements."""
    return a - b - (_EPSILON & (_U(0) - _U(a < b)))


def mul(a: Any, b: Any) -> Any:
    """Product of two elements."""
    low, high = wide_mul(a, b)
    return reduce(low, high)


def reduce(low: Any, high: Any) -> Any:
    """A number of two words as an element."""
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


def digit_constraint(middle: Any, squares: Any) -> Any:
    """The product of (middle - k) for whole k whose squares are these, and for k = 0."""
    square = mul(middle, middle)
    product = middle
    for k in range(len(squares)):
        product = mul(product, sub(square, squares[k]))
    return product


def digit_constraints(points: Any, factors: Any, constants: Any, slot: Any, point: Any) -> Any:
    """The constraints of a slot of ``BoundedVector`` at a point, each with its factor.

    ``constants`` are the middle of a digit's values, what upper digits count, and squares. Slot and
    point are numbers, or arrays that broadcast.
    """
    slots = len(factors) // 2
    middle, step, squares = constants[0], constants[1], constants[2:]
    lower, upper = points[slot, point], points[slots + slot, point]
    total = mul(factors[slot], digit_constraint(sub(lower, middle), squares))
    upper_total = mul(factors[slots + slot], digit_constraint(sub(upper, middle), squares))
    total = add(total, upper_total)
    value = add(lower, mul(upper, step))
    return add(total, mul(factors[2 * slots], mul(value, value)))
