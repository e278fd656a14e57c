"""A log of released batches: a database that was rolled back must not draw noise again.

One line per batch: task, interval, digest of the share. A share leaves only after its line is on
the disk. So a batch with a line and without its share in the database was closed before, and the
database is older than that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from hdpmf.common.aggregation.two_servers.dap import Interval
from hdpmf.common.base.platform import lock_file
from hdpmf.errors import PrivacyError, StorageError


@dataclass(frozen=True)
class _ReleasedBatch:
    task: str
    start: int
    duration: int
    digest: str

    def overlaps(self, task: str, interval: Interval) -> bool:
        return (
            self.task == task
            and self.start < interval.end
            and interval.start < self.start + self.duration
        )


class ReleasedBatches:
    """The log file of a server's released batches, shared by all its workers.

    Args:
        path: The file; None if the database is in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def check(self, task_id: bytes, interval: Interval) -> None:
        """Raise PrivacyError if part of the interval was released. Call it before drawing noise."""
        with self._locked() as file:
            if any(batch.overlaps(task_id.hex(), interval) for batch in self._read(file)):
                raise self._refusal(task_id, interval)

    def write(self, task_id: bytes, interval: Interval, share: bytes) -> None:
        """Record the share of a batch permanently. Call it before the share leaves."""
        new = _ReleasedBatch(
            task_id.hex(), interval.start, interval.duration, sha256(share).hexdigest()
        )
        with self._locked() as file:
            released = self._read(file)
            if new in released:
                return
            if any(batch.overlaps(new.task, interval) for batch in released):
                raise self._refusal(task_id, interval)
            if file is not None:
                self._append(file, f"{new.task} {new.start} {new.duration} {new.digest}\n".encode())

    def _refusal(self, task_id: bytes, interval: Interval) -> PrivacyError:
        return PrivacyError(
            f"the batch of task {task_id.hex()[:16]} from {interval.start} to {interval.end} was "
            "closed before, and the database does not have its share: it is older than "
            f"{self._path}. Noise that is drawn again can be averaged away, so this batch stays "
            "closed. Bring back the newest copy of the database; if there is none, give this task "
            "up and make a new one"
        )

    @contextmanager
    def _locked(self) -> Iterator[int | None]:
        if self._path is None:
            yield None
            return
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._failed(error) from error
        try:
            lock_file(file, wait=True)
            yield file
        finally:
            os.close(file)

    def _read(self, file: int | None) -> list[_ReleasedBatch]:
        if file is None:
            return []
        os.lseek(file, 0, os.SEEK_SET)
        with os.fdopen(os.dup(file), "rb") as stream:
            whole = stream.read()
        released = []
        # An unfinished line was never relied on.
        for line in whole[: whole.rfind(b"\n") + 1].splitlines():
            try:
                task, start, duration, digest = line.decode("ascii").split(" ")
                released.append(_ReleasedBatch(task, int(start), int(duration), digest))
            except ValueError:
                raise StorageError(
                    f"{self._path} is damaged; bring back its copy. Without it nobody knows which "
                    "batches are closed"
                ) from None
        return released

    def _append(self, file: int, line: bytes) -> None:
        try:
            end = os.lseek(file, 0, os.SEEK_END)
            if end:
                os.lseek(file, 0, os.SEEK_SET)
                complete = os.read(file, end).rfind(b"\n") + 1
                os.ftruncate(file, complete)
                os.lseek(file, complete, os.SEEK_SET)
            if os.write(file, line) != len(line):
                raise OSError("the disk is full")
            os.fsync(file)
            if self._path is not None and os.name == "posix":  # elsewhere a folder cannot be task
                folder = os.open(self._path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(
            f"could not write {self._path}: {error.strerror or error}. No share left; free space, "
            "then try again"
        )
