"""Closing a batch: its sum gets noise and is encrypted once, to the collector.

When a batch is closed, the keys that its reports were sealed with are erased.

Noise that is drawn twice for one sum can be averaged. A server draws once and remembers what it
released; one that was restored has forgotten. So the noise is no draw: it is the output of a
pseudorandom function under the server's noise key, fed to the exact sampler as its random bits. The
same sum gets the same noise, whenever it is asked for.

What the function is applied to decides what an attacker gains who can bring a server back:

- Task and batch alone would not do. After a restore the batch may have other reports (the leader
  sends all but one again). Two sums with one noise differ by exactly that report.
- Ids and number of reports, or their checksum, would not do either. Under the id of somebody's
  report the leader could send a report of its own.
- The share of the sum itself does. If it is the same, what is released is the same, and nobody
  learns anything new. If it differs in any report, the noise is independent of the one before.

The key moves forward, one step a day, and what lies behind is erased: a task's noise key is that of
the day on which the task ends, and it is kept for as long as the task can be collected (``keep``).
So whoever steals the key can subtract the noise of the last weeks, not of all years.
"""

import logging
import secrets
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from hdpmf.common.aggregation.two_servers.dap.hpke import aggregate_share_info, seal
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregateShareAad,
    CollectionJobReq,
    HpkeCiphertext,
    Interval,
    Problem,
    combine_checksums,
)
from hdpmf.common.privacy.sampling import KeyedNoise, Noise
from hdpmf.errors import DapError, PrivacyError, needs
from hdpmf.untrusted.aggregator.datastore import (
    ReportState,
    ServerDatabase,
    accumulators,
    batches,
    lock_task,
    reports,
)
from hdpmf.untrusted.aggregator.sealing import (
    KEY_SIZE,
    NAME_SIZE,
    BatchSeals,
    KeyFile,
    derive_key,
)
from hdpmf.untrusted.aggregator.tasks import AggregatorTask, Rules, ServerKeys

with needs("sqlalchemy"):
    import sqlalchemy as sa


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """A closed batch.

    Attributes:
        times: The smallest interval with its reports' times.
        share: This server's share, with noise, encrypted to the collector.
        other: The helper's share, at the leader.
    """

    count: int
    checksum: bytes
    times: Interval
    share: HpkeCiphertext
    other: HpkeCiphertext | None


class Batches:
    """The closed batches of a server.

    Args:
        seals: Opens the sums, until a batch is closed.
        noise_key: File of the key that the noise of sums is made of.
        noise: What is added to sums in a simulation instead.
    """

    def __init__(
        self,
        database: ServerDatabase,
        keys: ServerKeys,
        rules: Rules,
        seals: BatchSeals,
        noise_key: KeyFile,
        noise: Noise | None = None,
    ) -> None:
        if noise is not None and not rules.simulation:
            raise PrivacyError(
                f"{type(noise).__name__} must not make the noise of a sum that is released: a "
                "server adds the noise of its own key"
            )
        self._database = database
        self._keys = keys
        self._rules = rules
        self._seals = seals
        self._noise = noise
        self._noise_key = NoiseKey(noise_key)

    def check(self, task: AggregatorTask, interval: Interval) -> None:
        """Raise DapError unless the interval is a part of the task's time."""
        document = task.document
        if not document.begin <= interval.start < interval.end <= document.end:
            raise DapError("a batch is a part of the task's time", Problem.BATCH_INVALID)

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
        """
        self.check(task, interval)
        batch = self.find(task, interval)
        if batch is None:
            with self._database.write() as connection:
                if not lock_task(connection, task.number, alone=True):
                    raise DapError("the task is over", Problem.BATCH_INVALID)
                batch = _find(connection, task, interval)
                if batch is None:
                    if _waits(connection, task, interval):
                        return None
                    batch = self._draw(connection, task, interval, expected)
        _compare(expected, batch.count, batch.checksum)
        self._seals.erase(task.id, interval)
        self._database.empty_log()
        return batch

    def erase_noise_keys(self, before: float) -> None:
        """Erase noise keys of tasks that ended before this time."""
        self._noise_key.erase_before(before)

    def keep_other(self, task: AggregatorTask, interval: Interval, share: HpkeCiphertext) -> Batch:
        """Store the helper's share, unless there is one."""
        here = sa.and_(_here(task, interval), batches.c.other.is_(None))
        with self._database.write() as connection:
            connection.execute(sa.update(batches).where(here), {"other": share.encode()})
            return _get(connection, task, interval)

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
        wanted = CollectionJobReq(interval.in_steps(task.document.precision))
        aad = AggregateShareAad(task.id, task.configuration, wanted).encode()
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
        return _get(connection, task, interval)

    def _noises(self, task: AggregatorTask, total: bytes) -> np.ndarray:
        noise: Noise | KeyedNoise | None = self._noise
        if noise is None:
            noise = self._noise_key.noise(task.id, task.document.end, total)
        return noise.discrete_gaussian(task.document.sums.noise)


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


