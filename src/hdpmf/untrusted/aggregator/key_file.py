"""Secret keys that can be erased: what a store of them is, and a small file that is one.

A database keeps what was deleted: in free pages, in its log, in dead rows, in backups. So what must
be gone one day is sealed with a key from here, and the key is overwritten. The file has records of
one size, and they change in place: a file that is written anew would leave its old blocks behind.
A file system that copies on write (btrfs, ZFS), a snapshot or a worn flash cell can still hold old
blocks; ``docs/two-servers.md`` says so.
"""

from __future__ import annotations

import errno
import hmac
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from hdpmf.common.base.files import atomic_write, lock_file
from hdpmf.errors import StorageError

DAY = 86_400
KEY_SIZE = 32
NAME_SIZE = 40

_MAGIC = b"hdpmf keys 1\n\0\0\0"
_COUNTER_SIZE = 8
_HEADER_SIZE = len(_MAGIC) + _COUNTER_SIZE
_CHECK_SIZE = 8
_RECORD_SIZE = NAME_SIZE + KEY_SIZE + _CHECK_SIZE


class KeyFile:
    """Keys by name, shared by all workers of a server: in a file.

    A header counts changes, so that a process rereads the file only after another one changed it. A
    record that was cut by a crash has a wrong check and is free: nobody relied on it yet.

    Args:
        path: The file; None keeps the keys in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._keys: dict[bytes, bytes] = {}
        self._positions: dict[bytes, int] = {}
        self._records = 0
        self._counter = -1
        self._list = b""

    def __repr__(self) -> str:
        return f"KeyFile({self._path})"

    def names(self) -> list[bytes]:
        """Return the names of all keys."""
        self._refresh()
        return list(self._keys)

    def keys(self) -> dict[bytes, bytes]:
        """Return all keys by name."""
        self._refresh()
        return dict(self._keys)

    def get(self, name: bytes) -> bytes | None:
        """Return a key, or None if there is none or it was erased."""
        self._refresh()
        return self._keys.get(name)

    def make(self, name: bytes) -> bytes:
        """Return a key; a new one is drawn if there is none, and is on the disk then."""
        found = self.get(name)
        return self._add(name, secrets.token_bytes(KEY_SIZE)) if found is None else found

    def put(self, name: bytes, key: bytes) -> None:
        """Add a key, unless there is one of this name."""
        self._add(name, key)

    def erase(self, names: Iterable[bytes]) -> None:
        """Overwrite keys; those that are not there are skipped."""
        self._refresh()
        wanted = [name for name in names if name in self._keys]
        if not wanted:
            return
        if self._path is None:
            for name in wanted:
                self._keys.pop(name, None)
            return
        with self._locked() as file:
            self._read(file)
            gone = [name for name in wanted if name in self._keys]
            for name in gone:
                _write_at(file, bytes(_RECORD_SIZE), self._offset(self._positions[name]))
            self._changed(file)
            self._keys = {name: key for name, key in self._keys.items() if name not in gone}
            self._positions = {name: at for name, at in self._positions.items() if name not in gone}

    def read_list(self) -> bytes:
        """Return the public list of the keys, a file beside this one; empty if there is none."""
        if self._path is None:
            return self._list
        try:
            return self._list_path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StorageError(f"cannot read {self._list_path}: {error.strerror}") from error

    def write_list(self, data: bytes) -> None:
        """Replace the public list of the keys."""
        if self._path is None:
            self._list = data
        else:
            atomic_write(self._list_path, data)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let nobody else be alone meanwhile."""
        if self._path is None:
            yield
            return
        path = self._path.with_name(f".{self._path.name}")
        try:
            stream = path.open("w")
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error
        with stream:
            lock_file(stream.fileno(), wait=True)
            yield

    @property
    def _list_path(self) -> Path:
        if self._path is None:
            raise StorageError("keys in memory have no file")
        return self._path.with_name(f"{self._path.name.removesuffix('-keys')}-list")

    def _add(self, name: bytes, key: bytes) -> bytes:
        if len(name) != NAME_SIZE or len(key) != KEY_SIZE:
            raise ValueError(f"a name has {NAME_SIZE} bytes and a key {KEY_SIZE}")
        if self._path is None:
            return self._keys.setdefault(name, key)
        with self._locked() as file:
            self._read(file)
            if name in self._keys:
                return self._keys[name]
            used = set(self._positions.values())
            position = next((at for at in range(self._records) if at not in used), self._records)
            record = name + key + _check(name, key)
            _write_at(file, record, self._offset(position))
            self._changed(file)
            self._records = max(self._records, position + 1)
            self._keys = self._keys | {name: key}
            self._positions = self._positions | {name: position}
        return key

    @staticmethod
    def _offset(position: int) -> int:
        return _HEADER_SIZE + position * _RECORD_SIZE

    def _refresh(self) -> None:
        if self._path is None:
            return
        try:
            file = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            self._keys = {}
            self._positions = {}
            self._counter = -1
            return
        except OSError as error:
            raise self._failed(error) from error
        try:
            if _counter(_read_head(file, _HEADER_SIZE)) == self._counter:
                return
        finally:
            os.close(file)
        with self._locked() as file:
            self._read(file)

    def _read(self, file: int) -> None:
        """Read the file, locked, unless it is as it was."""
        head = _read_head(file, _HEADER_SIZE)
        counter = _counter(head)
        if counter == self._counter:
            return
        if head and not head.startswith(_MAGIC):
            raise StorageError(f"{self._path} is damaged or another file; bring back the right one")
        whole = _read_head(file, os.fstat(file).st_size)[_HEADER_SIZE:]
        keys: dict[bytes, bytes] = {}
        positions: dict[bytes, int] = {}
        self._records = len(whole) // _RECORD_SIZE
        for position in range(self._records):
            record = whole[position * _RECORD_SIZE : (position + 1) * _RECORD_SIZE]
            name = record[:NAME_SIZE]
            key = record[NAME_SIZE : NAME_SIZE + KEY_SIZE]
            if record[NAME_SIZE + KEY_SIZE :] == _check(name, key):
                keys[name] = key
                positions[name] = position
        self._keys = keys
        self._positions = positions
        self._counter = counter

    def _changed(self, file: int) -> None:
        """Count a change, and bring all of it to the disk."""
        counter = max(self._counter, 0) + 1
        _write_at(file, _MAGIC + counter.to_bytes(_COUNTER_SIZE, "big"), 0)
        os.fsync(file)
        self._counter = counter

    @contextmanager
    def _locked(self) -> Iterator[int]:
        if self._path is None:
            raise StorageError("keys in memory have no file")
        try:
            new = not self._path.exists()
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                lock_file(file, wait=True)
                if new and os.name == "posix":
                    _sync_folder(self._path.parent)
                yield file
            finally:
                os.close(file)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        return StorageError(
            f"could not use {self._path}: {reason}. Free space or give this process the right to "
            "it, then try again"
        )


