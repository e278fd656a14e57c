"""Speed of an epoch, next to peers, in one run; and the limits that bound our kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from hdpmf import HDPMF, PrivacySpec, load_dataset
from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings
from hdpmf.private.kernels import batch
from hdpmf.private.kernels.batch import group, pad
from peers import libmf_epoch, surprise_epoch, textbook_epoch

THREADS = 2
K = 10


def seconds_per_epoch(
    train: Ratings, solver: str, epochs: int, threads: int = THREADS, n_factors: int = K
) -> float:
    """Median time between two epochs of a real fit: messages, noise and all."""
    weights = PrivacySpec().draw(train, rng=0)
    times: list[float] = []
    model = HDPMF(n_factors, 0.005, epochs=epochs, solver=solver, n_threads=threads, rng=0)
    model.fit(train, weights, callbacks=[lambda record: times.append(record.seconds)])
    return statistics.median(np.diff(times))


def stream_bandwidth(size: int = 64_000_000) -> float:
    """Bytes per second that one core copies, the ceiling for anything that streams."""
    source = np.ones(size // 8)
    target = np.empty_like(source)
    best = min(_timed(lambda: np.copyto(target, source)) for _ in range(5))
    return 2 * source.nbytes / best


def gather_only(train: Ratings, n_factors: int) -> float:
    """Seconds of both passes with one rating per row's worth of arithmetic left out: the sum of the
    gathered rows.

    A pass has to read each rating's partner, target and the partner's row; this is the same walk
    through the same memory with a target of zero and a zero vector, on the same kernel, so it
    differs from an epoch by noise, messages and steps only.
    """
    by_item = group(train.item_codes, train.user_codes, train.values, None, train.n_items)
    by_user = group(train.user_codes, train.item_codes, train.values, None, train.n_users)
    U, V = pad(np.zeros((train.n_users, n_factors))), pad(np.zeros((train.n_items, n_factors)))
    out_v, out_u = np.empty_like(V), np.empty_like(U)
    with Workers(THREADS) as workers:

        def both() -> None:
            batch.item_gradients(by_item, U, V, out_v, workers)
            batch.item_gradients(by_user, V, U, out_u, workers)

        both()
        return statistics.median(_timed(both) for _ in range(20))


def _timed(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def run() -> dict[str, float]:
    """Every figure of the table, in seconds unless the name says otherwise."""
    train, _ = load_dataset("ml-1m").hold_out(per_user=10, rng=0)
    seconds_per_epoch(train, "batch", 3)
    seconds_per_epoch(train, "sequential", 3)
    return {
        "ratings": float(len(train)),
        "batch": seconds_per_epoch(train, "batch", 60),
        "batch, 1 thread": seconds_per_epoch(train, "batch", 30, threads=1),
        "batch, passes only": gather_only(train, K),
        "sequential": seconds_per_epoch(train, "sequential", 20),
        "sequential, 1 thread": seconds_per_epoch(train, "sequential", 20, threads=1),
        "Surprise SVD": surprise_epoch(train, K),
        "libmf": libmf_epoch(train, K, THREADS),
        "textbook loop": textbook_epoch(train, K),
        "copy bandwidth, GB/s": stream_bandwidth() / 1e9,
    }
