"""Aggregation jobs: preparation of report shares, accumulation, and jobs in the database.

A job is claimed by one worker, with its reports, and finished once. Its request to the helper is a
function of its reports: whoever takes over a job makes the same bytes, and the helper knows them.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from hdpmf.common.aggregation.two_servers.dap.hpke import input_share_info
from hdpmf.common.aggregation.two_servers.dap.messages import (
    CHECKSUM_SIZE,
    JOB_ID_SIZE,
    HpkeCiphertext,
    InputShareAad,
    PlaintextInputShare,
    ReportError,
    ReportMetadata,
    ReportRefusedError,
)
from hdpmf.common.aggregation.two_servers.prio import Preparation
from hdpmf.errors import DapError, PrioError, needs
from hdpmf.untrusted.aggregator.datastore import (
    ReportState,
    ServerDatabase,
    accumulators,
    jobs,
    lock_task,
    payloads,
    reports,
)
from hdpmf.untrusted.aggregator.sealing import BatchSeals
from hdpmf.untrusted.aggregator.tasks import AggregatorTask, Rules, ServerKeys, TaskStore

with needs("sqlalchemy"):
    import sqlalchemy as sa


def prepare_share(
    keys: ServerKeys,
    task: AggregatorTask,
    metadata: ReportMetadata,
    public_share: bytes,
    encrypted: HpkeCiphertext,
) -> tuple[Preparation, bytes] | ReportError:
    """Decrypt and prepare a report share; return state and message, or the reason to reject it."""
    aad = InputShareAad(task.id, task.configuration, metadata, public_share).encode()
    try:
        plain = keys.hpke.open(encrypted, input_share_info(keys.dap_role), aad)
    except ReportRefusedError as error:
        return error.reason
    try:
        share = PlaintextInputShare.decode(plain)
    except DapError:
        return ReportError.INVALID_MESSAGE
    try:
        return task.prio.prepare(
            task.key, keys.index, metadata.report_id, public_share, share.payload
        )
    except PrioError:
        return ReportError.VDAF_VERIFY_ERROR


@dataclass
class _Bucket:
    total: np.ndarray = field(repr=False)
    count: int = 0
    checksum: int = 0


class Accumulator:
    """Sums of one job by time bucket, and counts of rejected reports by reason."""

    def __init__(self, task: AggregatorTask) -> None:
        self._task = task
        self._buckets: dict[int, _Bucket] = {}
        self._rejected: dict[ReportError, int] = {}

    def add(self, report_id: bytes, time: int, output: np.ndarray) -> None:
        """Count a report."""
        field_ = self._task.prio.field
        bucket = self._buckets.get(time)
        if bucket is None:
            zeros = np.zeros(self._task.prio.circuit.output_length, field_.dtype)
            bucket = self._buckets[time] = _Bucket(zeros)
        bucket.total = field_.add(bucket.total, output)
        bucket.count += 1
        bucket.checksum ^= int.from_bytes(hashlib.sha256(report_id).digest(), "big")

    def reject(self, reason: ReportError) -> None:
        """Count a rejected report."""
        self._rejected[reason] = self._rejected.get(reason, 0) + 1

    @property
    def counted(self) -> int:
        """Number of reports in the sums."""
        return sum(bucket.count for bucket in self._buckets.values())

    def write(self, connection: sa.Connection, database: ServerDatabase, seals: BatchSeals) -> None:
        """Add it to the database, within the caller's transaction."""
        shard = secrets.randbelow(database.shards)
        # In one order, so that no two workers wait for each other.
        for time in sorted(self._buckets):
            self._write_bucket(connection, database, seals, time, shard)
        for reason, amount in sorted(self._rejected.items()):
            database.add_rejections(connection, self._task.number, int(reason), amount)

    def _write_bucket(
        self,
        connection: sa.Connection,
        database: ServerDatabase,
        seals: BatchSeals,
        time: int,
        shard: int,
    ) -> None:
        prio = self._task.prio
        bucket = self._buckets[time]
        key = {"task": self._task.number, "bucket": time, "shard": shard}
        empty = {"amount": 0, "checksum": bytes(CHECKSUM_SIZE), "total": b""}
        connection.execute(database.insert(accumulators).on_conflict_do_nothing(), key | empty)
        here = sa.and_(*(accumulators.c[name] == value for name, value in key.items()))
        row = connection.execute(sa.select(accumulators).where(here).with_for_update()).one()
        total = bucket.total
        if row.total:
            before = seals.open_total(self._task.id, time, shard, row.total)
            total = prio.field.add(total, prio.field.decode(before, prio.circuit.output_length))
        checksum = (bucket.checksum ^ int.from_bytes(row.checksum, "big")).to_bytes(
            CHECKSUM_SIZE, "big"
        )
        connection.execute(
            sa.update(accumulators).where(here),
            {
                "amount": row.amount + bucket.count,
                "checksum": checksum,
                "total": seals.seal_total(self._task.id, time, shard, prio.field.encode(total)),
            },
        )


_MOST_BYTES = 128 << 20  # no mutant: memory against time
"""Of reports in one job: what a worker has in memory."""

_READ_AT_ONCE = 16  # no mutant: memory against time

_EARLY_SECONDS = 60.0


@dataclass(frozen=True)
class AggregationJob:
    """Reports that one worker has claimed.

    Attributes:
        members: Ids and buckets of its reports, by id.
    """

    id: bytes
    task: AggregatorTask
    members: list[tuple[bytes, int]] = field(repr=False)