class DailyKey:
    """A key that moves forward by one step a day; the days that lie behind can be erased.

    Who has the key of a day has those of all later ones, and of none before.

    Args:
        store: Of the key; one is made if it is empty.
        label: For the names in the store.
        first: The day of a new key, since 1970.
    """

    def __init__(self, store: KeyFile, label: bytes, first: int = 0) -> None:
        self._store = store
        self._label = label
        if not store.names():
            store.put(self._name(first), secrets.token_bytes(KEY_SIZE))

    def at(self, day: int) -> bytes | None:
        """Return the key of a day; None if it is erased."""
        while known := [found for found in self._days() if found <= day]:
            key = self._store.get(self._name(max(known)))
            if key is not None:  # otherwise another worker has just moved it forward
                return _forward(key, day - max(known))
        return None

    def erase_before(self, day: int) -> None:
        """Erase the keys of all days before this one."""
        days = self._days()
        if not days or max(days) >= day > min(days):
            self._store.erase(self._name(old) for old in days if old != max(days))
            return
        if max(days) < day:
            key = self._store.get(self._name(max(days)))
            if key is not None:
                self._store.put(self._name(day), _forward(key, day - max(days)))
                self._store.erase(self._name(old) for old in days)

    def _days(self) -> list[int]:
        return [int.from_bytes(name[len(self._label) :], "big") for name in self._store.names()]

    def _name(self, day: int) -> bytes:
        return self._label + day.to_bytes(NAME_SIZE - len(self._label), "big")


def derive_key(key: bytes, purpose: bytes) -> bytes:
    """Return the key for one purpose that follows from a key."""
    return hmac.digest(key, b"hdpmf " + purpose, "sha256")


def _forward(key: bytes, days: int) -> bytes:
    for _ in range(days):
        key = derive_key(key, b"next day")
    return key


def _read_head(file: int, size: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    return os.read(file, size)


def _write_at(file: int, data: bytes, offset: int) -> None:
    os.lseek(file, offset, os.SEEK_SET)
    if os.write(file, data) != len(data):
        raise OSError(errno.ENOSPC, "the disk is full")


def _counter(head: bytes) -> int:
    return int.from_bytes(head[len(_MAGIC) :], "big") if len(head) == _HEADER_SIZE else -1


def _check(name: bytes, key: bytes) -> bytes:
    return sha256(b"hdpmf key record" + name + key).digest()[:_CHECK_SIZE]


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
