"""Integrity of a store: a keyed sum over all its rows, and a counter beside the file.

Every commit writes a head: how many commits there were, the sum of the keyed digests of all rows,
and the digest of the schema. A row that was changed, deleted, moved or put back makes another sum,
which is seen when the file is opened, and when another process has written to it. A restored old
file is older than the counter beside it says. With a passphrase nobody else can make a head;
without one the key is in the file, and the sum only detects accidental damage. An old file with an
old counter cannot be told from a new one.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from hdpmf.common.base.files import atomic_write
from hdpmf.errors import StorageError
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.layout import COLUMNS, layout_digest, require_layout, schema_number

_ERASED = {
    "ratings",
    "user_weights",
    "item_weights",
    "hidden_items",
    "models",
    "marks",
    "past_items",
}
_BYTES = 32
_MODULUS = 1 << (8 * _BYTES)

NEWEST = (
    "bring the newest copy (the store and the file {counter} beside it); if there "
    "is none, hdpmf device status --old-copy goes on with "
    "this one, which has forgotten what was sent since and may send it again"
)


class _Head(msgspec.Struct, frozen=True, array_like=True):
    commits: int
    total: bytes
    check: bytes  # the cipher's, over both and the schema; without a passphrase nothing is sealed


class _Counter(msgspec.Struct, frozen=True):
    store: str
    commits: int
    check: str


class RowIntegrity:
    """The sum over the rows of one connection's file, kept up to date inside its transactions.

    Attributes:
        erases: True if data of the owner was deleted or replaced and its bytes are still in the
            ``-wal``. The code that empties the ``-wal`` resets it.
    """

    def __init__(self, connection: sqlite3.Connection, cipher: StoreCipher, path: Path) -> None:
        self._connection = connection
        self._cipher = cipher
        self._path = path
        self._counter = counter_of(path)
        self._name = cipher.lasting_check(b"store").hex()[:32]
        self._open = self._changed = False
        self._commits = self._total = self._newest = 0
        self._followed: list[str] = []
        self.erases = False

    @property
    def commits(self) -> int:
        """Commits before the transaction under way."""
        return self._commits

    def follow(self) -> None:
        """Follow every row that is written or deleted from now on, also in new tables."""
        self._connection.create_function("hdpmf_row", -1, self._row)
        # Only so are rows seen that INSERT OR REPLACE takes out.
        self._connection.execute("PRAGMA recursive_triggers = ON")
        found = self._connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")
        there = {name for (name,) in found}
        for table, columns in COLUMNS.items():
            if table not in there or table in self._followed:
                continue
            new, old = (
                ", ".join(f"{which}.{name}" for name in columns) for which in ("NEW", "OLD")
            )
            for event, sign, values in (("INSERT", 1, new), ("DELETE", -1, old)):
                self._connection.execute(
                    f"CREATE TEMP TRIGGER integrity_{table}_{event} AFTER {event} ON main.{table} "
                    f"BEGIN SELECT hdpmf_row({sign}, '{table}', {values}); END"
                )
            self._connection.execute(
                f"CREATE TEMP TRIGGER integrity_{table}_UPDATE BEFORE UPDATE ON main.{table} "
                "BEGIN SELECT RAISE(ABORT, 'rows are replaced, not updated'); END"
            )
            self._followed.append(table)

    def begin(self, *, first: bool = False, commits: int = 0) -> None:
        """Begin a transaction.

        Args:
            first: It is the first one of a file: there is no head yet.
            commits: Where the count goes on then.
        """
        head = _Head(commits, bytes(_BYTES), b"") if first else self._head()
        self._commits, self._total = head.commits, int.from_bytes(head.total, "big")
        self._open, self._changed = True, first

    def finish(self) -> None:
        """Write the head, just before the commit."""
        if not self._changed:
            return
        self._commits += 1
        total = self._total.to_bytes(_BYTES, "big")
        head = _Head(self._commits, total, self._check_of(self._commits, total))
        sealed = self._cipher.seal(msgspec.msgpack.encode(head), b"head")
        self._connection.execute("INSERT OR REPLACE INTO head VALUES (1, ?)", (sealed,))

    def committed(self) -> None:
        """Raise the counter after a commit, before anybody can learn of it."""
        if self._changed:
            self._newest = self._commits
            self._count(self._commits)

    def end(self) -> None:
        """The transaction is over, one way or the other."""
        self._open = self._changed = False

    def check(self, *, old_copy: bool = False) -> None:
        """See whether the file is whole and the newest.

        Args:
            old_copy: The owner knows that it is an old copy, or was moved without its counter.

        Raises:
            StorageError: It is not.
        """
        counted = self.counted()  # first: another process may commit at any moment
        self._connection.execute("BEGIN")
        try:
            commits = self.verify()
        finally:
            self._connection.execute("ROLLBACK")
        if not old_copy:
            self._refuse_old(commits, counted)
        if counted is None or commits < counted:
            self._write_counter(commits)
        else:
            self._count(commits)

    def verify(self) -> int:
        """Check schema, pages and rows, inside a transaction; return the number of commits.

        Raises:
            StorageError: Something is not as it was left.
        """
        require_layout(self._connection, self._path)
        # The quick check does not see rows that are out of order, which nobody would find.
        whole = self._connection.execute("PRAGMA main.integrity_check(1)").fetchone()[0]
        if whole != "ok":
            raise StorageError(
                f"{self._path} is damaged or was tampered with: its pages do not fit together; "
                + NEWEST.format(counter=self._counter.name)
            )
        head = self._head()
        if self._sum().to_bytes(_BYTES, "big") != head.total:
            raise StorageError(
                f"{self._path} is damaged or was tampered with: rows were changed, deleted or "
                "put back; " + NEWEST.format(counter=self._counter.name)
            )
        if head.commits < self._newest:
            raise StorageError(
                f"{self._path} was tampered with: an old copy of its rows was put back while it "
                "was open; " + NEWEST.format(counter=self._counter.name)
            )
        self._newest = head.commits
        return head.commits

    def _refuse_old(self, commits: int, counted: int | None) -> None:
        """Refuse a file with fewer commits than were counted, or one that nobody has counted.

        Not one of a single commit: a process was killed when it had just made it.
        """
        if counted is not None and commits < counted:
            raise StorageError(
                f"{self._path} is an old copy: {counted - commits} changes were made since; "
                + NEWEST.format(counter=self._counter.name)
            )
        if counted is None and (commits > 1 or self._counter.exists()):
            raise StorageError(
                f"{self._path} has lost its counter, {self._counter.name} (it is gone, damaged or "
                "of another store), so that nobody can say whether it is the newest copy; "
                + NEWEST.format(counter=self._counter.name)
            )

    def adopt(self, cipher: StoreCipher | None = None) -> None:
        """Sum up all rows inside a transaction, by another cipher if one is given."""
        if cipher is not None:
            self._cipher = cipher
        self._total = self._sum()
        self._changed = True

    def _row(self, sign: int, *row: object) -> None:
        if not self._open:
            raise StorageError("a row was written outside of a transaction")
        self._total = (self._total + sign * self._digest(row)) % _MODULUS
        self._changed = True
        self.erases |= sign < 0 and row[0] in _ERASED

    def _digest(self, row: tuple[object, ...]) -> int:
        return int.from_bytes(self._cipher.check(msgspec.msgpack.encode(row)), "big")

    def _sum(self) -> int:
        total = 0
        for table in self._followed:
            names = ", ".join(COLUMNS[table])
            for row in self._connection.execute(f"SELECT {names} FROM main.{table}"):  # noqa: S608  # names of ours
                total += self._digest((table, *row))
        return total % _MODULUS

    def _head(self) -> _Head:
        rows = self._connection.execute("SELECT sealed FROM main.head WHERE row = 1").fetchall()
        try:
            head = msgspec.msgpack.decode(self._cipher.open(rows[0][0], b"head"), type=_Head)
        except (IndexError, TypeError, msgspec.MsgspecError):
            raise StorageError(
                f"{self._path} has no head: it is damaged or was tampered with"
            ) from None
        if head.check != self._check_of(head.commits, head.total):
            raise StorageError(f"the head of {self._path} is damaged or was tampered with")
        return head

    def _check_of(self, commits: int, total: bytes) -> bytes:
        schema = schema_number(self._connection)
        stated = ("head", commits, total, schema, layout_digest(schema))
        return self._cipher.check(msgspec.msgpack.encode(stated))

    def counted(self) -> int | None:
        """Return the counter's number; None where there is no counter of this store."""
        try:
            counter = msgspec.json.decode(self._counter.read_bytes(), type=_Counter)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {self._counter}: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        if counter.store != self._name or counter.check != self._signed(counter.commits):
            return None  # of another store that was here
        return counter.commits

    def _count(self, commits: int) -> None:
        """Raise the counter.

        Two processes at a time may leave it one behind, which the next commit corrects.
        """
        if (self.counted() or 0) < commits:
            self._write_counter(commits)

    def _write_counter(self, commits: int) -> None:
        counter = _Counter(self._name, commits, self._signed(commits))
        atomic_write(self._counter, msgspec.json.encode(counter) + b"\n", mode=0o600)

    def _signed(self, commits: int) -> str:
        return self._cipher.lasting_check(msgspec.msgpack.encode(("counter", commits))).hex()


def counter_of(path: Path) -> Path:
    """Return the path of a store's counter."""
    return path.with_name(path.name + ".counter")
