"""Nothing that only some operating systems have is asked for at import; locks work with and
without ``fcntl``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hdpmf.common.base.files import allow_open_files, lock_file

WITHOUT = """
import builtins, sys
real = builtins.__import__
def without(name, globals=None, *rest):
    if name in ("fcntl", "resource") and str((globals or {}).get("__name__", "")).startswith("hdpmf"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real(name, globals, *rest)
builtins.__import__ = without
import hdpmf
for name in hdpmf.__all__:
    getattr(hdpmf, name)
import hdpmf.cli.main, hdpmf.private.device.state_file, hdpmf.untrusted.service.folder, hdpmf.untrusted.aggregator.serve
from hdpmf.common.base.files import allow_open_files
allow_open_files(10_000)
print("imported")
"""  # noqa: E501


@pytest.mark.slow
def test_everything_can_be_imported_without_fcntl_and_resource() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "imported", done.stderr


def test_a_lock_is_held_until_its_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open("r+b") as first, path.open("r+b") as second:
        lock_file(first.fileno())
        with pytest.raises(BlockingIOError):
            lock_file(second.fileno())
        with pytest.raises(BlockingIOError):
            lock_file(second.fileno(), shared=True)
    with path.open("r+b") as first, path.open("r+b") as second:
        lock_file(first.fileno(), shared=True)
        lock_file(second.fileno(), shared=True)


class Windows:
    """Its locks on bytes: one holder each."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], int] = {}
        self.refusals = 0

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (self.LK_NBLCK, 1)
        place = (os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR))
        if self.held.get(place, descriptor) != descriptor:
            self.refusals += 1
            raise PermissionError(13, "Permission denied")
        self.held[place] = descriptor


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Windows:
    system = Windows()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setitem(
        sys.modules, "msvcrt", SimpleNamespace(locking=system.locking, LK_NBLCK=system.LK_NBLCK)
    )
    return system


def test_windows_has_locks_of_its_own(
    windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"marks\n")
    with path.open("r+b", buffering=0) as first, path.open("r+b", buffering=0) as second:
        first.seek(3)
        lock_file(first.fileno())
        assert first.tell() == 3  # where it was
        assert all(byte > 1_000_000 for _, byte in windows.held)  # behind what is written
        with pytest.raises(BlockingIOError):
            lock_file(second.fileno())
        monkeypatch.setattr(
            "hdpmf.common.base.files.time.sleep", lambda _: windows.held.clear()
        )  # the other one ends
        lock_file(second.fileno(), wait=True)
        assert windows.refusals == 2
    allow_open_files(10_000)  # there is no bound