class AggregationJobs:
    """Claims and finishes jobs. A job whose worker died is claimed again after its lease."""

    def __init__(
        self,
        database: ServerDatabase,
        task_store: TaskStore,
        seals: BatchSeals,
        rules: Rules,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._task_store = task_store
        self._seals = seals
        self._rules = rules
        self._clock = clock
        self._later: dict[int, float] = {}  # tasks with reports that are too early, until when

    def claim(self, limit: int) -> AggregationJob | None:
        """Claim an abandoned job, or a new one of stored reports; None if there is none."""
        with self._database.write() as connection:
            found = self._left(connection) or self._new(connection, limit)
        if found is None:
            return None
        job, number = found
        members = sa.and_(reports.c.state == ReportState.CLAIMED, reports.c.job == job)
        listed = sa.select(reports.c.id, reports.c.bucket).where(members).order_by(reports.c.id)
        with self._database.read() as connection:
            task = self._task_store.by_number(number, connection)
            return AggregationJob(job, task, [(i, at) for i, at in connection.execute(listed)])

    def bodies(self, job: AggregationJob) -> Iterator[tuple[bytes, bytes | None]]:
        """Read the reports of a job, by id; None for one whose key is gone: nobody can open it.

        A few are in memory at once. A join that sorts would write all of them to a file first.
        """
        for start in range(0, len(job.members), _READ_AT_ONCE):
            buckets = dict(job.members[start : start + _READ_AT_ONCE])
            here = sa.and_(payloads.c.task == job.task.number, payloads.c.report.in_(buckets))
            sealed = sa.select(payloads.c.report, payloads.c.body).where(here)
            with self._database.read() as connection:
                rows = [
                    (report_id, buckets[report_id], body)
                    for report_id, body in connection.execute(sealed.order_by(payloads.c.report))
                ]
            opened = self._seals.open_reports(job.task.id, rows)
            yield from zip((report_id for report_id, _, _ in rows), opened, strict=True)

    def release(self, job: AggregationJob) -> None:
        """End the lease, so that another worker can try at once."""
        with self._database.write() as connection:
            connection.execute(sa.update(jobs).where(jobs.c.id == job.id), {"lease": 0.0})

    def release_all(self) -> None:
        """End all leases: only for a server with one process, when it starts."""
        with self._database.write() as connection:
            connection.execute(sa.update(jobs), {"lease": 0.0})

    def finish(
        self,
        job: AggregationJob,
        sums: Accumulator,
        counted: Iterable[bytes],
        rejected: Iterable[bytes],
        early: Sequence[bytes] = (),
    ) -> bool:
        """Add the sums and delete the payloads, once; return True if this worker did it.

        Reports that are too ``early`` stay as they were, for another job, a minute later.
        """
        number = job.task.number
        if early:
            self._later[number] = self._clock() + _EARLY_SECONDS
        changes = [
            {"report": report, "state_": state}
            for state, ids in ((ReportState.COUNTED, counted), (ReportState.REJECTED, rejected))
            for report in ids
        ]
        with self._database.write() as connection:
            lock_task(connection, number)
            if connection.execute(sa.delete(jobs).where(jobs.c.id == job.id)).rowcount != 1:
                return False
            sums.write(connection, self._database, self._seals)
            here = sa.and_(reports.c.task == number, reports.c.id == sa.bindparam("report"))
            done = sa.update(reports).where(here).values(state=sa.bindparam("state_"), job=None)
            again = [{"report": report, "state_": ReportState.STORED} for report in early]
            connection.execute(done, changes + again)
            spent = [change["report"] for change in changes]
            gone = sa.and_(payloads.c.task == number, payloads.c.report.in_(spent))
            self._database.delete_sealed(connection, sa.delete(payloads).where(gone))
        return True

    def _left(self, connection: sa.Connection) -> tuple[bytes, int] | None:
        now = self._clock()
        over = sa.select(jobs).where(jobs.c.lease <= now).order_by(jobs.c.lease).limit(1)
        row = connection.execute(over.with_for_update(skip_locked=True)).one_or_none()
        if row is None:
            return None
        connection.execute(
            sa.update(jobs).where(jobs.c.id == row.id), {"lease": now + self._rules.lease}
        )
        return row.id, row.task

    def _new(self, connection: sa.Connection, limit: int) -> tuple[bytes, int] | None:
        stored = reports.c.state == ReportState.STORED
        for number in self._task_store.row_numbers(connection):
            if self._later.get(number, 0.0) > self._clock():
                continue
            size = self._task_store.by_number(number, connection).report_size
            most = max(1, min(limit, _MOST_BYTES // size))
            free = (
                sa.select(reports.c.id).where(sa.and_(reports.c.task == number, stored)).limit(most)
            )
            ids = list(connection.execute(free.with_for_update(skip_locked=True)).scalars())
            if ids:
                break
        else:
            return None
        job = secrets.token_bytes(JOB_ID_SIZE)
        row = {"id": job, "task": number, "lease": self._clock() + self._rules.lease}
        connection.execute(jobs.insert(), row)
        claimed = sa.update(reports).where(sa.and_(reports.c.task == number, reports.c.id.in_(ids)))
        connection.execute(claimed, {"state": ReportState.CLAIMED, "job": job})
        return job, number
