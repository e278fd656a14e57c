"""Seconds and bytes per device and round of a simulated federation, real masking included.

    HDPMF_DATA=... python benchmarks/federation.py [--devices 10,100,943,6040] [--processes 2]

Up to 943 devices are users of ML-100K, more are users of ML-1M; each device holds one user. Seconds
per round are what the clock says, so run it on a machine that is doing nothing else. Bytes are of
the whole run divided by its rounds: the item table, which a device gets once, is in them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import threading
from pathlib import Path

import numpy as np

from hdpmf.common.data import Ratings, load_dataset
from hdpmf.common.privacy import PrivacySpec
from hdpmf.lab.simulate.simulate import simulate
from hdpmf.lab.simulate.virtual_device import only_users
from hdpmf.untrusted.service.settings import RunSettings

MOST_NUMBERS = 4_000_000
"""Devices times items, above which the gradients that wait for a secure sum on all devices at
once take several GB.
"""


class Memory:
    """The most that this process and its children held together, looked at twice a second;
    shared pages count once.
    """

    def __enter__(self) -> Memory:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.5):
            pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
            self.peak = max(self.peak, sum(map(_held, pids)))


def _held(pid: int | None) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # it has just ended
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def processor_seconds() -> float:
    """Of this process and of children that have ended: a busy machine changes it little."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def users_of(n: int) -> Ratings:
    ratings = load_dataset("ml-100k" if n <= 943 else "ml-1m")
    return only_users(ratings, np.arange(ratings.n_users) < n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default="10,100,943,6040")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    print(
        "| devices | items | method | sees | s per round | ms per device | KB up | KB "
        "down | CPU s, all | GB, peak |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for n in map(int, options.devices.split(",")):
        train = users_of(n)
        weights = PrivacySpec.paper().draw(train, 0)
        cases = [
            RunSettings(method="hdpmf", view="messages", minimum=n, rounds=5),
            RunSettings(method="hdp-sum", view="sums", minimum=n, rounds=1),
            RunSettings(method="hdp-bit", view="messages", minimum=n, rounds=1),
        ]
        if n * train.n_items < MOST_NUMBERS:
            cases.insert(1, RunSettings(method="hdpmf", view="sums", minimum=n, rounds=1))
        for settings in cases:
            begin = processor_seconds()
            with Memory() as memory:
                result = simulate(train, settings, weights, processes=options.processes).result
            print(
                f"| {n:,} | {train.n_items:,} | {settings.method} | {settings.view} | "
                f"{result.seconds_per_round:.2f} | "
                f"{1000 * result.seconds_per_round / n:.2f} | {result.bytes_up / 1000:,.0f} | "
                f"{result.bytes_down / 1000:,.0f} | {processor_seconds() - begin:.0f} | "
                f"{memory.peak / 1e9:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
