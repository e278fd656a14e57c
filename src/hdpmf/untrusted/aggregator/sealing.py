"""Seals report shares and sums in the database, until their batch is closed.

Every step of a task's time (its bucket) has a key of its own, in a file outside the database. A
report and the sums that it is added to are sealed with the key of its bucket. When the batch with
the bucket is closed, or its task is purged, the key is erased. Whatever the database, its log, its
dead rows or its backups still hold of them can then be opened by nobody, whoever gets the disk.

The key is on the disk before anything that is sealed with it is committed. If a server is killed
between closing a batch and erasing its keys, they are erased when it starts again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

from hdpmf.common.aggregation.two_servers.dap.messages import TASK_ID_SIZE, Interval
from hdpmf.errors import StorageError, needs
from hdpmf.untrusted.aggregator.datastore import (
    ServerDatabase,
    batches,
    tasks,
)
from hdpmf.untrusted.aggregator.key_file import KeyFile

with needs("cryptography"):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

with needs("sqlalchemy"):
    import sqlalchemy as sa

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
