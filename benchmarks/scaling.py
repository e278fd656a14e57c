"""How time and memory grow with the number of ratings, each size in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

SIZES = {"2.5M": (15_000, 6_000, 2_500_000), "10M": (60_000, 12_000, 10_000_000)}

_CODE = """
import json, resource, sys, time, statistics
import numpy as np
from hdpmf import HDPMF, PrivacySpec, synthetic_world
n_users, n_items, n_ratings, solver, epochs = json.loads(sys.argv[1])
# Compile, and let the allocator settle, before anything is measured.
HDPMF(epochs=2, rng=0, solver=solver).fit(synthetic_world(100, 50, 1000, rng=0))
train = synthetic_world(n_users, n_items, n_ratings, rng=0)
weights = PrivacySpec().draw(train, rng=0)

def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()

# The making of the world used more memory than fit does: start the high-water mark anew.
with open("/proc/self/clear_refs", "w") as stream:
    stream.write("5")
before = resident()
times = []
begin = time.perf_counter()
HDPMF(epochs=epochs, rng=0, solver=solver, n_threads=2).fit(
    train, weights, callbacks=[lambda record: times.append(record.seconds)]
)
whole = time.perf_counter() - begin
with open("/proc/self/status") as stream:
    peak = next(int(line.split()[1]) * 1024 for line in stream if line.startswith("VmHWM"))
print(json.dumps({
    "ratings": len(train), "fit": whole, "epoch": statistics.median(np.diff(times)),
    "bytes_per_rating": (peak - before) / len(train),
}))
"""


def measure(size: str, solver: str, epochs: int) -> dict[str, float]:
    """One fit in a fresh process."""
    arguments = json.dumps([*SIZES[size], solver, epochs])
    done = subprocess.run(
        [sys.executable, "-c", _CODE, arguments], capture_output=True, text=True, check=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def run() -> dict[str, dict[str, dict[str, float]]]:
    """Both solvers at both sizes."""
    return {
        solver: {size: measure(size, solver, epochs) for size in SIZES}
        for solver, epochs in (("batch", 20), ("sequential", 8))
    }
