"""Time and memory of a whole private run of HDPSum on synthetic worlds: python
benchmarks/one_round.py [--users N ...].

From contributions to predictions for held-out ratings, on the number of threads given. Each size
runs in a process of its own, so that its peak memory is its own. The world (users who rate about
100 of 20,000 items each, popular ones more often) is made beforehand and is not part of the time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from hdpmf import HDPSum, PrivacySpec, Ratings
from hdpmf.common.data import IdIndex, ItemTable, RatingScale

GENRES = (
    "Action",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Horror",
    "Musical",
    "Romance",
    "Thriller",
    "War",
)
BLOCK = 50_000


def world(n_users: int, n_items: int, per_user: int, seed: int = 0) -> tuple[Ratings, Ratings]:
    """Training ratings, and one held-out rating per user."""
    rng = np.random.default_rng(seed)
    membership = rng.random((n_items, len(GENRES))) < 0.2
    bias = rng.normal(0, 0.45, n_items).astype(np.float32)
    popularity = np.cumsum(1.0 / (np.arange(n_items) + 2.0 * per_user))
    popularity /= popularity[-1]
    place = rng.permutation(n_items)
    users, items, values = [], [], []
    held: list[tuple[np.ndarray, ...]] = []
    for begin in range(0, n_users, BLOCK):
        n = min(BLOCK, n_users - begin)
        # One draw from each of so many slices of the popularity: popular items are rated more, no
        # item twice.
        slices = (np.arange(per_user + 1) + rng.random((n, per_user + 1), np.float32)) / (
            per_user + 1
        )
        drawn = np.searchsorted(popularity, slices.ravel()).astype(np.int32).reshape(n, -1)
        fresh = np.ones(drawn.shape, bool)
        fresh[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
        taste = rng.normal(0, 0.3, (n, len(GENRES))).astype(np.float32)
        rated = place[drawn]
        liked = np.einsum("ng,nkg->nk", taste, membership[rated].astype(np.float32))
        own = rng.normal(3.5, 0.4, n).astype(np.float32)[:, None]
        stars = np.clip(
            np.rint(
                own + bias[rated] + liked + rng.normal(0, 0.85, rated.shape).astype(np.float32)
            ),
            1,
            5,
        )
        who = np.broadcast_to(np.arange(begin, begin + n, dtype=np.int32)[:, None], rated.shape)
        test = np.zeros(rated.shape, bool)
        test[np.arange(n), rng.integers(0, per_user + 1, n)] = True
        for kept, out in ((fresh & ~test, (users, items, values)), (fresh & test, None)):
            columns = (who[kept], rated[kept].astype(np.int32), stars[kept].astype(np.float32))
            if out is None:
                held.append(columns)
            else:
                for column, target in zip(columns, out, strict=True):
                    target.append(column)
    table = ItemTable.build(
        np.arange(n_items),
        [f"Item {item}" for item in range(n_items)],
        [[GENRES[g] for g in np.flatnonzero(row)] for row in membership],
        [None] * n_items,
    )
    ids = IdIndex(np.arange(n_users)), IdIndex(np.arange(n_items))
    scale = RatingScale(1, 5, 1)
    train = Ratings(
        *ids,
        *(np.concatenate(column) for column in (users, items, values)),
        scale=scale,
        item_table=table,
    )
    test_columns = (np.concatenate(column) for column in zip(*held, strict=True))
    return train, Ratings(*ids, *test_columns, scale=scale, item_table=table)


def measure(n_users: int, n_items: int, per_user: int, threads: int) -> dict[str, float | int]:
    small = world(200, 50, 10)[0]
    HDPSum(n_threads=threads, rng=0).fit(small)  # compiles the kernels
    train, test = world(n_users, n_items, per_user)
    weights = PrivacySpec().draw(train, rng=0)
    # The making of the world used memory too: start the high-water mark anew.
    Path("/proc/self/clear_refs").write_text("5")
    begin, cpu = time.perf_counter(), time.process_time()
    model = HDPSum(n_threads=threads, rng=0).fit(train, weights)
    fitted = time.perf_counter()
    score = model.score(test)
    end = time.perf_counter()
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    return {
        "users": n_users,
        "items": n_items,
        "ratings": len(train),
        "threads": threads,
        "seconds": round(end - begin, 2),
        "fit_seconds": round(fitted - begin, 2),
        "predict_seconds": round(end - fitted, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "predictions": score["n"],
        "mse": round(float(score["mse"]), 4),
        "peak_gb": round(peak / 2**20, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--per-user", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--here", action="store_true", help="measure in this process, print JSON")
    given = parser.parse_args()
    if given.here:
        print(json.dumps(measure(given.users[0], given.items, given.per_user, given.threads)))
        return
    for n_users in given.users:
        command = [
            sys.executable,
            __file__,
            "--here",
            "--users",
            str(n_users),
            "--items",
            str(given.items),
            "--per-user",
            str(given.per_user),
            "--threads",
            str(given.threads),
        ]
        print(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip(),
            flush=True,
        )


if __name__ == "__main__":
    main()
