"""Waiting between two tries."""

from __future__ import annotations

import secrets
from collections.abc import Callable

_OS = secrets.SystemRandom()


def backoff(
    tries: int, first: float, longest: float, uniform: Callable[[], float] = _OS.random
) -> float:
    """Return the seconds before the next try: doubled after each failure, times 50 to 150 %.

    Clients that failed together do not come back together.

    Args:
        tries: Failures in a row before this one.
        first: Seconds after the first failure.
        longest: Most seconds, before the draw.
        uniform: Draws from 0 to 1.
    """
    return min(first * 2.0 ** min(tries, 30), longest) * (0.5 + uniform())
