"""Nothing that only some operating systems have is asked for at import; locks work with and
without ``fcntl``.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from hdpmf.common.base.files import allow_open_files, lock_file
from hdpmf.errors import StorageError

SOURCE = Path(__file__).parents[3] / "src" / "hdpmf"
NOT_EVERYWHERE = {"fcntl", "resource", "msvcrt", "pwd", "grp", "termios", "tty", "pty", "winreg"}


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return (
        {(node.module or "").partition(".")[0]}
        if isinstance(node, ast.ImportFrom) and not node.level
        else set()
    )


def asked_at_import(tree: ast.Module) -> set[str]:
    """What a module imports when it is imported itself, unless it catches the failure."""
    found: set[str] = set()
    parts: list[ast.AST] = list(tree.body)
    while parts:
        node = parts.pop()
        found |= imported(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Try)):
            parts += ast.iter_child_nodes(node)
    return found


@cache
def trees() -> dict[Path, ast.Module]:
    """All modules of the package: parsing them takes a second."""
    return {path: ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}


@pytest.mark.slow
def test_no_module_asks_for_what_only_some_systems_have() -> None:
    asked = {path: asked_at_import(tree) for path, tree in trees().items()}
    assert len(asked) > 300
    assert {
        str(path): found for path, names in asked.items() if (found := names & NOT_EVERYWHERE)
    } == {}


@pytest.mark.slow
def test_only_one_module_knows_the_systems_apart() -> None:
    users = {
        path.name
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if imported(node) & {"fcntl", "resource", "msvcrt"}
    }
    assert users == {"files.py"}


@pytest.mark.parametrize(
    ("source", "found"),
    [("import fcntl", {"fcntl"}), ("if True:\n    from resource import getrlimit", {"resource"})],
)
def test_an_import_would_be_noticed(source: str, found: set[str]) -> None:
    assert asked_at_import(ast.parse(source)) == found
    assert asked_at_import(ast.parse("def f():\n    import fcntl")) == set()


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
import hdpmf.cli.main, hdpmf.private.device.store.database, hdpmf.untrusted.service.folder, hdpmf.untrusted.aggregator.serve
import hdpmf.common.net.mailbox, hdpmf.common.net.polling
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


def test_a_system_without_any_lock_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with (
        (tmp_path / "lock").open("w") as stream,
        pytest.raises(StorageError, match="no locks on files"),
    ):
        lock_file(stream.fileno())
