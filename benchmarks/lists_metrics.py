"""Measuring lists beside the matrix product that makes their scores: ``python
benchmarks/lists_metrics.py``.

Made-up users and items with vectors of 64 numbers. Seconds are of the processor, on one thread; the
product is taken in the same blocks.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.models.ranking_metrics import rank, users_at_once

RATED, HELD_OUT, FACTORS = 50, 3, 64


def _seconds(function: Callable[[], object]) -> float:
    function()
    begin = time.process_time()
    function()
    return time.process_time() - begin


def measure(n_users: int, n_items: int) -> tuple[float, float, float]:
    """Seconds of the product, seconds of everything, and the peak of memory in MB."""
    rng = np.random.default_rng(0)
    people = rng.standard_normal((n_users, FACTORS)).astype(np.float32)
    items = np.ascontiguousarray(rng.standard_normal((n_items, FACTORS)).astype(np.float32).T)
    devices = SimpleNamespace(
        users=SimpleNamespace(find=np.asarray),
        rated_start=np.arange(0, n_users * RATED + 1, RATED),
        rated=rng.integers(0, n_items, n_users * RATED),
    )
    liked = (rng.integers(0, n_items, n_users)[:, None] + 7 * np.arange(HELD_OUT)) % n_items
    users = np.repeat(np.arange(n_users), HELD_OUT)
    test = Ratings.from_arrays(users, liked.ravel(), np.full(users.size, 5.0), scale=(1, 5))
    places, able, step = test.items.ids, np.ones(n_items, bool), users_at_once(n_items)

    def product() -> None:
        for first in range(0, n_users, step):
            people[first : first + step] @ items

    def everything() -> None:
        rank(devices, able, lambda chosen: people[chosen] @ items, test, places, 10)

    alone, whole = _seconds(product), _seconds(everything)
    tracemalloc.start()
    everything()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return alone, whole, peak


def main() -> None:
    print("users x items          product, s   all metrics, s   times the product   peak MB")
    for n_users, n_items in ((6_000, 3_700), (1_000, 100_000), (4_000, 100_000)):
        alone, whole, peak = measure(n_users, n_items)
        print(
            f"{n_users:6,} x {n_items:7,}     {alone:10.3f} {whole:16.3f} "
            f"{whole / alone:19.1f} {peak:9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
