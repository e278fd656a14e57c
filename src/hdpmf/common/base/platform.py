"""Differences between operating systems: file locks and the limit of open files.

Linux and macOS have the modules ``fcntl`` and ``resource``, Windows has ``msvcrt``. They are asked
for where they are needed, so that the library can be imported anywhere.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from hdpmf.errors import StorageError

# Windows locks bytes, and nobody else can read or write one that is locked: this one is behind all
# that is written.
_BYTE = 0x7FFF_FFFE
_PAUSE = 0.05


def lock_file(descriptor: int, *, wait: bool = False, shared: bool = False) -> None:
    """Lock an open file for this process, until the file is closed or the process ends.

    Args:
        descriptor: The file.
        wait: Wait for another process that has it, as long as it takes.
        shared: Let others have it who share it, too. Windows knows no such lock: there it is as any
            other.

    Raises:
        BlockingIOError: Another process has it.
        StorageError: The system has no locks that we know.
        OSError: The system refuses for another reason.
    """
    try:
        import fcntl
    except ImportError:
        _lock_byte(descriptor, wait=wait)
    else:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def _lock_byte(descriptor: int, *, wait: bool) -> None:
    try:
        import msvcrt
    except ImportError:
        raise StorageError(
            "this system has no locks on files, so two processes could use one file at once"
        ) from None
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    while True:
        try:
            os.lseek(descriptor, _BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
            return
        except PermissionError:
            if not wait:
                raise BlockingIOError("another process has the file locked") from None
            time.sleep(_PAUSE)
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)


def allow_open_files(wanted: int) -> None:
    """Let this process have so many files and connections open, or as many as the system allows.

    Often there are 1,024 only. Windows has no such bound.
    """
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
