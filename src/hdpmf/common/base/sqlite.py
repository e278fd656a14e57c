"""SQLite files of ours: whose they are, whether they are whole, and errors in words for people."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hdpmf.errors import ConfigError, StorageError, made_by_newer


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        application: Tells it from other SQLite files.
        schema: The newest one that this version knows.
        safe: What is safe when the disk refuses, and what to do then.
        remedy: What to do about a damaged file.
    """

    name: str
    application: int
    schema: int
    safe: str
    remedy: str

    @contextmanager
    def errors(self, path: Path) -> Iterator[None]:
        """Errors of SQLite in words of ours. SQLite's own never contain a value."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise StorageError(f"{path} refused a change: {error}") from error
        except sqlite3.OperationalError as error:
            raise StorageError(f"cannot use {path}: {error}. {self.safe}") from error
        except sqlite3.DatabaseError as error:
            raise StorageError(
                f"{path} is damaged or not {self.name} ({error}); {self.remedy}"
            ) from error
        except UnicodeDecodeError as error:  # a name in the file, or in SQLite's own words about it
            raise StorageError(f"{path} is damaged; {self.remedy}") from error

    def is_ours(self, connection: sqlite3.Connection) -> bool:
        """Check that the file was made as one of this kind."""
        return bool(connection.execute("PRAGMA application_id").fetchone()[0] == self.application)

    def read_schema(self, connection: sqlite3.Connection, path: Path) -> int:
        """Return the file's schema; raise if it is newer than ours."""
        schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if schema > self.schema:
            raise ConfigError(made_by_newer(path))
        return schema

    def check(self, connection: sqlite3.Connection, path: Path) -> int:
        """Return the file's schema; raise if it is newer than ours, or damaged."""
        schema = self.read_schema(connection, path)
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise StorageError(f"{path} is damaged; {self.remedy}")
        return schema


def count_tables(connection: sqlite3.Connection) -> int:
    """Count tables, indexes and the like."""
    return int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def make_durable(connection: sqlite3.Connection) -> None:
    """Make commits durable, also if the power fails; readers do not wait."""
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")
