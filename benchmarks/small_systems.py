"""Fitting hdp-bit and making everybody's list, by threads of linear algebra: time and ratios.

    python benchmarks/small_systems.py                  # the 943 users of ML-100K
    python benchmarks/small_systems.py --busy    # while other processes keep every core busy

Each setting is a process of its own, because OpenBLAS reads its threads at the start: as many as
there are cores (the default), and one. Numbers are the least of ``--repeat`` runs. A ratio near 1
means that nobody has to set OPENBLAS_NUM_THREADS.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time

from lists import find_data

_ONE = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def measure(data: str, method: str) -> dict[str, float]:
    """Seconds of ``fit`` and of ``recommend`` for all users."""
    from hdpmf import load_dataset, make_model

    ratings = load_dataset(data)
    some = ratings.take(ratings.user_codes < 50)
    make_model(method, rng=0).fit(some.compact()).recommend(some.compact().users.ids)  # compiles
    begin = time.perf_counter()
    model = make_model(method, rng=0).fit(ratings)
    fitted = time.perf_counter()
    lists = model.recommend(ratings.users.ids)
    return {
        "fit": fitted - begin,
        "recommend": time.perf_counter() - fitted,
        "users": float(len(lists)),
    }


def spin() -> None:
    while True:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--method", default="hdp-bit")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="keep every core busy meanwhile")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    find_data()
    if given.once:
        print(json.dumps(measure(given.data, given.method)))
        return
    again = [sys.executable, __file__, "--once", "--data", given.data, "--method", given.method]
    others = [
        multiprocessing.Process(target=spin, daemon=True)
        for _ in range(os.cpu_count() or 1 if given.busy else 0)
    ]
    for other in others:
        other.start()
    found: dict[str, list[dict[str, float]]] = {"default": [], "one": []}
    for _ in range(given.repeat):
        for name, more in (("default", {}), ("one", _ONE)):
            done = subprocess.run(
                again, env=os.environ | more, check=True, capture_output=True, text=True
            )
            found[name].append(json.loads(done.stdout))
    for other in others:
        other.terminate()
    best = {
        name: {part: min(run[part] for run in runs) for part in ("fit", "recommend")}
        for name, runs in found.items()
    }
    ratio = {part: best["default"][part] / best["one"][part] for part in ("fit", "recommend")}
    users = int(found["one"][0]["users"])
    print(json.dumps({"data": given.data, "users": users, **best, "ratio": ratio}, indent=2))


if __name__ == "__main__":
    main()
