"""When answers leave: at fixed times after the question, so that how long the noise or the ratings took is not seen."""

from __future__ import annotations

import time
from collections.abc import Callable

SLOT = 0.1
"""Seconds. An answer of a person's device takes some 2 to 15 ms; one that takes longer leaves with the next slot."""


def in_slots(
    answer: Callable[[bytes], bytes],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[[bytes], bytes]:
    """The same answers, each a whole number of slots after its question."""

    def answered(data: bytes) -> bytes:
        begun = clock()
        try:
            return answer(data)
        finally:
            sleep(SLOT - (clock() - begun) % SLOT)

    return answered
