"""Whole private runs of the one-round designs: contributions, sums, post-processing, every device's fit, predictions.

``python benchmarks/one_round.py [ml-1m] [1M 10M 100M]`` prints a row per size, each measured in a process of its own.
100M ratings need about 10 GB and several minutes, most of them for making the world.
"""

from __future__ import annotations

import json
import subprocess
import sys

SIZES = {"1M": (10_000, 2_000), "10M": (100_000, 6_000), "100M": (1_000_000, 20_000)}

_CODE = """
import json, resource, sys, time
import numpy as np
from hdpmf import HDPBit, HDPSum, PrivacySpec, load_dataset, synthetic_world

name, method, n_users, n_items, n_ratings = json.loads(sys.argv[1])
model = {"hdp-sum": HDPSum, "hdp-bit": HDPBit}[method]
tiny = synthetic_world(200, 100, 5000, rng=0)
model(rng=0).fit(tiny).score(tiny)  # compiles
if name == "ml-1m":
    train, test = load_dataset("ml-1m").hold_out(per_user=10, rng=0)
else:
    world = synthetic_world(n_users, n_items, n_ratings, rng=0)
    # One held-out rating per user, without a table of all the others' positions.
    train, test = world.leave_one_out(rng=0)
    del world
weights = PrivacySpec().draw(train, rng=0)
with open("/proc/self/clear_refs", "w") as stream:
    stream.write("5")  # the making of the world used more memory than the run does
begin = time.perf_counter()
fitted = model(rng=0, n_threads=2).fit(train, weights)
fit = time.perf_counter() - begin
scores = fitted.score(test)
whole = time.perf_counter() - begin
with open("/proc/self/status") as stream:
    peak = next(int(line.split()[1]) * 1024 for line in stream if line.startswith("VmHWM"))
print(json.dumps({
    "ratings": len(train), "predicted": scores["n"], "fit": fit, "whole": whole, "mse": scores["mse"],
    "peak_gb": peak / 1e9,
}))
"""


def measure(name: str, method: str) -> dict[str, float]:
    """One run in a fresh process."""
    n_users, n_items = SIZES.get(name, (0, 0))
    n_ratings = {"1M": 10**6, "10M": 10**7, "100M": 10**8}.get(name, 0)
    arguments = json.dumps([name, method, n_users, n_items, n_ratings])
    done = subprocess.run([sys.executable, "-c", _CODE, arguments], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    """Print a row per size and method."""
    wanted = sys.argv[1:] or ["ml-1m", "1M", "10M"]
    print("| data | method | ratings | predictions | fit s | with predictions s | peak GB | MSE |")
    print("|---|---|---|---|---|---|---|---|")
    for name in wanted:
        for method in ("hdp-sum", "hdp-bit") if name == "ml-1m" else ("hdp-sum",):
            one = measure(name, method)
            print(
                f"| {name} | {method} | {one['ratings']:,} | {one['predicted']:,} | {one['fit']:.2f} | "
                f"{one['whole']:.2f} | {one['peak_gb']:.2f} | {one['mse']:.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
