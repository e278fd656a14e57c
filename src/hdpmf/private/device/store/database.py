"""The one SQLite file of a device: made once, private to its owner, written whole or not at all."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from hdpmf.common.base.files import FileKind, count_tables, lock_file, make_durable, storage_errors
from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.device.store.counter import CommitCounter, counter_of
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.layout import ERASED, LEDGER_KEPT, SCHEMA, statements

MEMORY = ":memory:"

_KIND = FileKind(
    name="a device store",
    application=0x68647076,  # "hdpv"
    schema=SCHEMA,
    safe="What was there before is safe and nothing new was written; free space or permissions, "
    "then try again",
    remedy="restore a backup that is not older than its last use, because an older one has "
    "forgotten what was sent since",
)
# seconds for another command's write to end; no mutant: nobody waits so long in a test
_PATIENCE = 30
# seconds for another connection's read to end before the -wal is emptied; else it is tried later
_SHORT_PATIENCE = 0.5
_LOCK_FILE = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class Database:
    """A connection to a device's file.

    Everything goes through `execute`, and what belongs together through `transaction`. Several
    commands may use one file at a time; their transactions come one after another. Threads may
    share a connection.

    Attributes:
        in_memory: There is no file.
        rollbacks: How many transactions were undone here.
    """

    def __init__(self, path: str | os.PathLike[str], *, make: bool = False) -> None:
        self.in_memory = os.fspath(path) == MEMORY
        self.path = Path(path)
        self.rollbacks = 0
        self._depth = 0
        self._lock = threading.RLock()
        self._serving: IO[bytes] | None = None
        self._counter: CommitCounter | None = None
        self._erases = False  # deleted bytes of the owner's data are still in the -wal
        if make:
            self._claim()
        elif not self.in_memory and not self.path.is_file():
            raise ConfigError(
                f"there is no device store at {self.path}; make one with: hdpmf device init "
                f"{self.path}"
            )
        with _KIND.errors(self.path):
            self._connection = sqlite3.connect(
                self.path,
                isolation_level=None,
                timeout=_PATIENCE,
                check_same_thread=False,
                # Of thousands of stores they would fill the memory. A round needs ten; making them
                # again costs little.
                cached_statements=4 if self.in_memory else 128,  # no mutant: memory against time
            )
            try:
                if not make:
                    self._check()
                self._prepare()
            except BaseException:
                self._connection.close()  # no mutant: the garbage collector does so, a little later
                if make and not self.in_memory:
                    self.path.unlink(missing_ok=True)
                raise

    def close(self) -> None:
        """Let the file go."""
        with suppress(sqlite3.Error):  # no mutant: the next process empties it
            if self._erases:
                self._empty_wal(_SHORT_PATIENCE)
        self._connection.close()
        if self._serving is not None:
            self._serving.close()
            self._serving = None

    def lay_tables(self, cipher: StoreCipher) -> None:
        """Make the tables, inside the transaction that fills them; the cipher names the counter."""
        for statement in statements():
            self.execute(statement)
        self.execute("INSERT INTO head VALUES (1, 0)")
        self._watch(cipher)
        self.execute(f"PRAGMA application_id = {_KIND.application}")
        self.execute(f"PRAGMA user_version = {SCHEMA}")

    def check(self, cipher: StoreCipher, *, old_copy: bool = False) -> None:
        """Check the pages and the count of commits, and count from now on.

        Args:
            old_copy: The owner knows that it is an old copy, or was moved without its counter.

        Raises:
            StorageError: The file is damaged, or an old copy.
        """
        with self._lock, _KIND.errors(self.path):
            whole = self._connection.execute("PRAGMA main.integrity_check(1)").fetchone()[0]
            if whole != "ok":
                raise StorageError(
                    f"{self.path} is damaged: its pages do not fit together; bring the newest copy"
                )
            self._watch(cipher)
            if self._counter is not None:
                self._counter.check(old_copy=old_copy)

    def rewrite_rows(self, rewrite: Callable[[], None]) -> None:
        """Seal every row anew, in one transaction. This connection cannot be used after it.

        Args:
            rewrite: Takes every row out and puts it back. While it runs, rows of the ledger can be
                deleted.
        """
        with self.transaction():
            self.execute("DROP TRIGGER ledger_kept")
            rewrite()
            self.execute(LEDGER_KEPT)

    def execute(self, statement: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; its rows."""
        with self._lock, _KIND.errors(self.path):
            return self._connection.execute(statement, tuple(values)).fetchall()

    def iterate(self, statement: str) -> Iterator[Sequence[Any]]:
        """Return the rows of a statement one by one, inside a transaction."""
        with self._lock, _KIND.errors(self.path):
            yield from self._connection.execute(statement)

    def execute_many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run one statement for each row."""
        with self._lock, _KIND.errors(self.path):
            self._connection.executemany(statement, rows)

    def version(self) -> int:
        """A number that changes when another connection has changed the file."""
        with self._lock, _KIND.errors(self.path):
            if self.in_memory:
                return 0
            return int(self._connection.execute("PRAGMA main.data_version").fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make one commit of everything inside, on the disk when this ends; an error undoes it."""
        with self._lock, _KIND.errors(self.path):
            if self._depth:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                return
            self._connection.execute("BEGIN IMMEDIATE")
            self._depth = 1
            try:
                if self._counter is not None:
                    self._counter.begin()
                yield
                # A full disk has undone it, and the code inside ignored the error.
                if not self._connection.in_transaction:
                    raise StorageError(
                        f"nothing was written to {self.path}: the disk refused; free space"
                    )
                counts = self._counter is not None and self._counter.finish()
                self._connection.execute("COMMIT")
                if self._counter is not None and counts:
                    self._counter.raise_it()
            except BaseException:
                self.rollbacks += 1
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._depth = 0
            if self._erases:
                with suppress(sqlite3.Error):  # it is committed; the next commit tries again
                    self._empty_wal(_SHORT_PATIENCE)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Begin a transaction without waiting; StorageError if another is writing."""
        if not self._lock.acquire(blocking=False):
            raise StorageError(f"{self.path} is in use")
        try:
            self.execute("PRAGMA busy_timeout = 0")
            with self.transaction():
                yield
        finally:
            try:
                self.execute(f"PRAGMA busy_timeout = {1000 * _PATIENCE}")
            finally:
                self._lock.release()

    def serve(self) -> None:
        """Be the only process that answers a recommender from this file, until `close`.

        Raises:
            StorageError: Another process does so already.
        """
        if self.in_memory or self._serving is not None:
            return
        beside = self.path.with_name(self.path.name + ".lock")
        stream = None
        try:
            # A file of its own: closing a second descriptor of the database would drop SQLite's
            # locks on it.
            stream = os.fdopen(os.open(beside, _LOCK_FILE, 0o600), "r+b")
            lock_file(stream.fileno())
        except BlockingIOError:
            if stream is not None:
                stream.close()
            raise StorageError(
                f"{self.path} is in use: another 'hdpmf device join' answers from it; one "
                "device is one process"
            ) from None
        except OSError as error:
            if stream is not None:
                stream.close()
            raise StorageError(f"cannot lock {self.path}: {error.strerror}") from error
        self._serving = stream

    def shred(self) -> None:
        """Leave nothing of what was deleted in the file or beside it.

        Raises:
            StorageError: Another process has been reading all the time, so that deleted bytes are
                still in the ``-wal``.
        """
        with self._lock, _KIND.errors(self.path):
            self._connection.execute("VACUUM")
            if not self.in_memory and not self._empty_wal(_PATIENCE):
                raise StorageError(
                    f"what was deleted is gone from {self.path}, but its bytes are still in "
                    f"{self.path.name}-wal, because another process is reading; end that, and "
                    "open the store once"
                )

    def remove(self) -> None:
        """Close the store and delete its file."""
        self.close()
        for ending in ("", "-wal", "-shm", "-journal", ".lock", ".page"):
            with suppress(FileNotFoundError):
                self.path.with_name(self.path.name + ending).unlink()
        counter_of(self.path).unlink(missing_ok=True)

    def _empty_wal(self, patience: float) -> bool:
        """Write all pages into the file and empty the ``-wal``, which has those of before.

        Returns:
            False if another process was reading from it for all of ``patience`` seconds.
        """
        run = self._connection.execute
        run(f"PRAGMA busy_timeout = {int(1000 * patience)}")
        try:
            done = bool(run("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
        finally:
            run(f"PRAGMA busy_timeout = {1000 * _PATIENCE}")
        self._erases &= not done
        return done

    def _watch(self, cipher: StoreCipher) -> None:
        """Count commits from now on, and notice what is deleted of the owner's data."""
        if self.in_memory:
            return
        self._connection.create_function("hdpmf_erased", 0, self._erased)
        # Only so are rows seen that INSERT OR REPLACE takes out.
        self._connection.execute("PRAGMA recursive_triggers = ON")
        for table in ERASED:
            self._connection.execute(
                f"CREATE TEMP TRIGGER erased_{table} AFTER DELETE ON main.{table} "
                "BEGIN SELECT hdpmf_erased(); END"
            )
        self._counter = CommitCounter(self._connection, cipher, self.path)

    def _erased(self) -> None:
        self._erases = True

    def _claim(self) -> None:
        """Make an empty file that only its owner can read, before anything is in it."""
        if self.in_memory:
            return
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise ConfigError(
                f"{self.path} exists already; a store is made once. Choose another name"
            ) from None
        except OSError as error:
            raise StorageError(f"cannot make {self.path}: {error.strerror}") from error

    def _check(self) -> None:
        if self.in_memory:
            raise ConfigError("a store in memory is made with create; there is none to open")
        with storage_errors(f"cannot keep {self.path} private"):
            mode = stat.S_IMODE(self.path.stat().st_mode)
            if mode & 0o077:
                self.path.chmod(mode & 0o700)
        if not _KIND.is_ours(self._connection):
            if not count_tables(self._connection):
                raise StorageError(
                    f"{self.path} is empty: making it was interrupted, or it was truncated; if it "
                    "was never used, delete it and run init again"
                )
            raise ConfigError(
                f"{self.path} is an SQLite file of something else, not a device store"
            )
        if _KIND.read_schema(self._connection, self.path) < SCHEMA:
            raise ConfigError(
                f"{self.path} was made by an earlier hdpmf, whose stores this version does not "
                "read; export its ratings with that version, and make a new store"
            )

    def _prepare(self) -> None:
        run = self._connection.execute
        # Deleted bytes are overwritten: what a person has forgotten must not be found in the file.
        run("PRAGMA secure_delete = ON").fetchall()
        if self.in_memory:
            run(
                "PRAGMA page_size = 512"
            )  # thousands of them fit in memory then; no mutant: memory against time
            run("PRAGMA journal_mode = MEMORY").fetchall()
            return
        make_durable(self._connection)
        run("PRAGMA cache_size = -65536")  # 64 MB; no mutant: memory against time
