"""Keys in the database, for a server on several hosts, sealed with a key that each host has.

The key that seals them is in the folder of every host (``database-key``): copied once, when the
folder is. It moves forward by one step a day, on each host by itself, and what lies behind is
erased. All keys in the table are sealed anew every day. So a copy of the database is opened with
the key of its day or an earlier one, and after two days no host has that any more. Erasing a key is
deleting its row: dead rows, logs, replicas and backups of PostgreSQL keep it, sealed, and after two
days nobody opens it. A file that is overwritten (``key_file``) needs no such days, and remains the
way for a server on one host.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hdpmf.errors import StorageError, needs
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, key_rows
from hdpmf.untrusted.aggregator.key_file import DAY, KEY_SIZE, DailyKey, KeyFile

with needs("cryptography"):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

with needs("sqlalchemy"):
    import sqlalchemy as sa

DATABASE_KEY_FILE = "database-key"
_LABEL = b"sealing key of a day"
_KEEP_DAYS = 2  # so that a database of the day before can be opened
_FRESH_SECONDS = 2.0
_DAY_SIZE = 4
_NONCE_SIZE = 12
_LIST = b"public list"


def database_key(folder: Path) -> DailyKey:
    """Return the key of this folder that seals keys in the database; made if there is none."""
    return DailyKey(KeyFile(folder / DATABASE_KEY_FILE), _LABEL, int(time.time() // DAY))


class KeyTable:
    """A ``KeyStore`` in a PostgreSQL database, shared by workers on several hosts.

    A worker that has read a key uses it for two seconds without asking again.

    Args:
        database: Its own, not the one of transactions that ask for keys: a key is committed before
            anything that is sealed with it.
        name: Of the store: several share the table.
        sealing: The key that seals them.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        database: ServerDatabase,
        name: str,
        sealing: DailyKey,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._name = name
        self._sealing = sealing
        self._clock = clock
        self._guard = threading.RLock()
        self._known: dict[bytes, tuple[bytes, bytes | None]] = {}
        self._read_at = float("-inf")
        self._day_keys: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return f"KeyTable({self._name})"

    def names(self) -> list[bytes]:
        """As in ``KeyStore``."""
        return list(self.keys())

    def keys(self) -> dict[bytes, bytes]:
        """As in ``KeyStore``."""
        return {name: key for name, (_, key) in self._rows(fresh=True).items() if key is not None}

    def get(self, name: bytes) -> bytes | None:
        """As in ``KeyStore``."""
        rows = self._rows(fresh=True)
        if name not in rows:
            rows = self._rows()
        return rows[name][1] if name in rows else None

    def make(self, name: bytes) -> bytes:
        """As in ``KeyStore``."""
        found = self.get(name)
        return self._add(name, secrets.token_bytes(KEY_SIZE)) if found is None else found

    def put(self, name: bytes, key: bytes) -> None:
        """As in ``KeyStore``."""
        self._add(name, key)

    def replace(self, name: bytes, value: bytes) -> None:
        """Add a value of any size, sealed as keys are, or replace the one of this name."""
        self._upsert(self._name, name, self._seal(name, value))
        self._rows()

    def erase(self, names: Iterable[bytes]) -> None:
        """As in ``KeyStore``; the rows are gone, and what PostgreSQL keeps of them is sealed."""
        gone = list(names)
        if gone:
            here = sa.and_(key_rows.c.store == self._name, key_rows.c.name.in_(gone))
            with self._database.write() as connection:
                connection.execute(sa.delete(key_rows).where(here))
            self._rows()

    def read_list(self) -> bytes:
        """As in ``KeyStore``."""
        here = sa.and_(key_rows.c.store == f"{self._name} list", key_rows.c.name == _LIST)
        with self._database.read() as connection:
            found = connection.execute(sa.select(key_rows.c.value).where(here)).scalar()
        return found or b""

    def write_list(self, data: bytes) -> None:
        """As in ``KeyStore``."""
        self._upsert(f"{self._name} list", _LIST, data)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """As in ``KeyStore``, on all hosts."""
        with self._database.write() as connection:
            self._database.lock_keys(connection)
            self._read_at = float("-inf")  # what others did before counts
            yield

    def move_forward(self) -> None:
        """Seal all keys with the key of today."""
        today = self._today
        for name, (value, key) in self._rows().items():
            if key is not None and _day(value) < today:
                here = sa.and_(
                    key_rows.c.store == self._name,
                    key_rows.c.name == name,
                    key_rows.c.value == value,  # nobody else has erased or sealed it meanwhile
                )
                with self._database.write() as connection:
                    connection.execute(
                        sa.update(key_rows).where(here), {"value": self._seal(name, key)}
                    )

    def _rows(self, *, fresh: bool = False) -> dict[bytes, tuple[bytes, bytes | None]]:
        """Return all rows, sealed and opened; ``fresh`` allows those of a moment ago."""
        with self._guard:
            if fresh and time.monotonic() < self._read_at + _FRESH_SECONDS:
                return self._known
            here = sa.select(key_rows.c.name, key_rows.c.value).where(
                key_rows.c.store == self._name
            )
            with self._database.read() as connection:
                found = {row.name: row.value for row in connection.execute(here)}
            before = self._known
            self._known = {
                name: before[name]
                if name in before and before[name][0] == value
                else (value, self._open(name, value))
                for name, value in found.items()
            }
            self._read_at = time.monotonic()
            return self._known

    def _upsert(self, store: str, name: bytes, value: bytes) -> None:
        made = self._database.insert(key_rows)
        newer = made.on_conflict_do_update(
            index_elements=[key_rows.c.store, key_rows.c.name],
            set_={"value": made.excluded.value},
        )
        with self._database.write() as connection:
            connection.execute(newer, {"store": store, "name": name, "value": value})

    def _add(self, name: bytes, key: bytes) -> bytes:
        made = self._database.insert(key_rows).on_conflict_do_nothing()
        with self._database.write() as connection:
            row = {"store": self._name, "name": name, "value": self._seal(name, key)}
            connection.execute(made, row)
        found = self._rows()[name][1]
        if found is None:
            raise StorageError(
                f"a key in the table of {self._name} is sealed with one that was erased: the "
                "database is a copy of more than two days ago, or this host's clock is ahead"
            )
        return found

    @property
    def _today(self) -> int:
        return int(self._clock() // DAY)

    def _day_key(self, day: int) -> bytes | None:
        if day not in self._day_keys:
            found = self._sealing.at(day)
            if found is None:
                return None
            self._day_keys = {
                known: key for known, key in self._day_keys.items() if known > day - _KEEP_DAYS
            } | {day: found}
        return self._day_keys[day]

    def _seal(self, name: bytes, key: bytes) -> bytes:
        today = self._today
        sealing = self._day_key(today)
        if sealing is None:
            raise StorageError(
                f"{DATABASE_KEY_FILE} of this folder is of a later day; set this host's clock"
            )
        nonce = secrets.token_bytes(_NONCE_SIZE)
        head = today.to_bytes(_DAY_SIZE, "big") + nonce
        return head + AESGCM(sealing).encrypt(nonce, key, self._about(name))

    def _open(self, name: bytes, value: bytes) -> bytes | None:
        """Return a key; None if the key that opens it is erased. StorageError for a wrong one."""
        sealing = self._day_key(_day(value))
        if sealing is None:
            return None
        nonce = value[_DAY_SIZE : _DAY_SIZE + _NONCE_SIZE]
        try:
            return AESGCM(sealing).decrypt(
                nonce, value[_DAY_SIZE + _NONCE_SIZE :], self._about(name)
            )
        except (InvalidTag, ValueError):
            raise StorageError(
                f"the keys in the database cannot be opened with {DATABASE_KEY_FILE} of this "
                "folder. All hosts of a server need the same one: copy the folder of the first"
            ) from None

    def _about(self, name: bytes) -> bytes:
        return self._name.encode() + b" " + name


def _day(value: bytes) -> int:
    return int.from_bytes(value[:_DAY_SIZE], "big")


class KeyTables:
    """The key stores of a server whose keys are in its database.

    What an earlier configuration has put into files of the folder moves into the table, once; a
    file beside a table that has keys is an old copy, and is erased.
    """

    def __init__(
        self, database: ServerDatabase, folder: Path, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._folder = folder
        self._clock = clock
        self._sealing = database_key(folder)
        self._stores: dict[str, KeyTable] = {}

    def open(self, name: str) -> KeyTable:
        """Return the store of this name."""
        if name not in self._stores:
            table = KeyTable(self._database, name, self._sealing, self._clock)
            self._move_in(KeyFile(self._folder / name), table)
            self._stores[name] = table
        return self._stores[name]

    def move_forward(self) -> None:
        """Seal all keys with the key of today, and erase the keys of days before yesterday."""
        for store in self._stores.values():
            store.move_forward()
        self._sealing.erase_before(int(self._clock() // DAY) - _KEEP_DAYS)

    def _move_in(self, file: KeyFile, table: KeyTable) -> None:
        keys = file.keys()
        if keys and not table.names():
            for name, key in keys.items():
                table.put(name, key)
            signed = file.read_list()
            if signed:
                table.write_list(signed)
        file.erase(keys)
