"""Blocks of runs on all cores. Each block has a noise stream of its own, so the number of threads changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hdpmf.threads import available_cores

Block = TypeVar("Block")
Done = TypeVar("Done")


def in_threads(work: Callable[[Block], Done], blocks: Sequence[Block]) -> list[Done]:
    """The results in the order of ``blocks``. NumPy lets go of the interpreter where the time is spent."""
    pool = ThreadPoolExecutor(available_cores())
    try:
        return list(pool.map(work, blocks))
    finally:
        # After an error or an interrupt, what has not begun never will.
        pool.shutdown(cancel_futures=True)
