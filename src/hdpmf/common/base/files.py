"""Atomic writes of files and folders, and numbered layouts of folders.

A folder is migrated when it is opened. Each step may be repeated after a crash; its number is
written when it is done. A folder of a newer version is refused before anything in it is read or
written.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hdpmf.common.base.platform import lock_file
from hdpmf.errors import ConfigError, StorageError, made_by_newer


def atomic_write(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o644) -> None:
    """Write ``data`` to ``path`` whole or not at all.

    The bytes go to a temporary file beside the target, reach the disk, and are renamed over it. If
    anything fails, what was at ``path`` before is still there and the temporary file is gone.

    Args:
        path: The file to write; its folder must exist.
        data: The whole content.
        mode: Permission bits of the file; 0o600 for anything private.

    Raises:
        StorageError: The disk is full, read-only, or permission is missing.
    """
    target = Path(path)
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        reason = error.strerror or type(error).__name__
        raise StorageError(
            f"could not write {target}: {reason}. Nothing was changed there; free space or "
            "choose another "
            "folder, then run the same command again."
        ) from error


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to fill; it replaces ``target`` whole or not at all.

    Raises:
        StorageError: The disk refused; what was there before is unchanged.
    """
    staging: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        staging.chmod(0o755)
        yield staging
        _swap_in(staging, target)
    except OSError as error:
        raise StorageError(
            f"could not save to {target}: {error.strerror or error}. What was there before "
            "is unchanged."
        ) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _swap_in(staging: Path, target: Path) -> None:
    """Move the finished folder into place; on failure an earlier one is put back."""
    if not target.exists():
        staging.rename(target)
        return
    aside = staging.with_name(staging.name + ".old")
    target.rename(aside)
    try:
        staging.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


LAYOUT_FILE = "format"
"""Where the number is. Folders without it have the first layout."""

_CONFIG_FILE = "config.toml"  # every folder of ours has one


@dataclass(frozen=True)
class FolderLayout:
    """A kind of folder.

    Attributes:
        name: What it is, for people.
        steps: The first brings a folder of layout 1 to layout 2, the second from 2 to 3, and so on.
    """

    name: str
    steps: tuple[Callable[[Path], None], ...] = ()

    @property
    def newest(self) -> int:
        """The layout that this version makes."""
        return 1 + len(self.steps)

    def mark(self, folder: Path) -> None:
        """Write down that a new folder has the newest layout."""
        atomic_write(folder / LAYOUT_FILE, f"{self.newest}\n".encode())

    def bring_forward(self, folder: Path) -> None:
        """See that a folder has the newest layout. What is no folder of ours is left alone.

        Raises:
            ConfigError: It is of a newer version.
            StorageError: The disk refused. What was there is there, and the next try goes on.
        """
        if not (folder / _CONFIG_FILE).exists() or self._found(folder) == self.newest:
            return
        with _folder_lock(folder):
            found = self._found(folder)  # another process may have been faster
            for number in range(found, self.newest):
                self.steps[number - 1](folder)
                atomic_write(folder / LAYOUT_FILE, f"{number + 1}\n".encode())

    def require_newest(self, folder: Path) -> None:
        """Refuse a folder of ours that would have to be brought forward; nothing is written.

        Raises:
            ConfigError: It has an older layout, or is of a newer version.
        """
        if (folder / _CONFIG_FILE).exists() and self._found(folder) != self.newest:
            raise ConfigError(
                f"{folder} has an older layout, and is only read here; any other command brings "
                "it forward"
            )

    def _found(self, folder: Path) -> int:
        path = folder / LAYOUT_FILE
        try:
            text = path.read_text("ascii").strip()
        except FileNotFoundError:
            return 1
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"cannot read {path}: {error}") from error
        if not (text.isdigit() and len(text) < 10 and int(text)):
            raise StorageError(
                f"{path} is damaged: it has to be a number, which says the layout of {self.name}"
            )
        if int(text) > self.newest:
            raise ConfigError(made_by_newer(folder))
        return int(text)


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """While inside, no other process brings this folder forward."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise StorageError(f"cannot open {folder}: {error.strerror}") from error
    try:
        lock_file(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)
