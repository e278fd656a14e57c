"""Writing files and folders so that a reader never sees half of one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hdpmf.errors import StorageError


def atomic_write(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o644) -> None:
    """Write ``data`` to ``path`` whole or not at all.

    The bytes go to a temporary file beside the target, reach the disk, and are renamed over it. If anything
    fails, what was at ``path`` before is still there and the temporary file is gone.

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
            f"could not write {target}: {reason}. Nothing was changed there; free space or choose another "
            "folder, then run the same command again."
        ) from error


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which appears at ``target`` whole or not at all; one that is there is replaced.

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
            f"could not save to {target}: {error.strerror or error}. What was there before is unchanged."
        ) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _swap_in(staging: Path, target: Path) -> None:
    """Put the finished folder in place; an earlier one is set aside first and comes back if that fails."""
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
