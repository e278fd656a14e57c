"""A counter of commits, in a store and beside it, by which an old copy of the store is noticed.

A restored old file has had fewer commits than the counter beside it says. An old file with an old
counter cannot be told from a new one.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from hdpmf.common.base.files import atomic_write
from hdpmf.errors import StorageError
from hdpmf.private.device.store.encryption import StoreCipher

NEWEST = (
    "bring the newest copy (the store and the file {counter} beside it); if there "
    "is none, hdpmf device status --old-copy goes on with "
    "this one, which has forgotten what was sent since and may send it again"
)


class _Counter(msgspec.Struct, frozen=True):
    store: str
    commits: int


class CommitCounter:
    """How many commits a store has had, by its file and by the counter beside it."""

    def __init__(self, connection: sqlite3.Connection, cipher: StoreCipher, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._beside = counter_of(path)
        self._name = cipher.lasting_check(b"store").hex()[:32]
        self._changes = 0

    @property
    def commits(self) -> int:
        """Commits by the file, the transaction under way not among them."""
        row = self._connection.execute("SELECT commits FROM main.head").fetchone()
        if row is None:
            raise StorageError(f"{self._path} has no count of its commits: it is damaged")
        return int(row[0])

    def begin(self) -> None:
        """Begin a transaction."""
        self._changes = self._connection.total_changes

    def finish(self) -> bool:
        """Count the transaction, just before its commit; False if it has changed nothing."""
        if self._connection.total_changes == self._changes:
            return False
        self._connection.execute("UPDATE head SET commits = commits + 1")
        return True

    def raise_it(self) -> None:
        """Raise the counter beside the file after a commit, before anybody can learn of it.

        Two processes at a time may leave it one behind, which the next commit corrects.
        """
        commits = self.commits
        if (self._counted() or 0) < commits:
            self._write(commits)

    def check(self, *, old_copy: bool = False) -> None:
        """Refuse a file with fewer commits than were counted, or one that nobody has counted.

        Not one of a single commit: a process was killed when it had just made it.

        Args:
            old_copy: The owner knows that it is an old copy, or was moved without its counter.

        Raises:
            StorageError: It is an old copy, or has lost its counter.
        """
        counted = self._counted()  # first: another process may commit at any moment
        commits = self.commits
        if not old_copy and counted is not None and commits < counted:
            raise StorageError(
                f"{self._path} is an old copy: {counted - commits} changes were made since; "
                + NEWEST.format(counter=self._beside.name)
            )
        if not old_copy and counted is None and (commits > 1 or self._beside.exists()):
            raise StorageError(
                f"{self._path} has lost its counter, {self._beside.name} (it is gone, damaged or "
                "of another store), so that nobody can say whether it is the newest copy; "
                + NEWEST.format(counter=self._beside.name)
            )
        if counted != commits:
            self._write(commits)

    def _counted(self) -> int | None:
        """Return the number beside the file; None where there is no counter of this store."""
        try:
            counter = msgspec.json.decode(self._beside.read_bytes(), type=_Counter)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {self._beside}: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return counter.commits if counter.store == self._name else None

    def _write(self, commits: int) -> None:
        counter = _Counter(self._name, commits)
        atomic_write(self._beside, msgspec.json.encode(counter) + b"\n", mode=0o600)


def counter_of(path: Path) -> Path:
    """Return the path of a store's counter."""
    return path.with_name(path.name + ".counter")
