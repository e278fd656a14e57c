"""Counts of reports, and deletion of what expired tasks left in the database."""

from __future__ import annotations

from dataclasses import dataclass

from hdpmf.common.aggregation.two_servers.dap import PrepareError
from hdpmf.common.net.extras import needs
from hdpmf.untrusted.aggregator.datastore import (
    ReportState,
    ServerDatabase,
    accumulators,
    answers,
    batches,
    jobs,
    lock_task,
    payloads,
    rejections,
    reports,
    tasks,
)
from hdpmf.untrusted.aggregator.tasks import OpenTask

with needs("sqlalchemy"):
    import sqlalchemy as sa


@dataclass(frozen=True)
class TaskCounts:
    """Counts of a task's reports and batches.

    Attributes:
        waiting: Reports that are not checked yet.
        counted: Reports in sums.
        rejected: Others, by reason.
        batches: Closed ones.
    """

    waiting: int
    counted: int
    rejected: dict[PrepareError, int]
    batches: int


def count(database: ServerDatabase, opened: OpenTask) -> TaskCounts:
    """Counts of a task's reports and batches."""
    number = opened.number
    with database.read() as connection:
        by_state = (
            sa.select(reports.c.state, sa.func.count())
            .where(reports.c.task == number)
            .group_by(reports.c.state)
        )
        states = {ReportState(state): found for state, found in connection.execute(by_state)}
        reasons = sa.select(rejections.c.reason, rejections.c.amount).where(
            rejections.c.task == number
        )
        rejected = {PrepareError(reason): found for reason, found in connection.execute(reasons)}
        closed = sa.select(sa.func.count()).select_from(batches).where(batches.c.task == number)
        return TaskCounts(
            waiting=states.get(ReportState.STORED, 0) + states.get(ReportState.CLAIMED, 0),
            counted=states.get(ReportState.COUNTED, 0),
            rejected=rejected,
            batches=connection.execute(closed).scalar_one(),
        )


def waiting(database: ServerDatabase) -> int:
    """Return the number of unchecked reports of all tasks An index has just these."""
    here = (
        sa.select(sa.func.count()).select_from(reports).where(reports.c.state < ReportState.COUNTED)
    )
    with database.read() as connection:
        return int(connection.execute(here).scalar_one())


def purge(database: ServerDatabase, before: float) -> int:
    """Delete payloads, jobs and sums of tasks that ended before; report ids and closed batches
    stay.
    """
    over = sa.and_(tasks.c.end <= before, tasks.c.purged.is_(False))
    with database.read() as connection:
        numbers = list(connection.execute(sa.select(tasks.c.number).where(over)).scalars())
    for number in numbers:
        with database.write() as connection:
            lock_task(connection, number, alone=True)
            for table in (payloads, jobs, accumulators):
                connection.execute(sa.delete(table).where(table.c.task == number))
            connection.execute(
                sa.update(answers).where(answers.c.task == number), {"response": None}
            )
            waiting = sa.and_(reports.c.task == number, reports.c.state < ReportState.COUNTED)
            lost = connection.execute(
                sa.update(reports).where(waiting), {"state": ReportState.REJECTED, "job": None}
            ).rowcount
            if lost:
                made = database.insert(rejections)
                more = made.on_conflict_do_update(
                    index_elements=[rejections.c.task, rejections.c.reason],
                    set_={"amount": rejections.c.amount + made.excluded.amount},
                )
                row = {"task": number, "reason": int(PrepareError.TASK_EXPIRED), "amount": lost}
                connection.execute(more, row)
            connection.execute(sa.update(tasks).where(tasks.c.number == number), {"purged": True})
    return len(numbers)
