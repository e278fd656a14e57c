"""Memory that thousands of simulated devices leave behind in between."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_STEP = 16 * 1024 * 1024


class MemoryTrim:
    """Gives freed memory back to the system when a process has grown.

    Devices free long vectors of almost the same length one after another, and the holes that they
    leave in the C library's heap are a little too short for the next ones. Where there is no glibc,
    nothing happens.
    """

    def __init__(self) -> None:
        self._trim: Callable[[int], object] | None = None
        with suppress(OSError, AttributeError):
            self._trim = ctypes.CDLL("libc.so.6").malloc_trim
            self._last = _resident()

    def __call__(self) -> None:
        """Look, and give back if it is worth it."""
        if self._trim is not None and _resident() > self._last + _STEP:
            self._trim(0)
            self._last = _resident()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
