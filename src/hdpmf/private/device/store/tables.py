"""The tables of a device's store: typed rows, sealed one by one, and what is kept of runs.

This is the one place that decodes rows, and reports damage where that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from hdpmf.errors import StorageError
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.schema import (
    AgreedTask,
    Consent,
    Device,
    HiddenItem,
    ItemsApart,
    LocalModel,
    PastItems,
    PublicData,
    Question,
    Recommender,
    RecommenderState,
)

T = TypeVar("T")
Key = int | str | bytes
RawRow = tuple[int | bytes | None, ...]
"""A row as it lies in the file."""


class Table(Generic[T]):
    """The rows of one table. The file shows how many there are, and in which order they came.

    Args:
        key: Returns what a row is found by.
    """

    def __init__(
        self,
        database: Database,
        cipher: StoreCipher,
        name: str,
        kind: type[T],
        key: Callable[[T], Key],
    ) -> None:
        self._database = database
        self._cipher = cipher
        self._name = name
        self._kind = kind
        self._key = key

    def __repr__(self) -> str:
        return f"Table({self._name})"

    def find(self, key: Key) -> T | None:
        """Return the row with this key, or None."""
        tag = self._tag(key)
        rows = self._database.execute(
            f"SELECT sealed FROM {self._name} WHERE tag = ?",  # noqa: S608  # a name of ours
            (tag,),
        )
        return self._decoded(tag, rows[0][0]) if rows else None

    def need(self, key: Key) -> T:
        """Return the row with this key, which must be there."""
        row = self.find(key)
        if row is None:
            raise StorageError(f"the store has no {self._name}: it is damaged")
        return row

    def rows(self) -> list[T]:
        """Return all rows, in the order in which they were written."""
        query = f"SELECT tag, sealed FROM {self._name} ORDER BY number"  # noqa: S608  # a name of ours
        return [self._decoded(tag, sealed) for tag, sealed in self._database.execute(query)]

    def put(self, row: T) -> None:
        """Write a row, replacing the one with its key; it comes last then."""
        tag = self._tag(self._key(row))
        sealed = self._cipher.seal(msgspec.msgpack.encode(row), self._context(tag))
        with self._database.transaction():
            self._database.execute(
                f"INSERT OR REPLACE INTO {self._name} "  # noqa: S608  # a name of ours
                f"SELECT ?, coalesce(max(number), 0) + 1, ? FROM {self._name}",
                (tag, sealed),
            )

    def delete(self, key: Key) -> None:
        """Take a row out of the file, if it is there."""
        with self._database.transaction():
            self._database.execute(
                f"DELETE FROM {self._name} WHERE tag = ?",  # noqa: S608  # a name of ours
                (self._tag(key),),
            )

    def clear(self) -> None:
        """Take all rows out of the file."""
        with self._database.transaction():
            self._database.execute(f"DELETE FROM {self._name}")  # noqa: S608  # a name of ours

    def resealed(self, cipher: StoreCipher) -> Iterator[RawRow]:
        """Return all rows as another cipher seals them, inside a transaction."""
        other = Table(self._database, cipher, self._name, self._kind, self._key)
        query = f"SELECT tag, number, sealed FROM {self._name} ORDER BY number"  # noqa: S608  # a name of ours
        for old, number, sealed in self._database.iterate(query):
            row = self._decoded(old, sealed)
            tag = other._tag(self._key(row))
            yield tag, number, cipher.seal(msgspec.msgpack.encode(row), self._context(tag))

    def _tag(self, key: Key) -> bytes:
        text = key.hex() if isinstance(key, bytes) else str(key)
        return self._cipher.tag(self._name.encode(), text)

    def _context(self, tag: bytes) -> bytes:
        return self._name.encode() + tag

    def _decoded(self, tag: bytes, sealed: bytes) -> T:
        return decoded(self._cipher.open(sealed, self._context(tag)), self._kind, self._name)


ONLY = 0
"""The key of a row that is the only one of its table."""


class Tables:
    """All typed tables of a store."""

    def __init__(self, database: Database, cipher: StoreCipher) -> None:
        def table(name: str, kind: type[T], key: Callable[[T], Key]) -> Table[T]:
            return Table(database, cipher, name, kind, key)

        self.device = table("device", Device, lambda row: ONLY)
        self.recommenders = table("recommenders", Recommender, lambda row: row.id)
        self.catalogues = table("catalogues", PublicData, lambda row: row.recommender_id)
        self.models = table("models", LocalModel, lambda row: row.recommender_id)
        self.recommender_states = table(
            "recommender_states", RecommenderState, lambda row: row.recommender
        )
        self.agreed_tasks = table("agreed_tasks", AgreedTask, lambda row: row.id)
        self.questions = table("questions", Question, lambda row: row.key)
        self.consents = table("consents", Consent, lambda row: row.key)
        self.hidden_items = table("hidden_items", HiddenItem, lambda row: row.item)
        self.items_apart = table("items_apart", ItemsApart, lambda row: row.recommender_id)
        self.past_items = table("past_items", PastItems, lambda row: ONLY)

    def resealed(self, cipher: StoreCipher) -> Iterator[tuple[str, Iterator[RawRow]]]:
        """Return the rows of each table as another cipher seals them, inside a transaction."""
        for name, table in vars(self).items():
            yield name, table.resealed(cipher)


def decoded(data: bytes, kind: type[T], name: str) -> T:
    """Decode a row of the store; StorageError where it is damaged."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise StorageError(f"a row of {name} cannot be read: the store is damaged") from None


