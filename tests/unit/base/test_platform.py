"""Nothing that only some operating systems have is asked for at import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hdpmf.common.base.files import lock_file
from hdpmf.errors import StorageError

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


def test_a_system_without_locks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with (tmp_path / "lock").open("wb") as file, pytest.raises(StorageError, match="no locks"):
        lock_file(file.fileno())
