"""A server's released batches: a log (``release_log``) that the other server witnesses.

A database that is brought back from an old copy has forgotten what was released since. So each
release is an entry of a log before it leaves: a batch with the digest of its share, or a task that
was given up, of which nothing is released. The log is in the database, where all workers share it,
and the other server remembers all of it. Nothing leaves before the other server has shown that it
remembers the newest entry.

A server whose database is an old copy therefore learns of it before it releases anything. It gets
back the entries that it lacks. They are signed by itself, so that the other server cannot invent
any. It keeps those batches closed, and goes on with all others. A small file in the server's folder
has number and digest of the newest entry, too: a witness that remembers where the other server does
not, or lies.

Both servers handle the same message (``LogMessage``) as request and as answer, so that one exchange
tells both what they lack.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from hdpmf.common.aggregation.two_servers.dap.messages import Interval
from hdpmf.common.base.files import atomic_write
from hdpmf.common.base.logs import event
from hdpmf.common.base.msgpack import read
from hdpmf.errors import PrivacyError, ProtocolError, StorageError, needs
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, batches, released, tasks
from hdpmf.untrusted.aggregator.release_log import (
    AT_ONCE,
    OWN,
    ReleaseLog,
    SignedEntry,
    number_of,
)
from hdpmf.untrusted.aggregator.tasks import ServerKeys

with needs("sqlalchemy"):
    import sqlalchemy as sa

LOG_PATH = "/released_batches"
LOG_MEDIA_TYPE = "application/hdpmf-released-batches"
MAX_LOG_MESSAGE = 1 << 20

HEAD_FILE = "released-head"
OLD_LOG_FILE = "closed-batches"
"""The log of version 1.0.0, a file outside the database."""


class OldDatabaseError(StorageError):
    """The database is an old copy, and what it has forgotten is not known either."""


class Witness(Protocol):
    """The other server, as far as it witnesses what this one releases."""

    def exchange_logs(self, body: bytes) -> bytes:
        """Take a ``LogMessage`` and return one. Idempotent."""


_Entries = Annotated[tuple[SignedEntry, ...], Meta(max_length=AT_ONCE)]


class LogMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one server tells the other about both logs.

    Attributes:
        head: The sender's newest entry; None if it has none.
        entries: Entries of the sender that the receiver may not have.
        memory: The receiver's newest entry that the sender remembers.
        returned: Entries of the receiver's own log that it lacks.
    """

    head: SignedEntry | None = None
    entries: _Entries = ()
    memory: SignedEntry | None = None
    returned: _Entries = ()


_MESSAGE = msgspec.msgpack.Decoder(LogMessage)


def _read_message(body: bytes) -> LogMessage:
    return read(_MESSAGE, body, MAX_LOG_MESSAGE, ProtocolError, "a message about logs of releases")


