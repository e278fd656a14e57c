"""Which tests one worker does, so that it prepares once what they share (tests/conftest.py)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = (
    "tests/unit/paper/test_specs.py",
    "tests/unit/paper/test_published.py",
    "tests/unit/experiments/test_summary.py",
)


@pytest.mark.slow
def test_a_share_is_done_by_one_worker() -> None:
    """Asked of real workers: xdist's own groups ended without a word when pytest changed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "-vv", *FILES]
    ended = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    workers: dict[str, set[str]] = defaultdict(set)
    for worker, file in re.findall(r"\[(gw\d)\].* PASSED (tests/[\w/]+\.py)", ended.stdout):
        workers[file].add(worker)
    specs, published, summary = (workers[file] for file in FILES)
    assert specs == published, "the folder shares a store"
    assert (len(specs), len(summary)) == (1, 1)
    assert specs != summary, "two shares, two workers"
