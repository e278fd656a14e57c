"""Closing a batch: its sum gets noise and is encrypted once, to the collector.

A log of released batches keeps a database that was rolled back from releasing a batch again. It has
one line per batch: task, interval, digest of the share. A share leaves only after its line is on
the disk. So a batch with a line and without its share in the database was closed before, and the
database is older than that. Where the log was rolled back, too, the same sum gets the same noise
(``noise_key``). A task that was given up has a line, too: nothing of it is released from then on.
When a batch is closed, the keys that its reports were sealed with are erased.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from hdpmf.common.aggregation.two_servers.dap.hpke import aggregate_share_info, seal
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregateShareAad,
    BatchSelector,
    HpkeCiphertext,
    Interval,
    Problem,
    combine_checksums,
)
from hdpmf.common.base.files import lock_file
from hdpmf.common.privacy.sampling import KeyedNoise, Noise
from hdpmf.errors import ConfigError, DapError, PrivacyError, StorageError, needs
from hdpmf.untrusted.aggregator.datastore import (
    ReportState,
    ServerDatabase,
    accumulators,
    batches,
    lock_task,
    reports,
)
from hdpmf.untrusted.aggregator.noise_key import NoiseKey
from hdpmf.untrusted.aggregator.sealing import BatchSeals
from hdpmf.untrusted.aggregator.tasks import AggregatorTask, Rules, ServerKeys

with needs("sqlalchemy"):
    import sqlalchemy as sa


RELEASED_FILE = "closed-batches"
NOISE_KEY_FILE = "noise-key"
BATCH_KEYS_FILE = "batch-keys"


_VOID = "void"  # instead of the digest of a share: there is none


def _not_void() -> DapError:
    return DapError(
        "a batch of the task is closed; what was reported is in it", Problem.BATCH_OVERLAP
    )


@dataclass(frozen=True)
class _ReleasedBatch:
    task: str
    start: int
    duration: int
    digest: str

    def overlaps(self, task: str, interval: Interval) -> bool:
        return (
            self.task == task
            and self.start < interval.end
            and interval.start < self.start + self.duration
        )


class ReleasedBatches:
    """The log file of a server's released batches, shared by all its workers.

    Args:
        path: The file; None if the database is in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def check(self, task_id: bytes, interval: Interval) -> None:
        """Raise PrivacyError if part of the interval was released. Call it before drawing noise."""
        with self._locked() as file:
            if any(batch.overlaps(task_id.hex(), interval) for batch in self._read(file)):
                raise self._refusal(task_id, interval)

    def write(self, task_id: bytes, interval: Interval, share: bytes) -> None:
        """Record the share of a batch permanently. Call it before the share leaves."""
        new = _ReleasedBatch(
            task_id.hex(), interval.start, interval.duration, sha256(share).hexdigest()
        )
        with self._locked() as file:
            released = self._read(file)
            if new in released:
                return
            if any(batch.overlaps(new.task, interval) for batch in released):
                raise self._refusal(task_id, interval)
            if file is not None:
                self._append(file, f"{new.task} {new.start} {new.duration} {new.digest}\n".encode())

    def void(self, task_id: bytes, interval: Interval) -> None:
        """Record permanently that nothing of a task is released.

        ``interval`` is the task's whole time.

        Raises:
            DapError: Something was released.
        """
        new = _ReleasedBatch(task_id.hex(), interval.start, interval.duration, _VOID)
        with self._locked() as file:
            if file is None:
                raise DapError("in a simulation nothing is void")
            released = self._read(file)
            if any(batch.task == new.task and batch.digest != _VOID for batch in released):
                raise _not_void()
            if new not in released:
                self._append(file, f"{new.task} {new.start} {new.duration} {_VOID}\n".encode())

    def _refusal(self, task_id: bytes, interval: Interval) -> PrivacyError:
        return PrivacyError(
            f"the batch of task {task_id.hex()[:16]} from {interval.start} to {interval.end} was "
            "closed before, and the database does not have its share: it is older than "
            f"{self._path}. Two sums of one batch would tell more than one, so this batch stays "
            "closed. Bring back the newest copy of the database; if there is none, give this task "
            "up and make a new one"
        )

    @contextmanager
    def _locked(self) -> Iterator[int | None]:
        if self._path is None:
            yield None
            return
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._failed(error) from error
        try:
            lock_file(file, wait=True)
            yield file
        finally:
            os.close(file)

    def _read(self, file: int | None) -> list[_ReleasedBatch]:
        if file is None:
            return []
        os.lseek(file, 0, os.SEEK_SET)
        with os.fdopen(os.dup(file), "rb") as stream:
            whole = stream.read()
        released = []
        # An unfinished line was never relied on.
        for line in whole[: whole.rfind(b"\n") + 1].splitlines():
            try:
                task, start, duration, digest = line.decode("ascii").split(" ")
                released.append(_ReleasedBatch(task, int(start), int(duration), digest))
            except ValueError:
                raise StorageError(
                    f"{self._path} is damaged; bring back its copy. Without it nobody knows which "
                    "batches are closed"
                ) from None
        return released

    def _append(self, file: int, line: bytes) -> None:
        try:
            end = os.lseek(file, 0, os.SEEK_END)
            if end:
                os.lseek(file, 0, os.SEEK_SET)
                complete = os.read(file, end).rfind(b"\n") + 1
                os.ftruncate(file, complete)
                os.lseek(file, complete, os.SEEK_SET)
            if os.write(file, line) != len(line):
                raise OSError("the disk is full")
            os.fsync(file)
            if self._path is not None and os.name == "posix":  # elsewhere a folder cannot be opened
                folder = os.open(self._path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(
            f"could not write {self._path}: {error.strerror or error}. No share left; free space, "
            "then try again"
        )


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """A closed batch.

    Attributes:
        times: The smallest interval with its reports' times.
        share: This server's share, with noise, encrypted to the collector.
        other: The helper's share, at the leader.
    """

    interval: Interval
    count: int
    checksum: bytes
    times: Interval
    share: HpkeCiphertext
    other: HpkeCiphertext | None


class Batches:
    """The closed batches of a server.

    Args:
        seals: Opens the sums, until a batch is closed.
        noise: What is added to sums in a simulation; otherwise the noise of ``noise_key``.
        state: Folder of files that are no part of the database; None if that is in memory.
    """

    def __init__(
        self,
        database: ServerDatabase,
        keys: ServerKeys,
        rules: Rules,
        seals: BatchSeals,
        noise: Noise | None = None,
        state: Path | None = None,
    ) -> None:
        if noise is not None and not rules.simulation:
            raise PrivacyError(
                f"{type(noise).__name__} must not make the noise of a sum that is released: a "
                "server adds the noise of its own key"
            )
        if state is None and not database.in_memory:
            raise ConfigError(
                "a server with a database needs a folder for its closed batches and keys, outside "
                "the database"
            )
        self._database = database
        self._keys = keys
        self._rules = rules
        self._seals = seals
        self._noise = noise
        self._noise_key = NoiseKey(None if state is None else state / NOISE_KEY_FILE)
        self._released = ReleasedBatches(None if state is None else state / RELEASED_FILE)

    def check(self, task: AggregatorTask, interval: Interval) -> None:
        """Raise DapError unless the interval is within the task and a multiple of its precision."""
        document = task.document
        whole = interval.start % document.precision == 0 == interval.duration % document.precision
        if not (whole and document.begin <= interval.start < interval.end <= document.end):
            raise DapError(
                "a batch is whole steps of the task's time, within it", Problem.BATCH_INVALID
            )

    def check_overlap(self, task: AggregatorTask, interval: Interval) -> None:
        """Raise DapError if the interval overlaps with another batch that is closed."""
        with self._database.read() as connection:
            if _find(connection, task, interval) is None:
                _check_overlap(connection, task, interval)

    def find(self, task: AggregatorTask, interval: Interval) -> Batch | None:
        """Return the batch if it is closed."""
        with self._database.read() as connection:
            return _find(connection, task, interval)

    def close(
        self, task: AggregatorTask, interval: Interval, expected: tuple[int, bytes] | None = None
    ) -> Batch | None:
        """Close a batch, or return it if it is closed. Once this returns, its share may leave.

        None if reports of it still wait to be checked. ``expected`` are count and checksum of the
        other server.

        Raises:
            DapError: It is too small, it overlaps, or the servers do not have the same reports.
            PrivacyError: It was released before, and the database does not know.
        """
        self.check(task, interval)
        batch = self.find(task, interval)
        if batch is None:
            self.check_overlap(task, interval)
            self._released.check(task.id, interval)
            with self._database.write() as connection:
                if not lock_task(connection, task.number, alone=True):
                    raise DapError("the task is over", Problem.BATCH_INVALID)
                batch = _find(connection, task, interval)
                if batch is None:
                    if _waits(connection, task, interval):
                        return None
                    batch = self._draw(connection, task, interval, expected)
        _compare(expected, batch.count, batch.checksum)
        self._released.write(task.id, interval, batch.share.encode())
        self._seals.erase(task.id, interval)
        self._database.empty_log()
        return batch

    def void(self, task: AggregatorTask) -> None:
        """Release nothing of a task from now on; raise DapError if a batch of it is closed."""
        with self._database.write() as connection:
            lock_task(connection, task.number, alone=True)  # no batch closes meanwhile
            if closed_intervals(connection, task):
                raise _not_void()
            document = task.document
            self._released.void(task.id, Interval(document.begin, document.end - document.begin))

    def erase_noise_keys(self, before: float) -> None:
        """Erase noise keys of tasks that ended before this time."""
        self._noise_key.erase_before(before)

    def keep_other(self, task: AggregatorTask, interval: Interval, share: HpkeCiphertext) -> Batch:
        """Store the helper's share, unless there is one."""
        here = sa.and_(_here(task, interval), batches.c.other.is_(None))
        with self._database.write() as connection:
            connection.execute(sa.update(batches).where(here), {"other": share.encode()})
            found = _find(connection, task, interval)
        if found is None:
            raise DapError("the batch is not closed", Problem.BATCH_INVALID)
        return found

    def _draw(
        self,
        connection: sa.Connection,
        task: AggregatorTask,
        interval: Interval,
        expected: tuple[int, bytes] | None,
    ) -> Batch:
        """Sum, add noise and encrypt, in the transaction that closes the batch."""
        _check_overlap(connection, task, interval)
        within = _within(accumulators, task, interval)
        prio = task.prio
        total = np.zeros(prio.circuit.output_length, prio.field.dtype)
        count = 0
        checksums = []
        times = []
        for row in connection.execute(sa.select(accumulators).where(within)):
            plain = self._seals.open_total(task.id, row.bucket, row.shard, row.total)
            total = prio.field.add(total, prio.field.decode(plain, len(total)))
            count += row.amount
            checksums.append(row.checksum)
            times.append(row.bucket)
        checksum = combine_checksums(checksums)
        _compare(expected, count, checksum)
        if count < max(task.document.minimum, self._rules.minimum):
            raise DapError("too few reports are in the batch", Problem.INVALID_BATCH_SIZE)
        drawn = self._noises(task, prio.field.encode(total))
        noised = prio.field.add(total, prio.field.secret(drawn))
        aad = AggregateShareAad(task.id, b"", BatchSelector(batch_interval=interval)).encode()
        info = aggregate_share_info(self._keys.dap_role)
        share = seal(task.collector, info, aad, prio.field.encode(noised))
        row_ = {
            "task": task.number,
            "start": interval.start,
            "duration": interval.duration,
            "amount": count,
            "checksum": checksum,
            "first": min(times),
            "last": max(times),
            "share": share.encode(),
        }
        connection.execute(batches.insert(), row_)
        connection.execute(sa.delete(accumulators).where(within))
        _LOG.info("closed a batch of task %s with %d reports", task.id.hex()[:16], count)
        found = _find(connection, task, interval)
        if found is None:
            raise ConfigError(
                "a batch that was written is not there"
            )  # pragma: no cover - a broken database
        return found

    def _noises(self, task: AggregatorTask, total: bytes) -> np.ndarray:
        noise: Noise | KeyedNoise | None = self._noise
        if noise is None:
            noise = self._noise_key.noise(task.id, task.document.end, total)
        parts = []
        for part in task.document.noise:
            zero = part.fraction == 0
            parts.append(
                np.zeros(part.entries, np.int64)
                if zero
                else noise.discrete_laplace(part.fraction, part.entries).astype(np.int64)
            )
        return np.concatenate(parts)


def closed_intervals(connection: sa.Connection, task: AggregatorTask) -> list[Interval]:
    """Return the closed intervals of a task."""
    found = sa.select(batches.c.start, batches.c.duration).where(batches.c.task == task.number)
    return [Interval(row.start, row.duration) for row in connection.execute(found)]


def _check_overlap(connection: sa.Connection, task: AggregatorTask, interval: Interval) -> None:
    if any(
        closed.start < interval.end and interval.start < closed.end
        for closed in closed_intervals(connection, task)
    ):
        raise DapError("the batch overlaps with one that is closed", Problem.BATCH_OVERLAP)


def _compare(expected: tuple[int, bytes] | None, count: int, checksum: bytes) -> None:
    if expected is not None and expected != (count, checksum):
        raise DapError(
            "the two servers do not have the same reports in this batch", Problem.BATCH_MISMATCH
        )


def _here(task: AggregatorTask, interval: Interval) -> sa.ColumnElement[bool]:
    return sa.and_(
        batches.c.task == task.number,
        batches.c.start == interval.start,
        batches.c.duration == interval.duration,
    )


def _within(table: sa.Table, task: AggregatorTask, interval: Interval) -> sa.ColumnElement[bool]:
    inside = sa.and_(table.c.bucket >= interval.start, table.c.bucket < interval.end)
    return sa.and_(table.c.task == task.number, inside)


def _waits(connection: sa.Connection, task: AggregatorTask, interval: Interval) -> bool:
    waiting = sa.and_(_within(reports, task, interval), reports.c.state < ReportState.COUNTED)
    return (
        connection.execute(
            sa.select(sa.literal(1)).select_from(reports).where(waiting).limit(1)
        ).first()
        is not None
    )


def _find(connection: sa.Connection, task: AggregatorTask, interval: Interval) -> Batch | None:
    row = connection.execute(sa.select(batches).where(_here(task, interval))).one_or_none()
    if row is None:
        return None
    return Batch(
        interval=interval,
        count=row.amount,
        checksum=row.checksum,
        times=Interval(row.first, row.last + task.document.precision - row.first),
        share=HpkeCiphertext.decode(row.share),
        other=None if row.other is None else HpkeCiphertext.decode(row.other),
    )
