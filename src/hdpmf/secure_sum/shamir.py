"""Shamir's secret sharing over a prime field, for secrets of 32 bytes.

A secret is the constant term of a random polynomial of degree ``threshold - 1``; a share is its value at a small
point 1, 2, ... Any ``threshold`` shares give the secret; fewer say nothing about it, whatever is known besides.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping

from hdpmf.errors import SecureSumError

PRIME = 2**256 + 297
"""The smallest prime above 2^256 (a test checks that it is one): every secret of 32 bytes is an element."""

SECRET_BYTES = 32
SHARE_BYTES = 33

# 135 bits more than the prime: a draw reduced modulo it is uniform to within 2^-135.
_DRAW_BYTES = 49


def split(secret: bytes, threshold: int, n_points: int) -> list[bytes]:
    """Shares of ``secret`` at the points 1 to ``n_points``.

    Args:
        secret: 32 bytes.
        threshold: Shares that it takes to get the secret back.
        n_points: Shares to make.
    """
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
    return [_value(coefficients, point).to_bytes(SHARE_BYTES, "little") for point in range(1, n_points + 1)]


def _value(coefficients: list[int], point: int) -> int:
    """The polynomial's value, highest coefficient first. Points are small, so one reduction at the end is enough."""
    value = 0
    for coefficient in coefficients:
        value = value * point + coefficient
    return value % PRIME


def join(shares: Mapping[int, bytes], n_points: int) -> bytes | None:
    """The secret behind shares (by point); None if the shares cannot belong to a secret of 32 bytes.

    All shares given are used. They must be at least the threshold, which the shares themselves do not tell: with
    fewer, or with a wrong one among them, the answer is another number, so the caller compares it with a commitment.

    The weight of the share at x, for the full set of points, is (-1)^(x-1) * C(n, x); a missing point m multiplies it
    by (m - x) / m. That is integer arithmetic with one division at the end, much faster than Lagrange's products.
    """
    if not shares or min(shares) < 1 or max(shares) > n_points:
        raise SecureSumError(f"shares must be at points from 1 to {n_points}")
    missing = [point for point in range(1, n_points + 1) if point not in shares]
    total = 0
    for point, share in shares.items():
        value = int.from_bytes(share, "little")
        if len(share) != SHARE_BYTES or value >= PRIME:
            raise SecureSumError(f"a share has {SHARE_BYTES} bytes and is smaller than the prime of the field")
        weight = math.comb(n_points, point) * math.prod(m - point for m in missing)
        total += value * (weight if point % 2 else -weight)
    secret = total * pow(math.prod(missing), -1, PRIME) % PRIME
    return secret.to_bytes(SECRET_BYTES, "little") if secret < 1 << (8 * SECRET_BYTES) else None
