"""Shamir's secret sharing over a prime field, for secrets of 32 bytes.

A secret is the constant term of a random polynomial of degree ``threshold - 1``; a share is its
value at a small point 1, 2, ... Any ``threshold`` shares give the secret; fewer say nothing about
it, whatever is known besides.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping

from hdpmf.errors import SecureSumError

PRIME = 2**256 + 297
"""The smallest prime above 2^256 (a test checks that it is one): every secret of 32 bytes is an
element.
"""

SECRET_BYTES = 32
SHARE_BYTES = 33

# 135 bits more than the prime: a draw reduced modulo it is uniform to within 2^-135.
_DRAW_BYTES = 49


def split(secret: bytes, threshold: int, n_points: int) -> list[bytes]:
    """Return shares of a secret of 32 bytes at the points 1 to ``n_points``."""
    if len(secret) != SECRET_BYTES:
        raise SecureSumError(f"a secret to share has {SECRET_BYTES} bytes, not {len(secret)}")
    if not 1 <= threshold <= n_points:
        raise SecureSumError(f"a threshold of {threshold} does not fit {n_points} shares")
    draws = secrets.token_bytes(_DRAW_BYTES * (threshold - 1))
    coefficients = [int.from_bytes(secret, "little")]
    coefficients += [
        int.from_bytes(draws[start : start + _DRAW_BYTES], "little") % PRIME
        for start in range(0, len(draws), _DRAW_BYTES)
    ]
    coefficients.reverse()
    return [
        _value(coefficients, point).to_bytes(SHARE_BYTES, "little")
        for point in range(1, n_points + 1)
    ]


def _value(coefficients: list[int], point: int) -> int:
    """Evaluate a polynomial, highest coefficient first. Small points need one reduction only."""
    value = 0
    for coefficient in coefficients:
        value = value * point + coefficient
    return value % PRIME


def join(shares: Mapping[int, bytes], n_points: int) -> bytes | None:
    """Return the secret of shares (by point); None if they belong to no secret of 32 bytes.

    All shares given are used. They must be at least the threshold, which the shares themselves do
    not tell: with fewer, or with a wrong one among them, the answer is another number, so the
    caller compares it with a commitment.

    The weight of the share at x, for the full set of points, is (-1)^(x-1) * C(n, x); a missing
    point m multiplies it by (m - x) / m. That is integer arithmetic with one division at the end,
    much faster than Lagrange's products.
    """
    if not shares or min(shares) < 1 or max(shares) > n_points:
        raise SecureSumError(f"shares must be at points from 1 to {n_points}")
    missing = [point for point in range(1, n_points + 1) if point not in shares]
    total = 0
    for point, share in shares.items():
        value = _element(share)
        weight = math.comb(n_points, point) * math.prod(m - point for m in missing)
        total += value * (weight if point % 2 else -weight)
    secret = total * pow(math.prod(missing), -1, PRIME) % PRIME
    return secret.to_bytes(SECRET_BYTES, "little") if secret < 1 << (8 * SECRET_BYTES) else None


def correct(shares: Mapping[int, bytes], threshold: int) -> dict[int, bytes] | None:
    """Return the shares on one polynomial if at most (shares - threshold) / 2 are wrong; else None.

    This is the decoder of Berlekamp and Welch: a polynomial E that is zero at the wrong points and
    a polynomial Q = P * E are found together, from the linear equations Q(x) = share(x) * E(x);
    then P = Q / E.
    """
    points = list(shares)
    values = [_element(share) for share in shares.values()]
    wrong = (len(points) - threshold) // 2
    if wrong < 0:
        return None
    rows = []
    for x, value in zip(points, values, strict=True):
        powers = [pow(x, power, PRIME) for power in range(threshold + wrong)]
        # Unknown: the coefficients of Q, then those of E but for its first, which is 1.
        rows.append(
            [
                *powers,
                *(-value * power % PRIME for power in powers[:wrong]),
                value * pow(x, wrong, PRIME) % PRIME,
            ]
        )
    solution = _solve(rows)
    if solution is None:
        return None
    product = solution[: threshold + wrong]
    locator = [*solution[threshold + wrong :], 1]
    quotient = _divide(product, locator)
    if quotient is None:
        return None
    quotient.reverse()
    good = {
        x: share
        for (x, share), value in zip(shares.items(), values, strict=True)
        if _value(quotient, x) == value
    }
    return good if len(good) >= len(points) - wrong else None


def _element(share: bytes) -> int:
    value = int.from_bytes(share, "little")
    if len(share) != SHARE_BYTES or value >= PRIME:
        raise SecureSumError(
            f"a share has {SHARE_BYTES} bytes and is smaller than the prime of the field"
        )
    return value


def _solve(rows: list[list[int]]) -> list[int] | None:
    """Solve linear equations (rows: coefficients, right side); None if there is no solution."""
    width = len(rows[0]) - 1
    pivots: list[int] = []
    for column in range(width):
        rank = len(pivots)
        pivot_row = next((row for row in range(rank, len(rows)) if rows[row][column]), None)
        if pivot_row is None:
            continue
        rows[rank], rows[pivot_row] = rows[pivot_row], rows[rank]
        inverse = pow(rows[rank][column], -1, PRIME)
        pivot = rows[rank] = [value * inverse % PRIME for value in rows[rank]]
        for row, values in enumerate(rows):
            if row != rank and (factor := values[column]):
                rows[row] = [
                    (value - factor * by) % PRIME for value, by in zip(values, pivot, strict=True)
                ]
        pivots.append(column)
    if any(row[-1] for row in rows[len(pivots) :]):
        return None
    # Where the equations leave a choice, any solution leads to the same polynomial.
    solution = [0] * width
    for row, column in enumerate(pivots):
        solution[column] = rows[row][-1]
    return solution


def _divide(product: list[int], by: list[int]) -> list[int] | None:
    """Divide polynomials, lowest coefficient first, ``by`` monic; None if there is a remainder."""
    remainder = list(product)
    quotient = [0] * (len(remainder) - len(by) + 1)
    for power in reversed(range(len(quotient))):
        quotient[power] = factor = remainder[power + len(by) - 1]
        for offset, value in enumerate(by):
            remainder[power + offset] = (remainder[power + offset] - factor * value) % PRIME
    return None if any(remainder) else quotient
