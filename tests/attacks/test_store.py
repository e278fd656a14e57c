"""Attacks 12 and 21 on a device's file: rows that go, bytes that flip, and old copies that come
back.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hdpmf.errors import ConfigError, HdpmfError, StorageError
from hdpmf.private.device.disclosures.ledger import Entry
from hdpmf.private.device.store import database, encryption, integrity
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.schema import HiddenItem
from hdpmf.private.device.store.tables import ONLY, Table, Tables
from tests.world import table

from .hostile import STARS

pytestmark = pytest.mark.slow

PASSPHRASE = "correct horse battery staple"


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "SCRYPT_COST", 16)


@pytest.fixture(params=[None, PASSPHRASE], ids=["plain", "encrypted"])
def passphrase(request: pytest.FixtureRequest) -> str | None:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def path(tmp_path: Path, passphrase: str | None) -> Path:
    """A store whose ratings have spent a quarter of their budget, twice."""
    path = tmp_path / "me.hdpmf"
    with DeviceStore.create(path, passphrase=passphrase) as store:
        for item, value in STARS.items():
            store.rate(item, value)
        store.set_weight(beta=0.5)
        store.pin_catalogue(table())
        spend(store, run="aa" * 16)
        spend(store, run="bb" * 16)
    return path


def spend(store: DeviceStore, run: str = "cc" * 16) -> None:
    """Let every rating pay a quarter of its budget."""
    ratings = store.ratings()
    entry = Entry(
        recommender="films.example",
        run=run,
        number=0,
        method="hdp-sum",
        view="sums",
        epsilon=0.25,
        status="proved",
        action="sent",
        words="whole numbers into a sum",
    )
    epsilons = store.weights().for_ratings(ratings) * store.policy.epsilon / 4
    store.ledger.charge(entry, ratings, np.arange(len(ratings)), epsilons)


def change(path: Path, *statements: str) -> None:
    """What somebody with an SQLite editor does to a store."""
    connection = sqlite3.connect(path)
    for name in ("stays", "kept", "grows"):
        connection.execute(f"DROP TRIGGER ledger_{name}")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def facts(path: Path, passphrase: str | None = None) -> object:
    """All that a decision about spending reads."""
    with DeviceStore.open(path, passphrase=passphrase) as store:
        left = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
        entries = [(one.run, one.action, one.paid, one.part) for one in store.ledger.entries()]
        return (
            left.tolist(),
            entries,
            store.policy,
            store.scale,
            store.users,
            store.records(),
            store.roster,
        )


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM ledger",
        "DELETE FROM ledger WHERE number = 2",  # the last one: numbers have no gap
        "DELETE FROM ledger WHERE number = 1",
        "UPDATE ledger SET number = 3 - number + 10",  # out of order
        "UPDATE ledger SET charges = NULL",  # paid nothing
        # an older row in place of a newer
        "UPDATE ledger SET entry = (SELECT entry FROM ledger WHERE number = 1)",
        "DELETE FROM user_weights",  # a weight of 0.5 becomes 1: twice the budget
        "DELETE FROM catalogues",
        "DELETE FROM device",
        "DELETE FROM ratings WHERE tag = (SELECT min(tag) FROM ratings)",
        "DELETE FROM head",
    ],
)
def test_rows_do_not_go_unnoticed(path: Path, passphrase: str | None, statement: str) -> None:
    """Deleted rows of the ledger went unnoticed in an encrypted store: what they had paid was
    there to spend.
    """
    change(path, statement)
    with pytest.raises(StorageError, match="tampered"):
        DeviceStore.open(path, passphrase=passphrase)


@pytest.mark.parametrize("passphrase", [None], ids=["plain"])
def test_flipped_bytes_do_not_give_more_to_spend(path: Path) -> None:
    """In a plain store a device answered beyond its budget in 6 of 300 cases."""
    before, data, chance = facts(path), path.read_bytes(), random.Random(5)
    used = [place for place in range(len(data)) if data[place]]  # pages are mostly empty
    noticed = 0
    for _ in range(200):
        flipped = bytearray(data)
        flipped[chance.choice(used)] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        try:
            after = facts(path)
        except HdpmfError:
            noticed += 1
            continue
        assert after == before
    assert noticed > 100


@pytest.mark.parametrize("header", ["NULL", "-3", "70000000000", "'text'", "x'c1'"])
def test_a_header_of_any_type_is_an_error_of_ours(
    path: Path, passphrase: str | None, header: str
) -> None:
    insert = f"INSERT INTO header VALUES (1, {header})"
    change(path, "DROP TABLE header", "CREATE TABLE header (row, value)", insert)
    with pytest.raises(StorageError, match="header"):
        DeviceStore.open(path, passphrase=passphrase)


def test_a_file_does_not_pass_for_one_of_an_older_version(
    path: Path, passphrase: str | None
) -> None:
    change(path, "DELETE FROM ledger", "DROP TABLE head", "PRAGMA user_version = 1")
    with pytest.raises(ConfigError, match=r"made by hdpmf 0\.1 or 0\.2"):
        DeviceStore.open(path, passphrase=passphrase)


def test_an_old_copy_is_refused(path: Path, passphrase: str | None, tmp_path: Path) -> None:
    """A store that was rolled back had forgotten what was spent, and spent it again."""
    shutil.copy(path, tmp_path / "backup")
    with DeviceStore.open(path, passphrase=passphrase) as store:
        spend(store)
        left = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
    shutil.copy(path, tmp_path / "newest")
    shutil.copy(tmp_path / "backup", path)
    for _ in range(2):
        with pytest.raises(
            StorageError, match=r"old copy: 1 changes were made since; .* --old-copy"
        ):
            DeviceStore.open(path, passphrase=passphrase)
    shutil.copy(tmp_path / "newest", path)
    with DeviceStore.open(path, passphrase=passphrase) as store:
        assert np.array_equal(
            store.ledger.remaining(store.ratings(), store.weights(), store.policy), left
        )
    shutil.copy(tmp_path / "backup", path)
    with DeviceStore.open(path, passphrase=passphrase, old_copy=True) as store:
        assert len(store.ledger.entries()) == 2
    with DeviceStore.open(path, passphrase=passphrase) as store:  # the owner has said so once
        store.rate("item 01", 3.0)


def test_a_copy_without_its_counter_is_refused(
    path: Path, passphrase: str | None, tmp_path: Path
) -> None:
    counter, moved = path.with_name("me.hdpmf.counter"), tmp_path / "elsewhere"
    shutil.copy(path, moved)
    with pytest.raises(StorageError, match="has lost its counter"):
        DeviceStore.open(moved, passphrase=passphrase)
    for spoiled in (
        b"",
        b'{"store":"","commits":0,"check":""}',
        counter.read_bytes().replace(b'"commits":', b'"commits":9'),
    ):
        moved.with_name("elsewhere.counter").write_bytes(spoiled)
        with pytest.raises(StorageError, match="has lost its counter"):
            DeviceStore.open(moved, passphrase=passphrase)
    shutil.copy(counter, moved.with_name("elsewhere.counter"))
    with DeviceStore.open(moved, passphrase=passphrase) as store:
        store.destroy()
    assert not moved.with_name("elsewhere.counter").exists()
    DeviceStore.create(moved).close()


def test_the_counter_of_another_store_is_none(
    path: Path, passphrase: str | None, tmp_path: Path
) -> None:
    DeviceStore.create(tmp_path / "other").close()
    shutil.copy(tmp_path / "other.counter", path.with_name("me.hdpmf.counter"))
    with pytest.raises(StorageError, match="has lost its counter"):
        DeviceStore.open(path, passphrase=passphrase)


@pytest.mark.parametrize("schema", [1, 2, 3])
def test_stores_of_before_1_0_are_refused(path: Path, passphrase: str | None, schema: int) -> None:
    change(path, f"PRAGMA user_version = {schema}")
    with pytest.raises(ConfigError, match=r"made by hdpmf 0\.1 or 0\.2"):
        DeviceStore.open(path, passphrase=passphrase)


def test_a_store_of_an_older_schema_comes_forward(
    path: Path, passphrase: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism, by a schema that adds a table and writes a row anew."""
    before = facts(path, passphrase)

    def migrate(file: Database, cipher: StoreCipher) -> None:
        file.execute("CREATE TABLE notes (tag BLOB PRIMARY KEY, number, sealed) WITHOUT ROWID")
        tables = Tables(file, cipher)
        device = tables.device.need(ONLY)
        tables.device.put(msgspec.structs.replace(device, name=device.name + ", migrated"))
        note = Table(file, cipher, "notes", HiddenItem, lambda row: row.item)
        note.put(HiddenItem(item="made by the migration"))

    schema = database._KIND.schema
    monkeypatch.setattr(database, "_KIND", dataclasses.replace(database._KIND, schema=schema + 1))
    monkeypatch.setitem(database.MIGRATIONS, schema, migrate)
    monkeypatch.setitem(integrity._COLUMNS, "notes", ("tag", "number", "sealed"))
    for _ in range(2):
        assert facts(path, passphrase) == before
        with DeviceStore.open(path, passphrase=passphrase) as store:
            assert store.device.name == ", migrated"
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("SELECT count(*) FROM notes").fetchall() == [(1,)]
    change(path, "DELETE FROM notes")
    with pytest.raises(StorageError, match="tampered"):
        DeviceStore.open(path, passphrase=passphrase)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="newer hdpmf; upgrade"):
        DeviceStore.open(path, passphrase=passphrase)


def test_a_store_of_a_newer_version_is_refused(path: Path, passphrase: str | None) -> None:
    change(path, "PRAGMA user_version = 999")
    with pytest.raises(ConfigError, match="newer hdpmf; upgrade"):
        DeviceStore.open(path, passphrase=passphrase)
