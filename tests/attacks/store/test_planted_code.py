"""Attacks 27 on a device's file: code in its schema, and files beside it that SQLite acts on.

Whoever could write an encrypted file once planted triggers, without its passphrase: five tasks got
all ratings while the ledger said that nothing was spent, a tightened policy was the old one again,
and `forget` left everything.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from hdpmf.errors import HdpmfError, StorageError
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import HiddenItem
from hdpmf.private.device.store.transfer import change_passphrase, export_store

from .used_store import facts, plant, spend, without_triggers


def ignore(event: str, table: str) -> str:
    """Return a trigger that lets nothing happen to a table."""
    return f"CREATE TRIGGER planted BEFORE {event} ON {table} BEGIN SELECT RAISE(IGNORE); END"


def edit(old: str, new: str) -> tuple[str, ...]:
    """Return statements that edit the schema as text."""
    return (
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET sql = replace(sql, '{old}', '{new}')",
        "PRAGMA writable_schema = OFF",
    )


def test_what_is_sent_is_charged(path: Path, passphrase: str | None) -> None:
    """Charges were not written, and a rating was spent again and again."""
    plant(path, ignore("INSERT", "ledger"))

    def pay() -> None:
        with DeviceStore.open(path, passphrase=passphrase) as store:
            spend(store)
            assert len(store.ledger.entries()) == 3

    with pytest.raises(StorageError, match="tampered"):
        pay()


def test_a_tightened_policy_stays(path: Path, passphrase: str | None) -> None:
    plant(path, ignore("INSERT", "device"))

    def tighten() -> None:
        with DeviceStore.open(path, passphrase=passphrase) as store:
            store.set_policy(Policy(epsilon=0.1))
            assert store.policy.epsilon == 0.1

    with pytest.raises(StorageError, match="tampered"):
        tighten()


def test_what_is_forgotten_is_gone(path: Path, passphrase: str | None) -> None:
    plant(path, ignore("DELETE", "ratings"))

    def forget() -> None:
        with DeviceStore.open(path, passphrase=passphrase, serving=True) as store:
            store.forget(ratings=True)
            assert store.n_ratings == 0

    with pytest.raises(StorageError, match="tampered"):
        forget()


PLANTED: dict[str, tuple[str, ...]] = {
    "a trigger for the future": (
        "CREATE TRIGGER later AFTER INSERT ON ledger WHEN NEW.number > 99 "
        "BEGIN DELETE FROM ratings; END",
    ),
    "a trigger less": ("DROP TRIGGER ledger_kept",),
    "a trigger that says something else": edit("RAISE(ABORT,", "RAISE(FAIL,"),
    "a trigger under the old name": (
        "DROP TRIGGER ledger_grows",
        ignore("INSERT", "ledger").replace("planted", "ledger_grows"),
    ),
    "a view in place of a table": (
        "ALTER TABLE consents RENAME TO old_consents",
        "CREATE VIEW consents AS SELECT * FROM old_consents WHERE 0",
        "CREATE TRIGGER putting INSTEAD OF INSERT ON consents BEGIN SELECT 1; END",
    ),
    "a view": ("CREATE VIEW planted AS SELECT hdpmf_row(1) FROM ledger",),
    "an index on an expression": ("CREATE INDEX planted ON ratings (abs(length(sealed)))",),
    "a partial index": ("CREATE INDEX planted ON ledger (number) WHERE hex(entry) > 'A'",),
    "a generated column": ("ALTER TABLE ratings ADD COLUMN more AS (length(sealed))",),
    "a column": ("ALTER TABLE ratings ADD COLUMN more DEFAULT 1",),
    "a check": edit("sealed BLOB NOT NULL", "sealed BLOB NOT NULL CHECK (length(sealed))"),
    "a default": edit("charges BLOB", "charges BLOB DEFAULT 0"),
    "what is done about conflicts": edit(
        "tag BLOB PRIMARY KEY", "tag BLOB PRIMARY KEY ON CONFLICT IGNORE"
    ),
    "another order": edit("tag BLOB PRIMARY KEY", "tag BLOB COLLATE NOCASE PRIMARY KEY"),
    "a comment": edit("CREATE TABLE ledger (", "CREATE TABLE ledger /* ours */ ("),
    "a table": ("CREATE TABLE planted (row)",),
    "a table less": ("DROP TABLE hidden_items",),
    "a virtual table": ("CREATE VIRTUAL TABLE planted USING fts4(words)",),
    "statistics for the planner": ("ANALYZE",),
    "a name twice": (
        "PRAGMA writable_schema = ON",
        "INSERT INTO sqlite_master SELECT * FROM sqlite_master WHERE name = 'ledger_kept'",
    ),
    "a trigger of another table": (
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET tbl_name = 'ratings' WHERE name = 'ledger_kept'",
    ),
    "a table on the page of another": (
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET rootpage = "
        "(SELECT rootpage FROM sqlite_master WHERE name = 'questions') WHERE name = 'consents'",
    ),
    "values of any type": (
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = 5 WHERE name = 'ledger_kept'",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_schema_that_is_not_ours_is_refused_before_it_is_used(
    path: Path, passphrase: str | None, what: str
) -> None:
    plant(path, *PLANTED[what])
    for act in (
        lambda: facts(path, passphrase),
        lambda: DeviceStore.open(path, passphrase=passphrase, old_copy=True),
        lambda: change_passphrase(path, "another", old=passphrase),
        lambda: export_store(path, path.with_name("out"), "travel", passphrase=passphrase),
    ):
        with pytest.raises(StorageError, match=r"tampered|damaged"):
            act()
    assert not path.with_name("out").exists()


@pytest.mark.parametrize(
    "act",
    [
        lambda store: spend(store),
        lambda store: store.policy,
        lambda store: store.set_policy(Policy(epsilon=0.1)),
        lambda store: store.forget(ratings=True),
        lambda store: store.ledger.entries(),
        lambda store: store.rate("item 01", 2.0),
    ],
    ids=["spend", "policy", "tighten", "forget", "entries", "rate"],
)
def test_code_that_is_planted_while_a_store_is_open_is_refused(
    path: Path, passphrase: str | None, act: Callable[[DeviceStore], object]
) -> None:
    with DeviceStore.open(path, passphrase=passphrase) as store:
        spend(store)
        plant(path, ignore("INSERT", "ledger"), ignore("DELETE", "ratings").replace("p", "q", 1))
        for _ in range(2):
            with pytest.raises(StorageError, match="tampered"):
                act(store)


def test_rows_that_are_put_back_while_a_store_is_open_are_refused(
    path: Path, passphrase: str | None
) -> None:
    """The sum over all rows was looked at when a store was opened, and then never again."""
    with sqlite3.connect(path) as connection:
        (old,) = connection.execute("SELECT tag, number, sealed FROM device").fetchall()
    connection.close()
    with DeviceStore.open(path, passphrase=passphrase) as store:
        store.set_policy(Policy(epsilon=0.1))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("REPLACE INTO device VALUES (?, ?, ?)", old)
        other.close()
        for _ in range(2):
            with pytest.raises(StorageError, match="rows were changed"):
                assert store.policy.epsilon == 0.1
            with pytest.raises(StorageError, match="rows were changed"):
                store.rate("item 01", 2.0)


def test_an_old_copy_that_comes_back_while_a_store_is_open_is_refused(
    path: Path, passphrase: str | None
) -> None:
    with DeviceStore.open(path, passphrase=passphrase) as store:
        old = sqlite3.connect(":memory:")
        source = sqlite3.connect(path)
        source.backup(old)
        source.close()
        store.set_policy(Policy(epsilon=0.1))
        target = sqlite3.connect(path)
        rows = old.execute("SELECT * FROM device").fetchall(), old.execute("SELECT * FROM head")
        with target:
            target.execute("DELETE FROM device")
            target.executemany("INSERT INTO device VALUES (?, ?, ?)", rows[0])
            target.executemany("REPLACE INTO head VALUES (?, ?)", rows[1])
        target.close()
        with pytest.raises(StorageError, match="old copy"):
            assert store.policy.epsilon == 0.1


def _root(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    try:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        return int(connection.execute(query, (table,)).fetchone()[0])
    finally:
        connection.close()


def test_rows_that_are_out_of_order_are_refused(
    tmp_path: Path, path: Path, passphrase: str | None
) -> None:
    """The sum over all rows was the same, and nobody found the row: a "no" was none."""
    names = [f"film {number}" for number in range(6)]
    with DeviceStore.open(path, passphrase=passphrase) as store:
        for name in names:
            store.tables.hidden_items.put(HiddenItem(item=name))
    data = bytearray(path.read_bytes())
    place = (_root(path, "hidden_items") - 1) * 4096 + 8
    first, second = data[place : place + 2], data[place + 2 : place + 4]
    data[place : place + 4] = second + first
    path.write_bytes(data)

    def find() -> None:
        with DeviceStore.open(path, passphrase=passphrase) as store:
            assert all(store.tables.hidden_items.find(name) for name in names)

    with pytest.raises(StorageError, match="do not fit together"):
        find()


def test_a_journal_beside_a_store_is_not_played_back(path: Path, passphrase: str | None) -> None:
    """SQLite would write its pages into the store, and delete a file that it names."""
    journal = path.with_name(path.name + "-journal")
    before = path.read_bytes()
    journal.write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(504))
    for act in (
        lambda: DeviceStore.open(path, passphrase=passphrase),
        lambda: DeviceStore.is_encrypted(path),
    ):
        with pytest.raises(StorageError, match="somebody put it there"):
            act()
    assert path.read_bytes() == before
    journal.unlink()
    DeviceStore.open(path, passphrase=passphrase).close()


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_link_beside_a_store_is_not_written_through(
    path: Path, passphrase: str | None, ending: str
) -> None:
    victim = path.with_name("letters")
    victim.write_bytes(b"")
    path.with_name(path.name + ending).symlink_to(victim)
    with pytest.raises(StorageError, match="somebody put it there"):
        DeviceStore.open(path, passphrase=passphrase)
    assert victim.read_bytes() == b""


@pytest.mark.parametrize("statement", [ignore("INSERT", "ledger"), "DELETE FROM ledger"])
def test_what_a_planted_wal_holds_is_checked_as_the_file_is(
    path: Path, passphrase: str | None, statement: str
) -> None:
    """Its frames have checksums that anybody can make."""
    forged = path.with_name("forged")
    shutil.copy(path, forged)
    editor = sqlite3.connect(forged)
    with without_triggers(editor):
        editor.execute(statement)
    editor.commit()
    shutil.copy(f"{forged}-wal", f"{path}-wal")
    editor.close()
    with pytest.raises(StorageError, match="tampered"):
        DeviceStore.open(path, passphrase=passphrase)


def test_sqlite_trusts_nothing_in_a_file(path: Path, passphrase: str | None) -> None:
    with DeviceStore.open(path, passphrase=passphrase) as store:

        def setting(name: str) -> object:
            return store._database.execute(f"PRAGMA {name}")[0][0]

        names = ("trusted_schema", "cell_size_check", "temp_store", "secure_delete")
        assert [setting(name) for name in names] == [0, 1, 2, 1]

        def use_ours() -> None:  # if all else failed
            with store.transaction():
                store._database.execute(
                    "CREATE TRIGGER planted AFTER INSERT ON hidden_items "
                    "BEGIN SELECT hdpmf_row(1, 'ledger', 1, 2, 3); END"
                )
                store._database.execute("INSERT INTO hidden_items VALUES (x'00', 1, x'00')")

        with pytest.raises(HdpmfError, match="unsafe use of hdpmf_row"):
            use_ours()
