"""Seals report shares and sums in the database, until their batch is closed.

Every step of a task's time (its bucket) has a key of its own, in a file outside the database. A
report and the sums that it is added to are sealed with the key of its bucket. When the batch with
the bucket is closed, or its task is purged, the key is erased. Whatever the database, its log, its
dead rows or its backups still hold of them can then be opened by nobody, whoever gets the disk.

The key is on the disk before anything that is sealed with it is committed. If a server is killed
between closing a batch and erasing its keys, they are erased when it starts again.

Keys are in small files that are changed in place. A file system that copies on write (btrfs, ZFS),
a snapshot or a worn flash cell can still hold old blocks.
"""

import errno
import hmac
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from hdpmf.common.aggregation.two_servers.dap.messages import TASK_ID_SIZE, Interval
from hdpmf.common.base.files import lock_file
from hdpmf.errors import StorageError, needs
from hdpmf.untrusted.aggregator.datastore import (
    ServerDatabase,
    batches,
    tasks,
)

with needs("cryptography"):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

with needs("sqlalchemy"):
    import sqlalchemy as sa

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
            _write_record(file, name + key + _check(name, key), free)
        return key

    def erase(self, names: Iterable[bytes]) -> None:
        """Overwrite keys; those that are not there are skipped."""
        wanted = set(names) & set(self.keys())
        if wanted:
            with self._changing() as file:
                for name in wanted & set(self._positions):
                    _write_record(file, bytes(_RECORD_SIZE), self._positions[name])

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


def _write_record(file: int, record: bytes, position: int) -> None:
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


BATCH_KEYS_FILE = "batch-keys"
_NONCE_SIZE = 12  # random: a key seals fewer than 2^32 times, so that none comes twice
_BUCKET_SIZE = 8

ReportBody = tuple[bytes, int, bytes]
"""Id, bucket and bytes of a report, sealed or not."""


class BatchSeals:
    """Seals what a server keeps of open batches.

    Args:
        keys: The store of its keys.
    """

    def __init__(self, keys: KeyFile) -> None:
        self._keys = keys

    def seal_reports(self, task_id: bytes, bodies: Sequence[ReportBody]) -> list[bytes]:
        """Seal reports of a task; the keys are looked up once."""
        names = {bucket: _name(task_id, bucket) for _, bucket, _ in bodies}
        ciphers = {bucket: AESGCM(self._keys.make(name)) for bucket, name in names.items()}
        return [
            _seal(ciphers[bucket], names[bucket] + b"report" + report_id, body)
            for report_id, bucket, body in bodies
        ]

    def open_reports(self, task_id: bytes, sealed: Sequence[ReportBody]) -> list[bytes | None]:
        """Open reports of a task; None for those whose key was erased or lost."""
        names = {bucket: _name(task_id, bucket) for _, bucket, _ in sealed}
        keys = {bucket: self._keys.get(name) for bucket, name in names.items()}
        ciphers = {bucket: AESGCM(key) for bucket, key in keys.items() if key is not None}
        return [
            _open(ciphers.get(bucket), names[bucket] + b"report" + report_id, body)
            for report_id, bucket, body in sealed
        ]

    def seal_total(self, task_id: bytes, bucket: int, shard: int, total: bytes) -> bytes:
        """Seal a sum over reports of one bucket."""
        name = _name(task_id, bucket)
        return _seal(AESGCM(self._keys.make(name)), name + b"total" + bytes([shard]), total)

    def open_total(self, task_id: bytes, bucket: int, shard: int, sealed: bytes) -> bytes:
        """Return a sum; raise StorageError if the key of its bucket was erased or lost."""
        name = _name(task_id, bucket)
        key = self._keys.get(name)
        cipher = None if key is None else AESGCM(key)
        found = _open(cipher, name + b"total" + bytes([shard]), sealed)
        if found is None:
            raise StorageError(
                f"the sums of task {task_id.hex()[:16]} cannot be opened: their key is erased or "
                "lost, because the database is older or newer than its batch keys. Give this task "
                "up and make a new one"
            )
        return found

    def erase(self, task_id: bytes, interval: Interval | None = None) -> None:
        """Erase the keys of a closed batch, or of all buckets of a task."""
        self._keys.erase(
            name
            for name in self._keys.names()
            if name[:TASK_ID_SIZE] == task_id and (interval is None or _bucket(name) in interval)
        )

    def erase_closed(self, database: ServerDatabase) -> None:
        """Erase keys that a killed process left: of closed batches and of purged tasks.

        Keys of tasks that the database does not know stay: it may be the wrong database.
        """
        names = self._keys.names()  # before the database: a key is made after its task
        if not names:
            return
        closed = sa.select(tasks.c.id, batches.c.start, batches.c.duration).join_from(
            tasks, batches, tasks.c.number == batches.c.task
        )
        with database.read() as connection:
            purged = set(connection.execute(sa.select(tasks.c.id).where(tasks.c.purged)).scalars())
            intervals: dict[bytes, list[Interval]] = {}
            for row in connection.execute(closed):
                intervals.setdefault(row.id, []).append(Interval(row.start, row.duration))
        self._keys.erase(_closed(names, purged, intervals))


def _seal(cipher: AESGCM, about: bytes, plain: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE_SIZE)
    return nonce + cipher.encrypt(nonce, plain, about)


def _open(cipher: AESGCM | None, about: bytes, sealed: bytes) -> bytes | None:
    if cipher is None:
        return None
    try:
        return cipher.decrypt(sealed[:_NONCE_SIZE], memoryview(sealed)[_NONCE_SIZE:], about)
    except (InvalidTag, ValueError):
        return None


def _name(task_id: bytes, bucket: int) -> bytes:
    return task_id + bucket.to_bytes(_BUCKET_SIZE, "big")


def _bucket(name: bytes) -> int:
    return int.from_bytes(name[TASK_ID_SIZE:], "big")


def _closed(
    names: Iterable[bytes], purged: set[bytes], intervals: dict[bytes, list[Interval]]
) -> list[bytes]:
    return [
        name
        for name in names
        if name[:TASK_ID_SIZE] in purged
        or any(_bucket(name) in interval for interval in intervals.get(name[:TASK_ID_SIZE], ()))
    ]
