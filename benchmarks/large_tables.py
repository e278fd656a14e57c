"""Ratings in partitioned Parquet: seconds and memory to read them, and to fit ``hdp-sum``.

    python benchmarks/large_tables.py --ratings 100000000 --steps read,fit,polars
    python benchmarks/large_tables.py --ratings 20000000 --one-file --steps read,polars

``polars`` is the peer: all of it as one data frame, and nothing else. Ratings are synthetic: users
at random, items by a power law, each pair once, ids as text, as shops have them. Files are written
to a temporary folder first. Every step is a process of its own, so that its memory is its own;
memory is the peak of the process, with what Python and the library take by themselves. Processor
time counts all threads, and depends less on what else runs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

PER_FILE = 5_000_000


def write(folder: Path, n_ratings: int, n_users: int, n_items: int) -> int:
    """Write the files; return their size in bytes."""
    rng = np.random.default_rng(0)
    users_per_file = max(1, round(n_users * PER_FILE / n_ratings))
    written = 0
    for number, first in enumerate(range(0, n_users, users_per_file)):
        here = min(users_per_file, n_users - first)
        rows = min(PER_FILE, n_ratings - written)
        if rows <= 0:
            break
        users = first + rng.integers(0, here, int(rows * 1.3))
        items = (n_items * rng.random(len(users)) ** 3).astype(np.int64)
        pairs = np.unique(users.astype(np.int64) * n_items + items)
        pairs = rng.permutation(pairs)[:rows]
        frame = pl.DataFrame(
            {"user": pairs // n_items, "item": pairs % n_items,
             "rating": rng.integers(1, 6, len(pairs)).astype(np.float32)}
        ).select(
            pl.format("customer-{}", "user").alias("user"),
            pl.format("article-{}", "item").alias("item"), "rating",
        )  # fmt: skip
        frame.write_parquet(folder / f"ratings-{number:03}.parquet")
        written += len(frame)
    return sum(file.stat().st_size for file in folder.iterdir())


def step(kind: str, folder: Path) -> dict[str, float]:
    """Do one step in this process."""
    import hdpmf

    begin = time.perf_counter()
    if kind == "polars":
        table = pl.read_parquet(folder / "*.parquet")
        read = time.perf_counter() - begin
        return {"ratings": table.height, "read_s": read, "fit_s": 0.0} | _used()
    if kind == "eager":  # all of it in memory at once, as a data frame
        ratings = hdpmf.Ratings.of(pl.read_parquet(folder / "*.parquet"))
    else:
        ratings = hdpmf.Ratings.read(folder)
    read = time.perf_counter() - begin
    fitted = 0.0
    if kind == "fit":
        begin = time.perf_counter()
        hdpmf.HDPSum(rng=0).fit(ratings)
        fitted = time.perf_counter() - begin
    return {"ratings": len(ratings), "read_s": read, "fit_s": fitted} | _used()


def _used() -> dict[str, float]:
    # Children: those that look over each file before it is decoded.
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    # Not ru_maxrss: a process that was forked off begins with the peak of the one before.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0])
    return {"peak_gb": peak / 1e6, "cpu_s": sum(one.ru_utime + one.ru_stime for one in used)}


def main() -> None:
    """Write, then measure each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ratings", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, help="default: a hundredth of the ratings")
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--steps", default="read,fit,eager")
    parser.add_argument("--one-file", action="store_true", help="one file instead of many")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(step(options.step, options.folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write(
            folder, options.ratings, options.users or options.ratings // 100, options.items
        )
        if options.one_file:
            parts = sorted(folder.iterdir())
            pl.scan_parquet(parts).sink_parquet(folder / "all.parquet")
            for part in parts:
                part.unlink()
        print(f"{len(list(folder.iterdir()))} files, {size / 1e9:.2f} GB", flush=True)
        for kind in options.steps.split(","):
            command = [sys.executable, __file__, "--step", kind, "--folder", name]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            if ended.returncode:
                print(f"{kind}: ended with {ended.returncode}\n{ended.stderr[-500:]}")
                continue
            found = json.loads(ended.stdout.splitlines()[-1])
            print(
                f"{kind:6} {found['ratings']:>12,} ratings  read {found['read_s']:7.1f} s  "
                f"fit {found['fit_s']:7.1f} s  processor {found['cpu_s']:7.1f} s  "
                f"peak {found['peak_gb']:5.2f} GB",
                flush=True,
            )


if __name__ == "__main__":
    main()