class ReleasedBatches:
    """The logs of both servers in the database of one of them.

    Args:
        database: This server's.
        keys: Its keys: it signs its own entries.
        state: Folder of the file with the newest entry; None if the database is in memory.
        witness: The other server; None only for a database in memory, which cannot be old.
    """

    def __init__(
        self,
        database: ServerDatabase,
        keys: ServerKeys,
        state: Path | None = None,
        witness: Witness | None = None,
    ) -> None:
        self._database = database
        self._witness = witness
        self._state = state
        self._own = ReleaseLog(keys, own=True)
        self._partner = ReleaseLog(keys, own=False)
        self._guard = threading.Lock()
        self._lacking = 0
        self._forked = False
        self._known: int | None = None  # the newest entry of this server that the other has
        if state is not None:
            self._take_in(state / OLD_LOG_FILE)

    def check(self, connection: sa.Connection, task_id: bytes, interval: Interval) -> None:
        """Raise PrivacyError if part of the interval was released, or the task given up."""
        for row in self._own.of_task(connection, task_id):
            if row.start < interval.end and interval.start < row.start + row.duration:
                raise PrivacyError(
                    f"the batch of task {task_id.hex()[:16]} from {interval.start} to "
                    f"{interval.end} was closed before, and the database does not have its share: "
                    "it is an old copy. Two sums of one batch would tell more than one, so this "
                    "batch stays closed. Bring back the newest copy of the database; if there is "
                    "none, give this task up and make a new one"
                )

    def add(
        self, connection: sa.Connection, task_id: bytes, interval: Interval, share: bytes
    ) -> None:
        """Add the share of a batch, in the transaction that closes it; raise as ``check`` does.

        It may leave after ``confirm``. Adding it again changes nothing.
        """
        digest = sha256(share).digest()
        self._database.lock_log(connection)
        here = (interval.start, interval.duration, digest)
        if not any(
            (row.start, row.duration, row.share) == here
            for row in self._own.of_task(connection, task_id)
        ):
            self.check(connection, task_id, interval)
            self._own.append(connection, task_id, interval, digest)

    def has(self, task_id: bytes, interval: Interval) -> bool:
        """Return True if there is an entry for exactly this batch."""
        with self._database.read() as connection:
            return any(
                (row.start, row.duration) == (interval.start, interval.duration)
                for row in self._own.of_task(connection, task_id)
            )

    def confirm(self) -> None:
        """Return when the other server remembers the whole log.

        What the database has forgotten is learned on the way.

        Raises:
            OldDatabaseError: It has forgotten entries that nobody has kept.
            TransportError: The other server could not be reached.
            ProtocolError: The other server gave something that this one never signed.
        """
        if self._witness is None:
            return
        theirs: LogMessage | None = None
        before: object = None
        while True:
            sent = msgspec.msgpack.encode(self._message(theirs))
            theirs = _read_message(self._witness.exchange_logs(sent))
            self._take(theirs)
            with self._database.read() as connection:
                head = self._own.head(connection)
            if theirs.memory == head:
                break
            now = (theirs.memory, head)
            if now == before:  # neither of them got on
                break
            before = now
        self._compare_folder()
        if theirs.memory != head or self._lacking or self._forked:
            raise self._old_database()
        self._write_head(head)

    def answer(self, body: bytes) -> bytes:
        """Take the other server's message, and return this one's.

        Raises:
            ProtocolError: It is none, or has entries that its sender never signed.
        """
        theirs = _read_message(body)
        self._take(theirs)
        return msgspec.msgpack.encode(self._message(theirs))

    def forgotten(self) -> int:
        """Return the number of releases that the database has forgotten, as far as it is known."""
        self._compare_folder()
        closed = (
            sa.select(sa.literal(1))
            .join_from(tasks, batches, tasks.c.number == batches.c.task)
            .where(
                tasks.c.id == released.c.task,
                batches.c.start == released.c.start,
                batches.c.duration == released.c.duration,
            )
        )
        missing = (
            sa.select(sa.func.count())
            .select_from(released)
            .where(released.c.server == OWN, released.c.share != b"", ~sa.exists(closed))
        )
        with self._database.read() as connection:
            found = int(connection.execute(missing).scalar_one())
        return found + self._lacking + int(self._forked)

    def size(self) -> int:
        """Return the number of entries."""
        with self._database.read() as connection:
            return self._own.size(connection)

    def _message(self, theirs: LogMessage | None) -> LogMessage:
        with self._database.read() as connection:
            head = self._own.head(connection)
            memory = self._partner.head(connection)
            # At first nobody knows what the other server has: it says so in its answer.
            known = self._known if theirs is None else number_of(theirs.memory)
            since = number_of(head) if known is None else known
            lacks = theirs is not None and number_of(theirs.head) < number_of(memory)
            return LogMessage(
                head=head,
                entries=self._own.after(connection, since),
                memory=memory,
                returned=self._partner.after(connection, number_of(theirs.head))
                if theirs is not None and lacks
                else (),
            )

    def _take(self, theirs: LogMessage) -> None:
        """Learn what the other server remembers of this log, and remember what is new of its."""
        self._remember(theirs.entries)
        if number_of(theirs.head) < self._memory_size():
            event("partner-has-old-database", logging.WARNING)
        if theirs.memory is None:
            self._known = 0
            return
        claimed = self._own.check(theirs.memory)
        with self._database.read() as connection:
            mine = self._own.at(connection, claimed.number)
        if mine is None:
            self._restore(theirs.returned)
            with self._database.read() as connection:
                mine = self._own.at(connection, claimed.number)
                size = self._own.size(connection)
            self._lacking = max(0, claimed.number - size)
        else:
            self._lacking = 0
        self._forked = mine is not None and mine.digest != theirs.memory.digest
        self._known = claimed.number

    def _restore(self, entries: Sequence[SignedEntry]) -> None:
        """Put entries that this server once signed, and has forgotten, back into its log."""
        if not entries:
            return
        with self._database.write() as connection:
            self._database.lock_log(connection)
            restored = self._own.extend(connection, entries)
        if restored:
            event("database-is-an-old-copy", logging.ERROR, releases_learned_again=restored)

    def _remember(self, entries: Sequence[SignedEntry]) -> None:
        if not entries:
            return
        with self._database.write() as connection:
            self._database.lock_log(connection)
            self._partner.extend(connection, entries)

    def _memory_size(self) -> int:
        with self._database.read() as connection:
            return self._partner.size(connection)

    def _compare_folder(self) -> None:
        """Compare the log with the newest entry that the folder remembers."""
        number, digest = self._read_head()
        if not number:
            return
        with self._database.read() as connection:
            mine = self._own.at(connection, number)
            size = self._own.size(connection)
        self._lacking = max(self._lacking, number - size)
        self._forked = self._forked or (mine is not None and mine.digest != digest)

    def _read_head(self) -> tuple[int, bytes]:
        """Return number and digest of the newest entry in the folder's file; 0 without one."""
        if self._state is None:
            return 0, b""
        path = self._state / HEAD_FILE
        try:
            number, digest = path.read_text("ascii").split()
            return int(number), bytes.fromhex(digest)
        except FileNotFoundError:
            return 0, b""
        except (OSError, ValueError):
            raise StorageError(
                f"{path} is damaged or cannot be read. It says how many batches were released; "
                "bring back its copy"
            ) from None

    def _write_head(self, head: SignedEntry | None) -> None:
        if self._state is None or head is None:
            return
        number = number_of(head)
        with self._guard:
            if self._read_head()[0] < number:
                text = f"{number} {head.digest.hex()}\n"
                atomic_write(self._state / HEAD_FILE, text.encode(), mode=0o600)

    def _old_database(self) -> OldDatabaseError:
        what = "continues another one" if self._forked else f"lacks {self._lacking} entries"
        return OldDatabaseError(
            "the database of this server is an old copy: its log of released batches "
            f"{what}, by what the other server and the folder remember. Nothing is released, "
            "because it may have been before. Stop the server and bring back the newest copy of "
            "the database; without one, set up a new server (hdpmf aggregator init, pair)"
        )

    def _take_in(self, path: Path) -> None:
        """Move the file that was the log of older versions into the database."""
        try:
            whole = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from error
        with self._database.write() as connection:
            self._database.lock_log(connection)
            # An unfinished line was never relied on.
            for line in whole[: whole.rfind(b"\n") + 1].splitlines():
                try:
                    task, start, duration, digest = line.decode("ascii").split(" ")
                    task_id = bytes.fromhex(task)
                    interval = Interval(int(start), int(duration))
                    share = b"" if digest == "void" else bytes.fromhex(digest)
                except ValueError:
                    raise StorageError(
                        f"{path} is damaged; bring back its copy. Without it nobody knows which "
                        "batches are closed"
                    ) from None
                known = (interval.start, interval.duration, share)
                if all(
                    (row.start, row.duration, row.share) != known
                    for row in self._own.of_task(connection, task_id)
                ):
                    self._own.append(connection, task_id, interval, share)
            head = self._own.head(connection)
        self._write_head(head)
        path.unlink(missing_ok=True)
        event("log-of-releases-is-in-the-database", entries=number_of(head))