def _within(
    table: sa.TableClause, task: AggregatorTask, interval: Interval
) -> sa.ColumnElement[bool]:
    inside = sa.and_(table.c.bucket >= interval.start, table.c.bucket < interval.end)
    return sa.and_(table.c.task == task.number, inside)


def _waits(connection: sa.Connection, task: AggregatorTask, interval: Interval) -> bool:
    waiting = sa.and_(_within(reports, task, interval), reports.c.state < ReportState.COUNTED)
    return bool(connection.execute(sa.select(sa.exists().where(waiting))).scalar())


def _get(connection: sa.Connection, task: AggregatorTask, interval: Interval) -> Batch:
    found = _find(connection, task, interval)
    if found is None:
        raise DapError("the batch is not closed", Problem.BATCH_INVALID)
    return found


def _find(connection: sa.Connection, task: AggregatorTask, interval: Interval) -> Batch | None:
    row = connection.execute(sa.select(batches).where(_here(task, interval))).one_or_none()
    if row is None:
        return None
    return Batch(
        count=row.amount,
        checksum=row.checksum,
        times=Interval(row.first, row.last + task.document.precision - row.first),
        share=HpkeCiphertext.decode(row.share),
        other=None if row.other is None else HpkeCiphertext.decode(row.other),
    )


NOISE_KEY_FILE = "noise-key"
_DAY = 86_400
_DAY_LABEL = b"noise key of a day"


class NoiseKey:
    """A server's noise key, shared by all its workers.

    Args:
        store: Of the key; a new one is made if it is empty.
    """

    def __init__(self, store: KeyFile) -> None:
        self._store = store
        if not store.names():
            store.put(_day_name(0), secrets.token_bytes(KEY_SIZE))

    def noise(self, task_id: bytes, end: int, total: bytes) -> KeyedNoise:
        """Return the noise for the share ``total`` of a sum; the task ends at ``end``.

        Raises:
            PrivacyError: The key of that day is erased.
        """
        days = self._days()
        day = end // _DAY
        known = [found for found in days if found <= day]
        if not known:
            raise PrivacyError(
                f"the noise key for task {task_id.hex()[:16]} is erased, because the task's time "
                "is over by this server's clock; make a new task"
            )
        key = _forward(days[max(known)], day - max(known))
        return KeyedNoise(derive_key(key, b"noise of a sum" + task_id + sha256(total).digest()))

    def erase_before(self, time: float) -> None:
        """Erase the keys of all days before this time."""
        days = self._days()
        newest = max(days)
        day = int(time // _DAY)
        if newest < day:
            self._store.put(_day_name(day), _forward(days[newest], day - newest))
            newest = day
        self._store.erase(_day_name(old) for old in days if old < newest)

    def _days(self) -> dict[int, bytes]:
        """Return the keys by their days; more than one if a server was killed between two steps."""
        keys = self._store.keys()
        return {int.from_bytes(name[len(_DAY_LABEL) :], "big"): key for name, key in keys.items()}


def _day_name(day: int) -> bytes:
    return _DAY_LABEL + day.to_bytes(NAME_SIZE - len(_DAY_LABEL), "big")


def _forward(key: bytes, days: int) -> bytes:
    for _ in range(days):
        key = derive_key(key, b"next day")
    return key
