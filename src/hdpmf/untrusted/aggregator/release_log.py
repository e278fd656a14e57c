"""The log of one server's releases, in a database: numbered, chained and signed entries.

Entries have numbers without gaps, each has the digest of the one before, and the server signs
them, for this pair and its role in it. A database has two such logs: its own server's, and what it
remembers of the other one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hdpmf.common.aggregation.two_servers.dap.messages import TASK_ID_SIZE, Interval
from hdpmf.common.base.msgpack import read
from hdpmf.errors import ProtocolError, needs
from hdpmf.untrusted.aggregator.datastore import released
from hdpmf.untrusted.aggregator.tasks import ServerKeys

with needs("sqlalchemy"):
    import sqlalchemy as sa

OWN = 0
"""In the column ``server``: the log of the database's own server."""

_PARTNER = 1

AT_ONCE = 256
"""Entries that ``after`` returns, at most."""

_LABEL = b"hdpmf released batch 1 "
_DIGEST_SIZE = 32

_Digest = Annotated[bytes, Meta(min_length=_DIGEST_SIZE, max_length=_DIGEST_SIZE)]
_Count = Annotated[int, Meta(ge=0, lt=1 << 62)]


class LogEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was released: a batch, or for good nothing of a task.

    Attributes:
        number: 1 for the first entry.
        before: Digest of the entry before.
        share: Digest of the released share; empty if the task was given up.
    """

    number: Annotated[int, Meta(ge=1, lt=1 << 62)]
    before: _Digest
    task: Annotated[bytes, Meta(min_length=TASK_ID_SIZE, max_length=TASK_ID_SIZE)]
    start: _Count
    duration: _Count
    share: Annotated[bytes, Meta(max_length=_DIGEST_SIZE)]


class SignedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An entry as it travels: the bytes that were signed, and the signature."""

    statement: Annotated[bytes, Meta(max_length=1024)]
    signature: Annotated[bytes, Meta(max_length=128)]

    @property
    def digest(self) -> bytes:
        """The digest by which the next entry continues this one."""
        return sha256(_LABEL + self.statement).digest()

    def read(self) -> LogEntry:
        """Return what it says; raise ProtocolError if it is no entry."""
        return read(_ENTRY, self.statement, 1024, ProtocolError, "an entry of a log of releases")


_ENTRY = msgspec.msgpack.Decoder(LogEntry)


def number_of(signed: SignedEntry | None) -> int:
    """Return the number of an entry; 0 if there is none."""
    return 0 if signed is None else signed.read().number


class ReleaseLog:
    """The log of one of the two servers; methods are part of the caller's transaction.

    Args:
        keys: Of the database's own server.
        own: It is the log of that server; otherwise the other one's.
    """

    def __init__(self, keys: ServerKeys, *, own: bool) -> None:
        self._keys = keys
        self._own = own
        is_leader = (keys.role == "leader") == own
        role = b"leader" if is_leader else b"helper"
        self._first = sha256(_LABEL + role + b" of " + keys.servers.digest.encode()).digest()
        self._server = OWN if own else _PARTNER

    def head(self, connection: sa.Connection) -> SignedEntry | None:
        """Return the newest entry."""
        return self._one(connection, self._select().order_by(released.c.number.desc()).limit(1))

    def size(self, connection: sa.Connection) -> int:
        """Return the number of entries."""
        return number_of(self.head(connection))

    def at(self, connection: sa.Connection, number: int) -> SignedEntry | None:
        """Return the entry of this number."""
        return self._one(connection, self._select().where(released.c.number == number))

    def after(self, connection: sa.Connection, number: int) -> tuple[SignedEntry, ...]:
        """Return the next entries after this number, ``AT_ONCE`` at most."""
        later = self._select().where(released.c.number > number)
        found = connection.execute(later.order_by(released.c.number).limit(AT_ONCE))
        return tuple(_signed(row) for row in found)

    def of_task(self, connection: sa.Connection, task_id: bytes) -> Sequence[sa.Row[Any]]:
        """Return the rows of a task."""
        here = sa.and_(released.c.server == self._server, released.c.task == task_id)
        return connection.execute(sa.select(released).where(here)).all()

    def append(
        self, connection: sa.Connection, task_id: bytes, interval: Interval, share: bytes
    ) -> None:
        """Sign an entry and add it, to the log of the database's own server."""
        head = self.head(connection)
        entry = LogEntry(
            number=number_of(head) + 1,
            before=self._first if head is None else head.digest,
            task=task_id,
            start=interval.start,
            duration=interval.duration,
            share=share,
        )
        statement = msgspec.msgpack.encode(entry)
        signature = self._keys.sign(self._first + statement)
        self._insert(connection, entry, SignedEntry(statement=statement, signature=signature))

    def extend(self, connection: sa.Connection, entries: Sequence[SignedEntry]) -> int:
        """Add the entries that continue the log; return how many did.

        Raises:
            ProtocolError: Its server never signed one of them.
        """
        head = self.head(connection)
        number = number_of(head)
        digest = self._first if head is None else head.digest
        added = 0
        for signed in entries:
            entry = self.check(signed)
            if (entry.number, entry.before) == (number + 1, digest):
                self._insert(connection, entry, signed)
                number += 1
                digest = signed.digest
                added += 1
        return added

    def check(self, signed: SignedEntry) -> LogEntry:
        """Return an entry that its server has signed; raise ProtocolError otherwise."""
        said = self._first + signed.statement
        has_signed = self._keys.has_signed if self._own else self._keys.partner_has_signed
        if not has_signed(signed.signature, said):
            whose = "this server" if self._own else "the other server"
            raise ProtocolError(f"refused: an entry of a log of releases that {whose} never signed")
        return signed.read()

    def _select(self) -> sa.Select[tuple[bytes, bytes]]:
        return sa.select(released.c.statement, released.c.signature).where(
            released.c.server == self._server
        )

    def _one(
        self, connection: sa.Connection, found: sa.Select[tuple[bytes, bytes]]
    ) -> SignedEntry | None:
        row = connection.execute(found).one_or_none()
        return None if row is None else _signed(row)

    def _insert(self, connection: sa.Connection, entry: LogEntry, signed: SignedEntry) -> None:
        connection.execute(
            released.insert(),
            {
                "server": self._server,
                "number": entry.number,
                "task": entry.task,
                "start": entry.start,
                "duration": entry.duration,
                "share": entry.share,
                "statement": signed.statement,
                "signature": signed.signature,
            },
        )


def _signed(row: sa.Row[tuple[bytes, bytes]]) -> SignedEntry:
    return SignedEntry(statement=row.statement, signature=row.signature)
