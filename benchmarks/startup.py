"""What a user waits for: import, help, and the first epoch of a second process."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

_FIRST_EPOCH = """
import time
begin = time.perf_counter()
from hdpmf import HDPMF, synthetic_world
world = synthetic_world(300, 200, 10_000, rng=0)
start = time.perf_counter()
HDPMF(epochs=2, rng=0, solver="{solver}").fit(
    world, callbacks=[lambda record: print(time.perf_counter() - begin) or True]
)
"""


def _seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - begin


def _printed(code: str) -> float:
    return float(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )


def run(repeats: int = 5) -> dict[str, float]:
    """Medians over fresh processes."""
    python = sys.executable
    bare = statistics.median(_seconds([python, "-c", "pass"]) for _ in range(repeats))
    result = {
        "python itself": bare,
        "import hdpmf": statistics.median(
            _seconds([python, "-c", "import hdpmf"]) for _ in range(repeats)
        ),
        "hdpmf --help": statistics.median(
            _seconds([python, "-m", "hdpmf", "--help"]) for _ in range(repeats)
        ),
    }
    for solver in ("batch", "sequential"):
        code = _FIRST_EPOCH.format(solver=solver)
        _printed(code)  # compiles, if nobody has yet
        result[f"import to first {solver} epoch"] = statistics.median(
            _printed(code) for _ in range(repeats)
        )
    return result