def write_header(database: Database, cipher: StoreCipher) -> None:
    """Write into the file, unsealed, how it is decrypted."""
    with database.transaction():
        database.execute("INSERT OR REPLACE INTO header VALUES (1, ?)", (cipher.header(),))


def read_header(database: Database) -> bytes:
    """Return the unsealed header that says how the file is decrypted."""
    rows = database.execute("SELECT value FROM header")
    if not rows or not isinstance(rows[0][0], bytes):  # a damaged file has values of any type
        raise StorageError(f"{database.path} has no header: it is damaged")
    return rows[0][0]


class Runs:
    """States and replies, by run."""

    def __init__(self, database: Database, cipher: StoreCipher) -> None:
        self._database = database
        self._cipher = cipher

    def save(self, run: bytes, data: bytes) -> None:
        """Keep the state of a run."""
        with self._database.transaction():
            self._database.execute("DELETE FROM runs WHERE run = ?", (run,))
            sealed = self._cipher.seal(data, run_context(run))
            self._database.execute("INSERT INTO runs (run, sealed) VALUES (?, ?)", (run, sealed))

    def load(self, run: bytes) -> bytes | None:
        """Return the state of a run."""
        rows = self._database.execute("SELECT sealed FROM runs WHERE run = ?", (run,))
        return self._cipher.open(rows[0][0], run_context(run)) if rows else None

    def drop(self, run: bytes) -> None:
        """Forget a run and what was answered in it."""
        with self._database.transaction():
            self._database.execute("DELETE FROM runs WHERE run = ?", (run,))
            self._database.execute("DELETE FROM replies WHERE run = ?", (run,))

    def put_part(self, run: bytes, name: bytes, data: bytes) -> None:
        """Keep a part of a run beside its state, instead of what had this name."""
        with self._database.transaction():
            self.delete_part(run, name)
            sealed = self._cipher.seal(data, reply_context(run, 0, name))
            self._database.execute(
                "INSERT INTO replies VALUES (?, ?, ?, ?)", (run, 0, name, sealed)
            )

    def get_part(self, run: bytes, name: bytes) -> bytes | None:
        """Return what was kept under this name."""
        rows = self._database.execute(
            "SELECT sealed FROM replies WHERE run = ? AND number = 0 AND request = ?", (run, name)
        )
        return self._cipher.open(rows[0][0], reply_context(run, 0, name)) if rows else None

    def delete_part(self, run: bytes, name: bytes) -> None:
        """Forget what was kept under this name."""
        self._database.execute(
            "DELETE FROM replies WHERE run = ? AND number = 0 AND request = ?", (run, name)
        )

    def clear(self) -> None:
        """Forget all runs."""
        with self._database.transaction():
            self._database.execute("DELETE FROM runs")
            self._database.execute("DELETE FROM replies")

    def resealed(self, cipher: StoreCipher) -> Iterator[tuple[str, Iterator[RawRow]]]:
        """Return the rows of both tables as another cipher seals them, inside a transaction."""
        yield "runs", self._resealed_states(cipher)
        yield "replies", self._resealed_replies(cipher)

    def _resealed_states(self, cipher: StoreCipher) -> Iterator[RawRow]:
        query = "SELECT number, run, sealed FROM runs ORDER BY number"
        for number, run, sealed in self._database.iterate(query):
            context = run_context(run)
            yield number, run, cipher.seal(self._cipher.open(sealed, context), context)

    def _resealed_replies(self, cipher: StoreCipher) -> Iterator[RawRow]:
        query = "SELECT run, number, request, sealed FROM replies"
        for run, number, request, sealed in self._database.iterate(query):
            context = reply_context(run, number, request)
            yield run, number, request, cipher.seal(self._cipher.open(sealed, context), context)


def run_context(run: bytes) -> bytes:
    """Return the context that a run's state is sealed for."""
    return b"runs" + run


def reply_context(run: bytes, number: int, request: bytes) -> bytes:
    """Return the context that a reply is sealed for."""
    return b"replies" + run + number.to_bytes(8, "big") + request
