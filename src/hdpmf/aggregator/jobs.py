"""The leader's aggregation jobs in the database: claimed by one worker, written down, finished once."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hdpmf.aggregator.store import ServerDatabase, lock_task
from hdpmf.aggregator.sums import JobSums
from hdpmf.aggregator.tables import ReportState, jobs, payloads, reports
from hdpmf.aggregator.tasks import OpenTask, Rules, TaskBook
from hdpmf.dap import JOB_ID_SIZE
from hdpmf.transport.extras import needs

with needs("sqlalchemy"):
    import sqlalchemy as sa

_MOST_BYTES = 128 << 20
"""Of reports in one job: what a worker has in memory."""


@dataclass(frozen=True)
class Job:
    """Reports that one worker has claimed.

    Attributes:
        id: Under which the helper knows it.
        opened: Their task.
        bodies: Them, in the order of their ids.
        request: What the helper is asked, if it was written down.
    """

    id: bytes
    opened: OpenTask
    bodies: list[bytes] = field(repr=False)
    request: bytes | None = field(repr=False)


class Jobs:
    """Claims and finishes jobs. A job whose worker died is claimed again, after its lease."""

    def __init__(self, database: ServerDatabase, book: TaskBook, rules: Rules, clock: Callable[[], float]) -> None:
        self._database, self._book, self._rules, self._clock = database, book, rules, clock

    def claim(self, limit: int) -> Job | None:
        """A job that was left, or a new one of stored reports; None if there is nothing to do."""
        with self._database.write() as connection:
            found = self._left(connection) or self._new(connection, limit)
        if found is None:
            return None
        job, number, request = found
        opened = self._book.by_number(number)
        joined = sa.and_(payloads.c.task == reports.c.task, payloads.c.report == reports.c.id)
        members = sa.and_(reports.c.state == ReportState.CLAIMED, reports.c.job == job)
        bodies = sa.select(payloads.c.body).join_from(reports, payloads, joined).where(members).order_by(reports.c.id)
        with self._database.read() as connection:
            return Job(job, opened, list(connection.execute(bodies).scalars()), request)

    def write_request(self, job: Job, request: bytes) -> bytes:
        """Write down what the helper is asked, before it is; what was written first stays."""
        here = jobs.c.id == job.id
        with self._database.write() as connection:
            connection.execute(sa.update(jobs).where(sa.and_(here, jobs.c.request.is_(None))), {"request": request})
            found: bytes | None = connection.execute(sa.select(jobs.c.request).where(here)).scalar()
        return request if found is None else found  # None: another worker has finished it

    def release(self, job: Job) -> None:
        """Let another worker try at once."""
        with self._database.write() as connection:
            connection.execute(sa.update(jobs).where(jobs.c.id == job.id), {"lease": 0.0})

    def release_all(self) -> None:
        """Whoever had a job is gone: only for the one process of a server, when it starts."""
        with self._database.write() as connection:
            connection.execute(sa.update(jobs), {"lease": 0.0})

    def finish(self, job: Job, sums: JobSums, counted: Iterable[bytes], rejected: Iterable[bytes]) -> bool:
        """Add the sums, mark the reports and drop what they said: all at once, and only once.

        Returns:
            Whether it was this worker that finished the job.
        """
        number = job.opened.number
        marks = [
            {"report": report, "state_": state}
            for state, ids in ((ReportState.COUNTED, counted), (ReportState.REJECTED, rejected))
            for report in ids
        ]
        with self._database.write() as connection:
            lock_task(connection, number)
            if connection.execute(sa.delete(jobs).where(jobs.c.id == job.id)).rowcount != 1:
                return False
            sums.write(connection, self._database)
            here = sa.and_(reports.c.task == number, reports.c.id == sa.bindparam("report"))
            done = sa.update(reports).where(here).values(state=sa.bindparam("state_"), job=None)
            connection.execute(done, marks)
            spent = [mark["report"] for mark in marks]
            gone = sa.and_(payloads.c.task == number, payloads.c.report.in_(spent))
            connection.execute(sa.delete(payloads).where(gone))
        return True

    def _left(self, connection: sa.Connection) -> tuple[bytes, int, bytes | None] | None:
        now = self._clock()
        over = sa.select(jobs).where(jobs.c.lease <= now).order_by(jobs.c.lease).limit(1)
        row = connection.execute(over.with_for_update(skip_locked=True)).one_or_none()
        if row is None:
            return None
        connection.execute(sa.update(jobs).where(jobs.c.id == row.id), {"lease": now + self._rules.lease})
        return row.id, row.task, row.request

    def _new(self, connection: sa.Connection, limit: int) -> tuple[bytes, int, None] | None:
        stored = reports.c.state == ReportState.STORED
        for number in self._book.row_numbers(connection):
            size = self._book.by_number(number, connection).report_size
            most = max(1, min(limit, _MOST_BYTES // size))
            free = sa.select(reports.c.id).where(sa.and_(reports.c.task == number, stored)).limit(most)
            ids = list(connection.execute(free.with_for_update(skip_locked=True)).scalars())
            if ids:
                break
        else:
            return None
        job = secrets.token_bytes(JOB_ID_SIZE)
        row = {"id": job, "task": number, "lease": self._clock() + self._rules.lease, "request": None}
        connection.execute(jobs.insert(), row)
        claimed = sa.update(reports).where(sa.and_(reports.c.task == number, reports.c.id.in_(ids)))
        connection.execute(claimed, {"state": ReportState.CLAIMED, "job": job})
        return job, number, None
