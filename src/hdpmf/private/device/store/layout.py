"""The tables of a store's file, by the number of its schema, and the check that it has only these.

A file comes from a disk, a sync service or a stick. Whoever can write it can also write a schema:
triggers that take back what is charged, views in place of tables, expressions in indexes. SQLite
runs such code for whoever uses the tables. So nothing of a file is used before its schema is,
object by object and byte by byte, what the statements here make.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hdpmf.errors import StorageError

if TYPE_CHECKING:
    from hdpmf.private.device.store.database import Database
    from hdpmf.private.device.store.encryption import StoreCipher

TYPED_TABLES = (
    "device",
    "recommenders",
    "catalogues",
    "models",
    "recommender_states",
    "agreed_tasks",
    "questions",
    "consents",
    "refusals",
    "sent_runs",
    "hidden_items",
    "marks",
    "items_apart",
    "past_items",
)
"""Tables of sealed rows that are found by a tag (``tables``), of the first schema."""

COLUMNS = {
    "header": ("row", "value"),
    **dict.fromkeys(TYPED_TABLES, ("tag", "number", "sealed")),
    "user_weights": ("tag", "sealed"),
    "item_weights": ("tag", "sealed"),
    "ratings": ("tag", "sealed"),
    "runs": ("number", "run", "sealed"),
    "replies": ("run", "number", "request", "sealed"),
    "ledger": ("number", "entry", "charges"),
}
"""The columns of every table but ``head``, which is made of their rows (``integrity``)."""

LEDGER_KEPT = """
CREATE TRIGGER ledger_kept BEFORE DELETE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""
_TYPED_TABLE = (
    "CREATE TABLE {name} (tag BLOB PRIMARY KEY, number INTEGER NOT NULL, sealed BLOB NOT NULL) "
    "WITHOUT ROWID;"
)
_TYPED_TABLES = "\n".join(_TYPED_TABLE.format(name=name) for name in TYPED_TABLES)
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
CREATE TABLE head (row INTEGER PRIMARY KEY CHECK (row = 1), sealed BLOB NOT NULL);
"""

FIRST_SCHEMA = 6
"""Of version 2.0; nobody has files of an earlier one."""


Rewrite = Callable[["Database", "StoreCipher"], None]


@dataclass(frozen=True)
class Migration:
    """A step from one schema to the next. It runs in a transaction, on a file that was checked.

    Attributes:
        statements: What changes the tables. New files take the same steps, so that their schema
            is the same to the byte.
        rewrite: What decodes rows and writes them anew.
    """

    statements: str
    rewrite: Rewrite | None = None


MIGRATIONS: tuple[Migration, ...] = ()
"""From the first schema on."""

_ALL_OBJECTS = "SELECT type, name, tbl_name, sql FROM main.sqlite_master"
_SchemaRow = tuple[str, str, str, str | None]


def newest_schema() -> int:
    """Return the schema that this version makes."""
    return FIRST_SCHEMA + len(MIGRATIONS)


def layout_statements(schema: int) -> Sequence[str]:
    """Return the statements that make the tables of a schema."""
    return _statements(_script(schema))


def migration_from(schema: int) -> tuple[Sequence[str], Rewrite | None]:
    """Return the statements that bring a schema to the next, and what writes rows anew."""
    step = MIGRATIONS[schema - FIRST_SCHEMA]
    return _statements(step.statements), step.rewrite


def layout_digest(schema: int) -> bytes:
    """Return the digest of a schema; it is in the head of every file (``integrity``)."""
    return _digest(schema, _script(schema))


def schema_number(connection: sqlite3.Connection) -> int:
    """Return the number of a file's schema."""
    return int(connection.execute("PRAGMA main.user_version").fetchone()[0])


def harden(connection: sqlite3.Connection) -> None:
    """Let SQLite trust nothing in a file. Before the first statement on it."""
    for setting in (
        "trusted_schema = OFF",  # no function of ours in a schema that is not
        "cell_size_check = ON",
        "mmap_size = 0",  # pages do not change once they are read
        "temp_store = MEMORY",
    ):
        connection.execute(f"PRAGMA {setting}").fetchall()
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 1)  # VACUUM needs one
    configure = getattr(connection, "setconfig", None)
    if configure is not None:  # Python 3.12
        for name, value in (
            ("SQLITE_DBCONFIG_DEFENSIVE", True),
            ("SQLITE_DBCONFIG_DQS_DDL", False),
            ("SQLITE_DBCONFIG_DQS_DML", False),
            ("SQLITE_DBCONFIG_ENABLE_VIEW", False),
        ):
            configure(getattr(sqlite3, name), value)


def require_layout(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file whose schema is not exactly that of its number, which this version knows.

    Raises:
        StorageError: It has something more, something less or something else.
    """
    found = connection.execute(_ALL_OBJECTS).fetchall()
    ours = _objects(_script(schema_number(connection)))
    coding = connection.execute("PRAGMA main.encoding").fetchone()[0]
    if len(found) == len(ours) and set(found) == set(ours) and coding == "UTF-8":
        return
    strange = [row for row in found if row not in ours] or [row for row in ours if row not in found]
    what = f"the {strange[0][0]} {strange[0][1]!a:.60}" if strange else f"text in {coding}"
    raise StorageError(
        f"{path} was tampered with or is damaged: its tables and triggers are not those that hdpmf "
        f"makes ({what}), and they could do anything when they are used. Nothing was read or "
        "changed. Bring the newest copy of the store that nobody else could write to"
    )


def refuse_planted_files(path: Path) -> None:
    """Refuse files beside a store that SQLite would act on and that no store of ours has.

    A rollback journal is played back into the store when it is opened, and may name another file
    that SQLite deletes then; a link would be written through. Stores write a ``-wal`` only.

    Raises:
        StorageError: There is one.
    """
    real = Path(os.path.realpath(path))
    for ending in ("-journal", "-wal", "-shm"):
        beside = real.with_name(real.name + ending)
        try:
            regular = stat.S_ISREG(beside.lstat().st_mode)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"cannot look at {beside}: {error.strerror}") from error
        if ending == "-journal" or not regular:
            raise StorageError(
                f"{beside} is not a file that hdpmf makes: somebody put it there, and opening the "
                "store would act on it. Nothing was opened. Move it away, and see who can write "
                "to this folder"
            )


def _script(schema: int) -> str:
    steps = MIGRATIONS[: schema - FIRST_SCHEMA]
    return "\n".join((_TABLES, _TYPED_TABLES, LEDGER_KEPT, *(step.statements for step in steps)))


@lru_cache(maxsize=8)
def _digest(schema: int, script: str) -> bytes:
    return sha256(msgspec.msgpack.encode((schema, _objects(script)))).digest()


@lru_cache(maxsize=8)
def _objects(script: str) -> tuple[_SchemaRow, ...]:
    """Return all that a script makes, as SQLite writes it down."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in _statements(script):
            connection.execute(statement)
        return tuple(sorted(connection.execute(_ALL_OBJECTS).fetchall(), key=repr))


@lru_cache(maxsize=8)
def _statements(script: str) -> tuple[str, ...]:
    """Return the statements of a script; ``executescript`` would commit first."""
    found, pending = [], ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            found.append(pending.strip())
            pending = ""
    return tuple(found)
