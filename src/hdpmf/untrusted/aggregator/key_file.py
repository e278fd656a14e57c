"""Secret keys that can be erased: a small file that is changed in place.

A database keeps what was deleted: in free pages, in its log, in dead rows, in backups. So what must
be gone one day is sealed with a key from here, and the key is overwritten. A file system that
copies on write (btrfs, ZFS), a snapshot or a worn flash cell can still hold old blocks.
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

from hdpmf.common.base.files import lock_file
from hdpmf.errors import StorageError

KEY_SIZE = 32
NAME_SIZE = 40

_MAGIC = b"hdpmf keys 1\n\0\0\0"
_COUNTER_SIZE = 8
_HEADER_SIZE = len(_MAGIC) + _COUNTER_SIZE
_CHECK_SIZE = 8
_RECORD_SIZE = NAME_SIZE + KEY_SIZE + _CHECK_SIZE


class KeyFile:
    """Keys by name in a file, which all workers of a server use at once.

    The header counts changes; it is written last. A record that a crash has cut has a wrong check
    and is free: nobody relied on it yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = b""
        self._keys: dict[bytes, bytes] = {}
        self._positions: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"KeyFile({self._path})"

    def keys(self) -> dict[bytes, bytes]:
        """Return all keys by name."""
        self._load()
        return dict(self._keys)

    def names(self) -> list[bytes]:
        """Return the names of all keys."""
        return list(self.keys())

    def get(self, name: bytes) -> bytes | None:
        """Return a key, or None if there is none or it was erased."""
        self._load()
        return self._keys.get(name)

    def make(self, name: bytes) -> bytes:
        """Return a key; a new one is drawn if there is none, and is on the disk then."""
        return self.get(name) or self.put(name, secrets.token_bytes(KEY_SIZE))

    def put(self, name: bytes, key: bytes) -> bytes:
        """Add a key, unless there is one of this name; return the one that is there."""
        if len(name) != NAME_SIZE or len(key) != KEY_SIZE:
            raise ValueError(f"a name has {NAME_SIZE} bytes and a key {KEY_SIZE}")
        with self._changing() as file:
            if name in self._keys:
                return self._keys[name]
            used = set(self._positions.values())
            free = next(position for position in range(len(used) + 1) if position not in used)
            _write_at(file, name + key + _check(name, key), free)
        return key

    def erase(self, names: Iterable[bytes]) -> None:
        """Overwrite keys; those that are not there are skipped."""
        wanted = set(names) & set(self.keys())
        if wanted:
            with self._changing() as file:
                for name in wanted & set(self._positions):
                    _write_at(file, bytes(_RECORD_SIZE), self._positions[name])

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let nobody else be alone meanwhile."""
        path = self._path.with_name(f".{self._path.name}")
        try:
            stream = path.open("w")
        except OSError as error:
            raise self._failed(error) from error
        with stream:
            lock_file(stream.fileno(), wait=True)
            yield

    def _load(self) -> None:
        """Read the file, if it has changed."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise self._failed(error) from error
        header = data[:_HEADER_SIZE]
        if header == self._header:
            return
        if data and not data.startswith(_MAGIC):
            raise StorageError(f"{self._path} is damaged or another file; bring back the right one")
        keys: dict[bytes, bytes] = {}
        positions: dict[bytes, int] = {}
        for position, start in enumerate(range(_HEADER_SIZE, len(data), _RECORD_SIZE)):
            record = data[start : start + _RECORD_SIZE]
            name = record[:NAME_SIZE]
            key = record[NAME_SIZE : NAME_SIZE + KEY_SIZE]
            if record[NAME_SIZE + KEY_SIZE :] == _check(name, key):
                keys[name] = key
                positions[name] = position
        self._keys = keys
        self._positions = positions
        self._header = header

    @contextmanager
    def _changing(self) -> Iterator[int]:
        """Lock the file for a change of what is newest in it, and bring all of it to the disk."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                lock_file(file, wait=True)
                if not os.fstat(file).st_size:
                    _write(file, _MAGIC + bytes(_COUNTER_SIZE), 0)
                    _sync_folder(self._path.parent)
                self._load()
                yield file
                counter = int.from_bytes(self._header[len(_MAGIC) :], "big") + 1
                _write(file, _MAGIC + counter.to_bytes(_COUNTER_SIZE, "big"), 0)
                os.fsync(file)
                self._load()
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


def derive_key(key: bytes, purpose: bytes) -> bytes:
    """Return the key for one purpose that follows from a key."""
    return hmac.digest(key, b"hdpmf " + purpose, "sha256")


def _write_at(file: int, record: bytes, position: int) -> None:
    _write(file, record, _HEADER_SIZE + position * _RECORD_SIZE)


def _write(file: int, data: bytes, offset: int) -> None:
    os.lseek(file, offset, os.SEEK_SET)
    if os.write(file, data) != len(data):
        raise OSError(errno.ENOSPC, "the disk is full")


def _check(name: bytes, key: bytes) -> bytes:
    return sha256(b"hdpmf key record" + name + key).digest()[:_CHECK_SIZE]


def _sync_folder(path: Path) -> None:
    if os.name != "posix":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
