"""The files of a SQLite database under a running server: its own ones, and nobody else's copy.

A file that is deleted or moved away has another inode, or none. A copy that is written over it
(``cp old.sqlite data.sqlite``) keeps the inode, and SQLite notices nothing: it has pages in memory,
and looks for newer ones in its log. Reports would be confirmed, and lost with the next checkpoint.
So this module reads what is on the disk, past SQLite (https://www.sqlite.org/fileformat2.html and
walformat.html):

- The header of the file has two numbers for applications. One is random, drawn when a server
  starts. The other counts transactions. No copy from before the start has the first; a copy from
  after it has a smaller second, or the same pages.
- The log has a running checksum. SQLite's index of the log, in memory that processes share, says
  where the log ends and with which checksum. A log that is another one does not have it there.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

from hdpmf.errors import StorageError

_NUMBERS = struct.Struct(">I4xI")
_NUMBERS_AT = 60  # user_version and application_id, in the header of the file
_INDEX = struct.Struct("=14xHI4x8s8s8x")  # page size, last frame, its checksum, salts of the log
_FRAME = struct.Struct(">8x8s2I")  # salts, checksum
_LOG_HEADER = 32
_LOOKS = 5
_PAUSE = 0.02  # between looks, if the first was in the middle of a checkpoint


class _LogEnd(NamedTuple):
    """The last frame of SQLite's log; number 0 if it is empty."""

    salts: bytes
    page: int
    frame: int
    checksum: bytes

    def is_in(self, log: int) -> bool:
        """Return True if the log on the disk has this frame."""
        if self.frame == 0:
            return True
        found = os.pread(
            log, _FRAME.size, _LOG_HEADER + (self.frame - 1) * (_FRAME.size + self.page)
        )
        if len(found) < _FRAME.size:
            return False
        salts, *checksum = _FRAME.unpack(found)
        return salts == self.salts and struct.pack("=2I", *checksum) == self.checksum


class SqliteFile:
    """The file of a SQLite database: for its owner alone, and the same one while it is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._paths = [path]
        self._open: list[int] = []  # until the end: to close one would drop SQLite's locks
        self._guard = threading.Lock()
        self._overwritten = False
        self._random = 0
        self._committed = 0
        self._first = (0, 0)
        self._counted = 0
        self._log_end = _LogEnd(b"", 0, 0, b"")
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            os.chmod(path, 0o600)  # SQLite's log has the same mode
            self._known = self._look()
        except OSError as error:
            raise StorageError(
                f"cannot open {path}: {error.strerror or error}; the server needs a database "
                "that it can write"
            ) from error

    def count(self, connection: sqlite3.Connection) -> int:
        """Count the transaction that is open, before it is committed; return its number."""
        (before,) = connection.execute("PRAGMA user_version").fetchone()
        number = (int(before) + 1) % (1 << 32)
        connection.execute(f"PRAGMA user_version = {_signed(number)}")
        return number

    def watch(self, connection: sqlite3.Connection) -> None:
        """Mark the file by a random number, so that no other copy passes for it from now on.

        For the one process that serves it, before its first thread. Others may read and write it.
        """
        self._random = secrets.randbits(32)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {_signed(self._random)}")
        self._committed = self.count(connection)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        paths = [self._path, *(self._path.with_name(f"{self._path.name}-{end}") for end in _ENDS)]
        try:
            self._open = [os.open(path, os.O_RDONLY) for path in paths]
            self._paths = paths
            self._known = self._look()
            self._first = self._numbers()  # another process may read, and delay the checkpoint
            self._counted = self._first[0]
            self._log_end = self._read_log_end()
        except (OSError, struct.error) as error:
            raise StorageError(f"cannot read {self._path} and SQLite's files beside it") from error

    def check(self, committed: int | None = None) -> None:
        """Raise StorageError if the file was deleted, replaced or overwritten.

        ``committed`` is the number of a transaction that has just ended.
        """
        with self._guard:
            for look in range(_LOOKS):
                if self._overwritten:
                    break
                if look:
                    time.sleep(_PAUSE)
                try:
                    if self._look() != self._known:
                        break
                    if not self._open:
                        return
                    if self._is_same():
                        if committed is not None and _is_before(self._committed, committed):
                            self._committed = committed
                        return
                except OSError:
                    break
            else:
                self._overwritten = True  # for good: SQLite may have mixed old pages with new ones
        raise StorageError(
            f"{self._path} was deleted, replaced or overwritten while the server runs. Nothing is "
            "confirmed any more. Stop the server and bring back the newest copy of the file; "
            "without one, set up a new server"
        )

    def close(self) -> None:
        """Close the files, after SQLite has closed its own."""
        for file in self._open:
            os.close(file)
        self._open = []

    def _look(self) -> list[tuple[int, int]]:
        found = [os.stat(path) for path in self._paths]
        return [(stat.st_dev, stat.st_ino) for stat in found]

    def _is_same(self) -> bool:
        """Compare what is on the disk with what was there before, and remember it."""
        try:
            counted, random = self._numbers()
            end = self._read_log_end()
        except struct.error:  # too short, or being written
            return False
        if random == self._random:
            if _is_before(counted, self._counted):
                return False
        elif (counted, random) != self._first:
            return False
        if end.salts == self._log_end.salts:
            if end.frame < self._log_end.frame or not self._log_end.is_in(self._open[1]):
                return False
        elif _is_before(counted, self._committed):
            return False  # a log begins anew when all of it is in the file
        if end != self._log_end and not end.is_in(self._open[1]):
            return False
        self._counted = counted
        self._log_end = end
        return True

    def _numbers(self) -> tuple[int, int]:
        """Return how many transactions are in the file, and its random number."""
        counted, random = _NUMBERS.unpack(os.pread(self._open[0], _NUMBERS.size, _NUMBERS_AT))
        return counted, random

    def _read_log_end(self) -> _LogEnd:
        """Return the end of the log by its index, which has it twice."""
        found = os.pread(self._open[2], 2 * _INDEX.size, 0)
        first, second = found[: _INDEX.size], found[_INDEX.size :]
        if first != second:
            raise struct.error
        page, frame, checksum, salts = _INDEX.unpack(first)
        return _LogEnd(salts, page if page > 1 else 1 << 16, frame, checksum)


_ENDS = ("wal", "shm")


def _is_before(number: int, other: int) -> bool:
    """Return True if a count is less than another; after 2^32 it begins anew."""
    return (number - other) % (1 << 32) >= 1 << 31


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
