"""Tables of a device's store: named values, the mark of a store that is moved, runs and replies."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.encryption import Vault

HEADER = "header"
"""Where the file says, unsealed, how its vault is opened."""

FIRST = 1
"""The place of the first recommender; further ones have 2, 3 and so on."""


class NamedValues:
    """Named values, sealed, but for the vault's header."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    def get(self, name: str) -> bytes | None:
        """What is under this name."""
        rows = self._database.execute("SELECT sealed FROM settings WHERE name = ?", (name,))
        return self._vault.open(rows[0][0], value_place(name)) if rows else None

    def need(self, name: str) -> bytes:
        """What must be under this name."""
        value = self.get(name)
        if value is None:
            raise StorageError(f"the store has no {name}: it is damaged")
        return value

    def set(self, name: str, value: bytes | None) -> None:
        """Put a value under this name; None takes it out of the file."""
        if value is None:
            self.drop(name)
            return
        with self._database.transaction():
            self._database.execute(
                "INSERT OR REPLACE INTO settings VALUES (?, ?)",
                (name, self._vault.seal(value, value_place(name))),
            )

    def drop(self, *names: str) -> None:
        """Take values out of the file."""
        with self._database.transaction():
            for name in names:
                self._database.execute("DELETE FROM settings WHERE name = ?", (name,))


def at_place(place: int, name: str) -> str:
    """The name of what a place has of its own; the first one's are as they were when there was
    only one.
    """
    return name if place == FIRST else f"{name} at {place}"


def write_header(database: Database, vault: Vault) -> None:
    """Say in the file how its vault is opened."""
    with database.transaction():
        database.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (HEADER, vault.header()))


def read_header(database: Database) -> bytes:
    """How the file's vault is opened."""
    rows = database.execute("SELECT sealed FROM settings WHERE name = ?", (HEADER,))
    if not rows or not isinstance(rows[0][0], bytes):  # a damaged file has values of any type
        raise StorageError(f"{database.path} has no header: it is damaged")
    return rows[0][0]


def value_place(name: str) -> bytes:
    """What a value is sealed for."""
    return b"settings" + name.encode()


_MOVED = "moved"


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store is on its way.

    Attributes:
        state: ``left`` (exported; closed here), ``returning`` (its owner takes it back, and the
            export goes), ``travelling`` (the export itself), ``arriving`` (imported, and the export
            goes).
        at: When it was exported.
        file: Where the export was written to.
        digest: SHA-256 of the export; the export itself does not know it.
    """

    state: Literal["left", "returning", "travelling", "arriving"]
    at: str
    file: str
    digest: str = ""


def read_moved(values: NamedValues) -> Moved | None:
    """The mark in a file."""
    data = values.get(_MOVED)
    return None if data is None else msgspec.msgpack.decode(data, type=Moved)


def write_moved(values: NamedValues, moved: Moved | None) -> None:
    """Put the mark into a file, or take it out."""
    values.set(_MOVED, None if moved is None else msgspec.msgpack.encode(moved))


def refuse_moved(path: Path, moved: Moved | None) -> None:
    """Refuse a store that is on the move: there is one ledger, and it goes on in one place."""
    if moved is None:
        return
    if moved.state == "travelling":
        raise ConfigError(
            f"{path} is an export, not a store to use; bring it in with: hdpmf device "
            f"import {path} STORE"
        )
    if moved.state == "arriving":
        raise ConfigError(
            f"the import that makes {path} was not finished; run the same 'hdpmf device "
            "import' again"
        )
    raise ConfigError(
        f"{path} was moved away ({moved.at}, to {moved.file}): its ledger goes on where "
        "that was imported. If it never "
        f"was, take it back: hdpmf device unmove {path} {moved.file}"
    )


class Runs:
    """States and replies, by run."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    def save(self, run: bytes, data: bytes) -> None:
        """Keep the state of a run."""
        with self._database.transaction():
            self._database.execute("DELETE FROM states WHERE run = ?", (run,))
            sealed = self._vault.seal(data, state_place(run))
            self._database.execute("INSERT INTO states (run, sealed) VALUES (?, ?)", (run, sealed))

    def load(self, run: bytes) -> bytes | None:
        """The state of a run."""
        rows = self._database.execute("SELECT sealed FROM states WHERE run = ?", (run,))
        return self._vault.open(rows[0][0], state_place(run)) if rows else None

    def drop(self, run: bytes) -> None:
        """Forget a run and what was answered in it."""
        with self._database.transaction():
            self._database.execute("DELETE FROM states WHERE run = ?", (run,))
            self._database.execute("DELETE FROM replies WHERE run = ?", (run,))

    def put_reply(self, run: bytes, number: int, request: bytes, reply: bytes) -> None:
        """Keep the answer to a request before it is sent. Answers of earlier jobs of the run are
        over and go.
        """
        with self._database.transaction():
            self._database.execute(
                "DELETE FROM replies WHERE run = ? AND number < ?", (run, number)
            )
            self._database.execute(
                "INSERT INTO replies VALUES (?, ?, ?, ?)",
                (run, number, request, self._vault.seal(reply, reply_place(run, number, request))),
            )

    def reply_to(self, run: bytes, number: int, request: bytes) -> bytes | None:
        """The answer that was given to exactly this request, so that a replay gets no new draw."""
        rows = self._database.execute(
            "SELECT sealed FROM replies WHERE run = ? AND number = ? AND request = ?",
            (run, number, request),
        )
        return self._vault.open(rows[0][0], reply_place(run, number, request)) if rows else None

    def keep(self, run: bytes, name: bytes, data: bytes) -> None:
        """Keep something of a run beside its state, in place of what had this name."""
        with self._database.transaction():
            self.let_go(run, name)
            sealed = self._vault.seal(data, reply_place(run, 0, name))
            self._database.execute(
                "INSERT INTO replies VALUES (?, ?, ?, ?)", (run, 0, name, sealed)
            )

    def kept(self, run: bytes, name: bytes) -> bytes | None:
        """What was kept under this name."""
        return self.reply_to(run, 0, name)

    def let_go(self, run: bytes, name: bytes) -> None:
        """Forget what was kept under this name."""
        self._database.execute(
            "DELETE FROM replies WHERE run = ? AND number = 0 AND request = ?", (run, name)
        )

    def clear(self) -> None:
        """Forget all runs."""
        with self._database.transaction():
            self._database.execute("DELETE FROM states")
            self._database.execute("DELETE FROM replies")


def state_place(run: bytes) -> bytes:
    """What the state of a run is sealed for."""
    return b"states" + run


def reply_place(run: bytes, number: int, request: bytes) -> bytes:
    """What a reply is sealed for."""
    return b"replies" + run + number.to_bytes(8, "big") + request
