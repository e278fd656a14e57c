"""Change a used store's file in a thousand ways, and see what can be spent then.

Somebody can write the file, and what lies beside it, but has no passphrase: rows, pages, bytes,
the schema, journals and the counter are changed or put back from earlier copies. No store that
still opens may have more to spend, a looser policy or more to show, and what is charged, tightened
or removed in it must be so. Not tried: an old file together with its old counter, which nobody can
tell from the newest.

    python -m tests.attacks.store.fuzz --files 1000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from hdpmf.errors import HdpmfError, StorageError
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store import encryption
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.layout import COLUMNS
from hdpmf.private.device.store.schema import HiddenItem
from tests.attacks.hostile import STARS
from tests.world import whole_life_policy

from .used_store import PASSPHRASE, spend, used_store, without_triggers

_PAGE = 4096
_LOOSE = whole_life_policy(epsilon=4.0, max_total=500.0)
_TIGHT = whole_life_policy(epsilon=3.6, max_total=100.0)
_TIGHTER = 3.0
_REMOVED, _LATER = sorted(STARS)[:2]
_HIDDEN = [f"film {number}" for number in range(12)]
_RUNS = [bytes([number]) * 16 for number in range(6)]
_EVENTS = ("INSERT", "DELETE", "UPDATE")
_BESIDE = ("-wal", "-shm", "-journal", ".counter", ".lock")


@dataclass(frozen=True)
class Facts:
    """What a decision about spending reads."""

    left: dict[str, float]
    levels: dict[str, int]
    policy: Policy
    entries: int
    found: int

    def allows_more_than(self, other: Facts) -> bool:
        """Return True if anything can be spent that the other does not allow."""
        more = any(value > other.left.get(item, 0.0) + 1e-9 for item, value in self.left.items())
        more |= any(level > other.levels.get(item, 0) for item, level in self.levels.items())
        forgotten = self.entries < other.entries or self.found < other.found
        return more or forgotten or self.policy != other.policy


def read_facts(store: DeviceStore) -> Facts:
    """Return what can be spent, and how many of what the owner does not want are found."""
    ratings = store.ratings()
    left = store.ledger.remaining(ratings, store.weights(), store.policy)
    items = [str(item) for item in ratings.item_ids.tolist()]
    hidden = [store.tables.hidden_items.find(name) for name in _HIDDEN]
    runs = [store.runs.load(run) for run in _RUNS]
    return Facts(
        dict(zip(items, left.tolist(), strict=True)),
        dict(zip(items, store.weights().levels_for(ratings).tolist(), strict=True)),
        store.policy,
        len(store.ledger.entries()),
        len(hidden) + len(runs) - hidden.count(None) - runs.count(None),
    )


class Victim:
    """A store with a tightened policy and a spent ledger, and copies of it from earlier."""

    def __init__(self, folder: Path, passphrase: str | None) -> None:
        self.passphrase = passphrase
        self.path = folder / "store"
        self.path.parent.mkdir(parents=True)
        self.olds: list[bytes] = []
        used_store(self.path, passphrase, _LOOSE)
        self.keep()
        with self.open() as store:
            for name in _HIDDEN:
                store.tables.hidden_items.put(HiddenItem(item=name))
            for run in _RUNS:
                store.runs.save(run, b"how far it is")
        self.keep()
        with self.open() as store:
            store.set_policy(_TIGHT)
        self.keep()
        with self.open() as store:
            spend(store, part=0.1)
            store.remove(_REMOVED)
            self.facts = read_facts(store)
        self.newest = self.path.read_bytes()
        self.counter = self.path.with_name("store.counter").read_bytes()

    def open(self) -> DeviceStore:
        return DeviceStore.open(self.path, passphrase=self.passphrase)

    def keep(self) -> None:
        self.olds.append(self.path.read_bytes())

    def restore(self) -> None:
        """Make everything as it was."""
        for ending in _BESIDE:
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        self.path.write_bytes(self.newest)
        self.path.with_name("store.counter").write_bytes(self.counter)

    def beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)


Change = Callable[[Victim, random.Random], None]


def change_bytes(victim: Victim, chance: random.Random) -> None:
    data = bytearray(victim.path.read_bytes())
    used = [place for place in range(len(data)) if data[place]]
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.choice(used)] ^= 1 << chance.randrange(8)
    victim.path.write_bytes(data)


def change_file_head(victim: Victim, chance: random.Random) -> None:
    """Change settings in the first hundred bytes: versions, page size, coding, numbers."""
    data = bytearray(victim.path.read_bytes())
    data[chance.randrange(16, 100)] = chance.randrange(256)
    victim.path.write_bytes(data)


def change_pages(victim: Victim, chance: random.Random) -> None:
    data, old = bytearray(victim.path.read_bytes()), chance.choice(victim.olds)
    one, two = (_PAGE * chance.randrange(len(data) // _PAGE) for _ in range(2))
    kind = chance.randrange(4)
    first, second = bytes(data[one : one + _PAGE]), bytes(data[two : two + _PAGE])
    if kind == 0:
        data[one : one + _PAGE], data[two : two + _PAGE] = second, first
    elif kind == 1:
        data[one : one + _PAGE] = bytes(_PAGE)
    elif kind == 2:
        data[one : one + _PAGE] = second
    else:
        place = one % len(old)
        data[one : one + _PAGE] = old[place : place + _PAGE]
    victim.path.write_bytes(data)


def change_cells(victim: Victim, chance: random.Random) -> None:
    """Exchange, repeat or leave out rows within a page."""
    data = bytearray(victim.path.read_bytes())
    leaves = [at for at in range(_PAGE, len(data), _PAGE) if data[at] in (10, 13)]
    leaves = [at for at in leaves if int.from_bytes(data[at + 3 : at + 5], "big") > 1]
    at = chance.choice(leaves)
    count = int.from_bytes(data[at + 3 : at + 5], "big")
    one, two = (at + 8 + 2 * chance.randrange(count) for _ in range(2))
    first, second = bytes(data[one : one + 2]), bytes(data[two : two + 2])
    kind = chance.randrange(3)
    if kind < 2:
        data[one : one + 2] = second
    if kind == 0:
        data[two : two + 2] = first
    if kind == 2:
        data[at + 3 : at + 5] = chance.randrange(count).to_bytes(2, "big")
    victim.path.write_bytes(data)


def _put_back(connection: sqlite3.Connection, table: str, rows: list[tuple[object, ...]]) -> None:
    places = ", ".join("?" * len(COLUMNS.get(table, ("row", "sealed"))))
    connection.executemany(f"REPLACE INTO {table} VALUES ({places})", rows)


def _row_change(victim: Victim, chance: random.Random, connection: sqlite3.Connection) -> None:
    tables = [*COLUMNS, "head", "device", "ledger", "ratings", "user_weights"]
    table = chance.choice(tables)
    kind = chance.randrange(5)
    if kind == 0:
        connection.execute(f"DELETE FROM {table}")
    elif kind == 1:
        names = COLUMNS.get(table, ("row", "sealed"))
        one = f"(SELECT {names[-1]} FROM {table} ORDER BY random() LIMIT 1)"
        connection.execute(f"UPDATE {table} SET {names[-1]} = {one}")
    elif kind == 2:
        key = COLUMNS.get(table, ("row", "sealed"))[0]
        one = f"(SELECT {key} FROM {table} ORDER BY random() LIMIT 1)"
        connection.execute(f"DELETE FROM {table} WHERE {key} = {one}")
    else:  # as it was earlier; or that of all tables but one
        old = victim.path.with_name("old")
        old.write_bytes(chance.choice(victim.olds))
        with closing(sqlite3.connect(old)) as source:
            chosen = [table] if kind == 3 else chance.sample([*COLUMNS, "head"], len(COLUMNS))
            for name in chosen:
                rows = source.execute(f"SELECT * FROM {name}").fetchall()
                if chance.random() < 0.5:
                    connection.execute(f"DELETE FROM {name}")
                _put_back(connection, name, rows)
        for ending in ("", "-wal", "-shm"):
            Path(f"{old}{ending}").unlink(missing_ok=True)


def change_rows(victim: Victim, chance: random.Random) -> None:
    with closing(sqlite3.connect(victim.path)) as connection:
        with without_triggers(connection):
            _row_change(victim, chance, connection)
        connection.commit()


def _schema_change(chance: random.Random, connection: sqlite3.Connection) -> None:
    table = chance.choice([*COLUMNS, "head", *(8 * ["ledger", "device", "ratings"])])
    event = chance.choice(_EVENTS)
    others = ("ledger", "device", "ratings", "consents", "head")
    other = chance.choice(others)
    body = chance.choice(
        (
            *(4 * ["SELECT RAISE(IGNORE)"]),
            f"DELETE FROM {other}",
            f"DELETE FROM {other} WHERE rowid = (SELECT max(rowid) FROM {other})",
            "SELECT hdpmf_row(1, 'ledger', 1, 2, 3)",
            "UPDATE ledger SET charges = NULL",
        )
    )
    when = chance.choice(("BEFORE", "AFTER"))
    first, second = chance.sample([*COLUMNS, "head"], 2)
    root = f"(SELECT rootpage FROM sqlite_master WHERE name = '{second}')"
    statements = {
        "trigger": [f"CREATE TRIGGER planted {when} {event} ON {table} BEGIN {body}; END"],
        "view": [
            f"ALTER TABLE {table} RENAME TO kept",
            f"CREATE VIEW {table} AS SELECT * FROM kept",
            f"CREATE TRIGGER put INSTEAD OF INSERT ON {table} BEGIN SELECT 1; END",
        ],
        "index": [f"CREATE INDEX planted ON {table} (length({COLUMNS.get(table, ('row',))[-1]}))"],
        "column": [f"ALTER TABLE {table} ADD COLUMN more AS (1)"],
        "drop": [chance.choice((f"DROP TABLE {table}", "DROP TRIGGER ledger_grows"))],
        "text": [
            "PRAGMA writable_schema = ON",
            f"UPDATE sqlite_master SET sql = replace(sql, '{chance.choice('aeiost,( ')}', ' ') "
            f"WHERE name = '{first}'",
        ],
        "root": [
            "PRAGMA writable_schema = ON",
            f"UPDATE sqlite_master SET rootpage = {root} WHERE name = '{first}'",
        ],
        "number": [f"PRAGMA user_version = {chance.randrange(8)}"],
        "sequence": [f"UPDATE sqlite_sequence SET seq = {chance.choice((0, -1, 2**62))}"],
        "statistics": ["ANALYZE"],
    }
    for statement in statements[chance.choice([*statements, *(6 * ["trigger"])])]:
        connection.execute(statement)


def change_schema(victim: Victim, chance: random.Random) -> None:
    with closing(sqlite3.connect(victim.path)) as connection, suppress(sqlite3.Error):
        _schema_change(chance, connection)
        connection.commit()


def change_journals(victim: Victim, chance: random.Random) -> None:
    """Put a -wal or a rollback journal beside the store: forged, of an old copy, or any bytes."""
    forged = victim.path.with_name("forged")
    forged.write_bytes(chance.choice([victim.newest, *victim.olds]))
    mode, ending = chance.choice((("WAL", "-wal"), ("DELETE", "-journal")))
    with closing(sqlite3.connect(forged, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        with suppress(sqlite3.Error), without_triggers(connection):
            if chance.random() < 0.5:
                _row_change(victim, chance, connection)
            else:
                _schema_change(chance, connection)
        if mode == "WAL":
            connection.execute("COMMIT")
        planted = Path(f"{forged}{ending}")
        data = planted.read_bytes() if planted.exists() else b""
    if chance.random() < 0.2:
        data = chance.randbytes(chance.choice((10, 512, 5000)))
    victim.beside(ending).write_bytes(data)
    for end in ("", *_BESIDE):
        Path(f"{forged}{end}").unlink(missing_ok=True)


def change_counter(victim: Victim, chance: random.Random) -> None:
    """Spoil the counter, and put an old copy of the file back, or not."""
    counter = victim.beside(".counter")
    data = bytearray(counter.read_bytes())
    kind = chance.randrange(4)
    if kind == 0:
        counter.unlink()
    elif kind == 1:
        counter.write_bytes(chance.randbytes(chance.randrange(200)))
    elif kind == 2:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        counter.write_bytes(data)
    if chance.random() < 0.7:
        victim.path.write_bytes(chance.choice(victim.olds))


CHANGES: dict[str, Change] = {
    "bytes": change_bytes,
    "file head": change_file_head,
    "pages": change_pages,
    "cells": change_cells,
    "rows": change_rows,
    "schema": change_schema,
    "journals": change_journals,
    "counter": change_counter,
}


def use(victim: Victim) -> str:
    """Open a changed store and use it.

    Returns:
        ``refused``, ``refused in use`` or ``as before``.

    Raises:
        AssertionError: There was more to spend, or something that was done was not done.
    """
    try:
        store = victim.open()
    except HdpmfError:
        return "refused"
    with store:
        try:
            facts = read_facts(store)
            assert not facts.allows_more_than(victim.facts), "more to spend or a looser policy"
            _use(store, facts)
        except StorageError:
            return "refused in use"
    with victim.open() as again:
        assert again.policy.epsilon == _TIGHTER, "a tightened policy was not kept"
    return "as before"


def _use(store: DeviceStore, facts: Facts) -> None:
    spend(store, run="dd" * 16, part=0.1)
    after = read_facts(store)
    paid = np.array([facts.left[item] - after.left[item] for item in facts.left])
    assert after.entries == facts.entries + 1, "a charge was not written"
    assert bool((paid > 0).all()), "something was sent and not paid"
    store.remove(_LATER)
    assert _LATER not in {record.item for record in store.records()}, "a rating came back"
    store.set_policy(msgspec.structs.replace(store.policy, epsilon=_TIGHTER))
    assert store.policy.epsilon == _TIGHTER, "a tightened policy was not kept"


def fuzz(folder: Path, files: int, seed: int) -> Counter[tuple[str, str]]:
    """Change a store so many times; how each kind of change ended.

    Raises:
        AssertionError: As in `use`, with the number of the file.
    """
    found = Counter[tuple[str, str]]()
    victims = [Victim(folder / "encrypted", PASSPHRASE), Victim(folder / "plain", None)]
    names = list(CHANGES)
    for number in range(files):
        chance = random.Random(f"{seed} {number}")
        victim = victims[number // len(names) % 4 == 3]  # three of four are encrypted
        victim.restore()
        name = names[number % len(names)]
        CHANGES[name](victim, chance)
        if chance.random() < 0.2 and name != "counter":  # a second one
            with suppress(sqlite3.Error, IndexError, UnicodeDecodeError):
                CHANGES[chance.choice(names[:-1])](victim, chance)
        try:
            found[name, use(victim)] += 1
        except AssertionError as error:
            raise AssertionError(f"file {number} ({name}): {error}") from error
    return found


def main() -> None:
    """Fuzz, and print how it ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    encryption.SCRYPT_COST = 16
    folder = Path(tempfile.mkdtemp())
    try:
        found = fuzz(folder, given.files, given.seed)
    finally:
        shutil.rmtree(folder)
    for name in CHANGES:
        ends = {end: count for (kind, end), count in sorted(found.items()) if kind == name}
        print(f"{name:10} {ends}")
    print(f"{sum(found.values())} files, none with more to spend or a looser policy")


if __name__ == "__main__":
    main()
