"""Cost of secure sums: processor time per device and for the recommender, and bytes, through real
messages.

    python benchmarks/secure_sum.py            about a minute
    python benchmarks/secure_sum.py --large    6,040 devices too, some minutes

Sums are checked against plain ones in every row. Times are processor time of one core, so that a
busy machine changes them little; a row takes about devices x (ms per device) to run, since every
device is simulated.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.aggregation.masks.primitives import Agreement, add_mask, new_secret, verifies

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.unit.masks.in_process import run_in_process

NEIGHBOURS = 64
ROWS = [(100, 7_400, 5), (1_000, 7_400, 50), (100, 190_000, 5)]
LARGE = [(6_040, 7_400, 302)]


def processor_ms(function: Callable[[], object], repeats: int) -> float:
    """Median processor time of a call, in milliseconds."""
    times = []
    for _ in range(repeats):
        begin = time.thread_time()
        function()
        times.append(time.thread_time() - begin)
    return 1e3 * statistics.median(times)


def parts(length: int) -> dict[str, float]:
    """What a device with 64 neighbours spends on each kind of work, in milliseconds."""
    ours = Agreement(new_secret())
    theirs = [Agreement(new_secret()).public for _ in range(NEIGHBOURS)]
    keys = [new_secret() for _ in range(NEIGHBOURS + 1)]
    identity = DeviceIdentity.generate()
    signature = identity.sign(bytes(32))
    total = np.zeros(length, np.uint32)

    return {
        "agreeing on 64 mask keys": processor_ms(
            lambda: [ours.key(their, bytes(32), b"pair") for their in theirs], 20
        ),
        "making and adding 65 masks": processor_ms(
            lambda: [add_mask(total, key) for key in keys], 20
        ),
        "checking 64 + 43 signatures": processor_ms(
            lambda: [
                verifies(identity.public, signature, bytes(32)) for _ in range(NEIGHBOURS + 43)
            ],
            10,
        ),
    }


def measure(n: int, length: int, dropped: int) -> tuple[float, float, float, float, float]:
    """One row: ms per device, recommender's seconds, kilobytes up and down per device, wall
    seconds.
    """
    # One block of random words seen at different offsets: memory for thousands of long vectors is
    # not the subject.
    block = np.frombuffer(os.urandom(4 * (length + n)), np.uint32)
    vectors = [block[k : k + length] for k in range(n)]
    lost = {k * (n // dropped): "shares" for k in range(dropped)}
    begin = time.perf_counter()
    done = run_in_process(vectors, drop_after=lost, neighbours=NEIGHBOURS)
    wall = time.perf_counter() - begin
    expected = np.zeros(length, np.uint32)
    for k in done.survivors:
        expected += vectors[k]
    if len(done.survivors) != n - dropped or not np.array_equal(done.total, expected):
        raise SystemExit("the secure sum is not the plain sum")
    there = list(done.survivors)
    return (
        1e3 * float(np.median(done.client_seconds[there])),
        done.server_seconds,
        float(np.mean(done.bytes_up[there])) / 1e3,
        float(np.mean(done.bytes_down[there])) / 1e3,
        wall,
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--large", action="store_true", help="6,040 devices too")
    rows = ROWS + (LARGE if options.parse_args().large else [])
    print(
        f"Secure sums, {NEIGHBOURS} neighbours, threshold above two thirds; sums equal "
        "to the plain ones\n"
    )
    print(
        "| devices | dropped | words | ms per device | recommender, s | KB up | KB down | wall, s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for n, length, dropped in rows:
        client, server, up, down, wall = measure(n, length, dropped)
        print(
            f"| {n:,} | {dropped} | {length:,} | {client:.1f} | {server:.2f} | {up:.0f} | "
            f"{down:.0f} | {wall:.0f} |"
        )
    print("\nWhere a device's time goes, ms:\n")
    print("| words | " + " | ".join(parts(10)) + " |")
    print("|---|---|---|---|")
    for length in sorted({length for _, length, _ in rows}):
        print(f"| {length:,} | " + " | ".join(f"{ms:.1f}" for ms in parts(length).values()) + " |")


if __name__ == "__main__":
    main()
