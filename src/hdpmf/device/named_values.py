"""Small things in a device's file, each under a name."""

from __future__ import annotations

from hdpmf.device.database import Database
from hdpmf.device.vault import Vault
from hdpmf.errors import StorageError

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
                "INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, self._vault.seal(value, value_place(name)))
            )

    def drop(self, *names: str) -> None:
        """Take values out of the file."""
        with self._database.transaction():
            for name in names:
                self._database.execute("DELETE FROM settings WHERE name = ?", (name,))


def at_place(place: int, name: str) -> str:
    """The name of what a place has of its own; the first one's are as they were when there was only one."""
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
