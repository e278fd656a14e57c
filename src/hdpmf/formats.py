"""Which layout a folder of ours has: a number in it, and the steps from each layout to the next.

A folder is brought forward when it is opened. Each step leaves the folder as a reader of the next layout wants it, and
may be begun again after a kill at any moment; its number is written when it is done. A folder of a newer version is
refused before anything in it is read or written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hdpmf.errors import ConfigError, StorageError, made_by_newer
from hdpmf.files import atomic_write
from hdpmf.system import lock_file

FILE = "format"
"""Where the number is. Folders without it have the first layout."""
_OURS = "config.toml"  # every folder of ours has one


@dataclass(frozen=True)
class FolderKind:
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
        atomic_write(folder / FILE, f"{self.newest}\n".encode())

    def bring_forward(self, folder: Path) -> None:
        """See that a folder has the newest layout. What is no folder of ours is left alone.

        Raises:
            ConfigError: It is of a newer version.
            StorageError: The disk refused. What was there is there, and the next try goes on.
        """
        if not (folder / _OURS).exists() or self._found(folder) == self.newest:
            return
        with _alone(folder):
            found = self._found(folder)  # another process may have been faster
            for number in range(found, self.newest):
                self.steps[number - 1](folder)
                atomic_write(folder / FILE, f"{number + 1}\n".encode())

    def require_newest(self, folder: Path) -> None:
        """Refuse a folder of ours that would have to be brought forward; nothing is written.

        Raises:
            ConfigError: It has an older layout, or is of a newer version.
        """
        if (folder / _OURS).exists() and self._found(folder) != self.newest:
            raise ConfigError(
                f"{folder} has an older layout, and is only read here; any other command brings it forward"
            )

    def _found(self, folder: Path) -> int:
        path = folder / FILE
        try:
            text = path.read_text("ascii").strip()
        except FileNotFoundError:
            return 1
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"cannot read {path}: {error}") from error
        if not (text.isdigit() and len(text) < 10 and int(text)):
            raise StorageError(f"{path} is damaged: it has to be a number, which says the layout of {self.name}")
        if int(text) > self.newest:
            raise ConfigError(made_by_newer(folder))
        return int(text)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
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
