"""The tables of a store's file."""

from __future__ import annotations

import sqlite3

TYPED_TABLES = (
    "device",
    "recommenders",
    "catalogues",
    "models",
    "recommender_states",
    "agreed_tasks",
    "questions",
    "consents",
    "hidden_items",
    "items_apart",
    "past_items",
)
"""Tables of sealed rows that are found by a tag (``tables``)."""

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
"""The columns of every table but ``head``, which counts commits (``counter``)."""

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
CREATE TABLE head (row INTEGER PRIMARY KEY CHECK (row = 1), commits INTEGER NOT NULL);
"""

SCHEMA = 7
"""Of version 2.0. Files of another schema are not read."""

ERASED = (
    "ratings",
    "user_weights",
    "item_weights",
    "hidden_items",
    "models",
    "past_items",
)
"""Tables with data of the owner: what is deleted in them leaves no bytes in the ``-wal``."""


def statements() -> list[str]:
    """Return the statements that make the tables; ``executescript`` would commit first."""
    found, pending = [], ""
    for line in "\n".join((_TABLES, _TYPED_TABLES, LEDGER_KEPT)).splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            found.append(pending.strip())
            pending = ""
    return found
