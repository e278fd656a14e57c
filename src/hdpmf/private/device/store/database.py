"""The one SQLite file of a device: made once, private to its owner, written whole or not at all."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from hdpmf.common.base.files import lock_file
from hdpmf.common.base.sqlite import FileKind, count_tables, make_durable
from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.integrity import (
    HEAD_TABLE,
    TYPED_TABLES,
    RowIntegrity,
    counter_of,
)

MEMORY = ":memory:"
_FIRST_SCHEMA = 4  # of version 1.0; nobody has files of an earlier one
_KIND = FileKind(
    name="a device store",
    application=0x68647076,  # "hdpv"
    schema=_FIRST_SCHEMA,
    safe="What was there before is safe and nothing new was written; free space or permissions, "
    "then try again",
    remedy="restore a backup that is not older than its last use, because an older one has "
    "forgotten what was sent since",
)
MIGRATIONS: dict[int, Callable[[Database, StoreCipher], None]] = {}
"""By schema, what brings a file to the next one: new tables, and rows that are decoded and written
anew. It runs in a transaction, on a file whose rows were checked.
"""

# seconds for another command's write to end; no mutant: nobody waits so long in a test
_PATIENCE = 30

_LEDGER_KEPT = """
CREATE TRIGGER ledger_kept BEFORE DELETE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""
_TYPED_TABLES = "\n".join(
    f"CREATE TABLE {name} (tag BLOB PRIMARY KEY, number INTEGER NOT NULL, sealed BLOB NOT NULL) "
    "WITHOUT ROWID;"
    for name in TYPED_TABLES
)
_TABLES = """
CREATE TABLE header (row INTEGER PRIMARY KEY CHECK (row = 1), value BLOB NOT NULL);
CREATE TABLE user_weights (tag BLOB PRIMARY KEY, sealed BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE item_weights (tag BLOB PRIMARY KEY, sealed BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE ratings (tag BLOB PRIMARY KEY, sealed BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run BLOB NOT NULL UNIQUE, sealed BLOB NOT NULL
);
CREATE TABLE replies (
    run BLOB NOT NULL, number INTEGER NOT NULL, request BLOB NOT NULL, sealed BLOB NOT NULL,
    PRIMARY KEY (run, number, request)
) WITHOUT ROWID;
CREATE TABLE ledger (number INTEGER PRIMARY KEY AUTOINCREMENT, entry BLOB NOT NULL, charges BLOB);
CREATE TRIGGER ledger_stays BEFORE UPDATE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_grows BEFORE INSERT ON ledger
WHEN EXISTS (SELECT 1 FROM ledger WHERE number >= NEW.number)
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""


class Database:
    """A connection.

    Everything goes through `execute`, and what belongs together through `transaction`.

    Several commands may use one file at a time; their transactions come one after another. Threads
    may share one.

    Attributes:
        in_memory: There is none.
        rollbacks: How many transactions were undone here.
    """

    def __init__(self, path: str | os.PathLike[str], *, make: bool = False) -> None:
        self.in_memory = os.fspath(path) == MEMORY
        self.path = Path(path)
        self.rollbacks = 0
        self._depth = 0
        self._lock = threading.RLock()
        self._serving: IO[bytes] | None = None
        self._integrity: RowIntegrity | None = None
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
        self._connection.close()
        if self._serving is not None:
            self._serving.close()
            self._serving = None

    def lay_tables(self, cipher: StoreCipher) -> None:
        """Make the tables, inside the transaction that fills them."""
        for statement in _statements(_TABLES + _TYPED_TABLES + _LEDGER_KEPT + HEAD_TABLE):
            self.execute(statement)
        if not self.in_memory:  # nobody else gets at that
            self._integrity = RowIntegrity(self._connection, cipher, self.path)
            self._integrity.follow()
            self._integrity.begin(first=True)
        self.execute(f"PRAGMA application_id = {_KIND.application}")
        self.execute(f"PRAGMA user_version = {_KIND.schema}")

    def check_rows(self, cipher: StoreCipher, *, old_copy: bool = False) -> None:
        """Check the file, migrate it to this version's schema, and watch it from now on.

        As in `RowIntegrity.check`.
        """
        with self._lock, _KIND.errors(self.path):
            integrity = RowIntegrity(self._connection, cipher, self.path)
            integrity.follow()
            integrity.check(old_copy=old_copy)
            self._integrity = integrity
            while self._schema() < _KIND.schema:
                self._migrate(cipher, integrity)

    def rewrite_rows(self, cipher: StoreCipher, rewrite: Callable[[], None]) -> None:
        """Seal every row anew by another cipher in one transaction, this connection's last.

        Args:
            cipher: What seals the file from now on.
            rewrite: Takes every row out and puts it back. For as long as it runs the ledger lets go
                of its rows.
        """
        with self.transaction():
            self.execute("DROP TRIGGER ledger_kept")
            rewrite()
            self.execute(_LEDGER_KEPT)
            if self._integrity is not None:
                self._integrity.adopt(cipher)

    def execute(self, statement: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; its rows."""
        with self._lock, _KIND.errors(self.path):
            return self._connection.execute(statement, tuple(values)).fetchall()

    def execute_many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run one statement for each row."""
        with self._lock, _KIND.errors(self.path):
            self._connection.executemany(statement, rows)

    def version(self) -> int:
        """A number that changes when another connection has changed the file."""
        return 0 if self.in_memory else int(self.execute("PRAGMA data_version")[0][0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything inside one commit, on the disk when this ends; errors undo it."""
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
                if self._integrity is not None:
                    self._integrity.begin()
                yield
                if (
                    not self._connection.in_transaction
                ):  # a full disk has undone it, and somebody took no notice
                    raise StorageError(
                        f"nothing was written to {self.path}: the disk refused; free space"
                    )
                if self._integrity is not None:
                    self._integrity.finish()
                self._connection.execute("COMMIT")
                if self._integrity is not None:
                    self._integrity.committed()
            except BaseException:
                self.rollbacks += 1
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._depth = 0
                if self._integrity is not None:
                    self._integrity.end()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Begin a transaction without waiting; StorageError where somebody else is writing."""
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
        """Lock the file: be the only process that answers a recommender, until `close`.

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
            stream = os.fdopen(os.open(beside, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
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

    def copy_to(self, target: Path) -> None:
        """Write the whole file as it is now to another place, for its owner only."""
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise StorageError(f"cannot make {target}: {error.strerror}") from error
        self.execute("VACUUM INTO ?", (str(target),))

    def to_bytes(self) -> bytes:
        """Return a database that is in memory as bytes."""
        with self._lock:
            return self._connection.serialize()

    @classmethod
    def from_bytes(cls, data: bytes) -> Database:
        """Return a database in memory from its bytes, which nobody else had."""
        database = cls(MEMORY, make=True)
        database._connection.deserialize(data)
        return database

    def shred(self) -> None:
        """Leave nothing of what was deleted in the file or beside it."""
        with self._lock, _KIND.errors(self.path):
            self._connection.execute("VACUUM")
            if not self.in_memory:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def remove(self) -> None:
        """Close the store and delete its file."""
        self.close()
        for ending in ("", "-wal", "-shm", "-journal", ".lock"):
            with suppress(FileNotFoundError):
                self.path.with_name(self.path.name + ending).unlink()
        counter_of(self.path).unlink(missing_ok=True)

    def _schema(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _migrate(self, cipher: StoreCipher, integrity: RowIntegrity) -> None:
        """Bring the file one schema forward, unless another process has just done so."""
        schema = self._schema()
        with self.transaction():
            if self._schema() == schema:
                MIGRATIONS[schema](self, cipher)
                integrity.follow()
                integrity.adopt()
                self._connection.execute(f"PRAGMA user_version = {schema + 1}")

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
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
            if mode & 0o077:
                self.path.chmod(mode & 0o700)
        except OSError as error:
            raise StorageError(f"cannot keep {self.path} private: {error.strerror}") from error
        if not _KIND.is_ours(self._connection):
            if not count_tables(self._connection):
                raise StorageError(
                    f"{self.path} is empty: making it was interrupted, or it was truncated; if it "
                    "was never used, "
                    "delete it and run init again"
                )
            raise ConfigError(
                f"{self.path} is an SQLite file of something else, not a device store"
            )
        if _KIND.check(self._connection, self.path) < _FIRST_SCHEMA:
            raise ConfigError(
                f"{self.path} was made by hdpmf 0.1 or 0.2, whose stores this version does not "
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
        run(
            "PRAGMA cache_size = -65536"
        )  # 64 MB, for a silo's many ratings; no mutant: memory against time


def _statements(script: str) -> Iterator[str]:
    """The statements of a script; ``executescript`` would commit first."""
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
