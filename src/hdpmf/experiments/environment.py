"""Facts about the machine and the versions, without names of hosts, users or folders."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("hdpmf", "numpy", "scipy", "numba", "polars", "joblib")


@cache
def host_facts() -> dict[str, str | int]:
    """What a run was done on."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
    }


@cache
def environment() -> dict[str, str | int]:
    """What a command was done with."""
    return {**host_facts(), "processor": _processor(), **{name: version(name) for name in _PACKAGES}}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
