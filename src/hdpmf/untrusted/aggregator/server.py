"""The base class of leader and helper: tasks, batches, counts, garbage collection."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hdpmf.common.aggregation.two_servers.dap.messages import HpkeConfigList, PrepareError
from hdpmf.common.privacy.sampling import Noise
from hdpmf.errors import ConfigError, needs
from hdpmf.untrusted.aggregator.collection import BATCH_KEYS_FILE, Batches, closed_intervals
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
from hdpmf.untrusted.aggregator.hpke_keys import HpkeKeyRing
from hdpmf.untrusted.aggregator.partner_clock import PartnerClock
from hdpmf.untrusted.aggregator.sealing import BatchSeals
from hdpmf.untrusted.aggregator.tasks import (
    AggregatorTask,
    Rules,
    ServerKeys,
    ServerRole,
    TaskStore,
)

with needs("sqlalchemy"):
    import sqlalchemy as sa


@dataclass(frozen=True)
class TaskCounts:
    """Counts of a task's reports and closed batches."""

    waiting: int
    counted: int
    rejected: dict[PrepareError, int]
    batches: int


class Aggregator:
    """Base class of leader and helper.

    Attributes:
        partner_clock: The other server's clock.

    Args:
        keys: Its keys, and both cards.
        database: Its database.
        clock: Seconds since 1970.
        noise: Added to sums in a simulation; otherwise that of the server's noise key.
        state: Folder of its closed batches and keys, outside the database; None if that is in
            memory.
        rules: Conditions for tasks.
    """

    role: ClassVar[ServerRole]

    def __init__(
        self,
        keys: ServerKeys,
        database: ServerDatabase,
        *,
        clock: Callable[[], float] = time.time,
        noise: Noise | None = None,
        state: Path | None = None,
        rules: Rules | None = None,
    ) -> None:
        if keys.role != self.role:
            raise ConfigError(f"these keys are the {keys.role}'s")
        database.claim_role(keys.role)
        self._keys = keys
        self._database = database
        self._clock = clock
        self._rules = Rules() if rules is None else rules
        self.partner_clock = PartnerClock(clock, self._rules.partner_skew)
        self._task_store = TaskStore(database, keys, self._rules, clock)
        self._seals = BatchSeals(None if state is None else state / BATCH_KEYS_FILE)
        self._batches = Batches(database, keys, self._rules, self._seals, noise, state)
        self._seals.seal_old_rows(database)
        self._seals.erase_closed(database)

    def task(self, task_id: bytes) -> AggregatorTask:
        """Return a task that this server takes part in."""
        return self._task_store.get(task_id)

    def check_database(self) -> None:
        """Raise StorageError if the database is away."""
        with self._database.read() as connection:
            connection.execute(sa.select(sa.literal(1)))

    def task_ids(self) -> list[bytes]:
        """Return the ids of all tasks."""
        return self._task_store.ids()

    def counts(self, task_id: bytes) -> TaskCounts:
        """Return the counts of a task."""
        number = self._task_store.get(task_id).number
        by_state = (
            sa.select(reports.c.state, sa.func.count())
            .where(reports.c.task == number)
            .group_by(reports.c.state)
        )
        by_reason = sa.select(rejections.c.reason, rejections.c.amount).where(
            rejections.c.task == number
        )
        closed = sa.select(sa.func.count()).select_from(batches).where(batches.c.task == number)
        with self._database.read() as connection:
            states = {ReportState(state): n for state, n in connection.execute(by_state)}
            return TaskCounts(
                waiting=states.get(ReportState.STORED, 0) + states.get(ReportState.CLAIMED, 0),
                counted=states.get(ReportState.COUNTED, 0),
                rejected={PrepareError(why): n for why, n in connection.execute(by_reason)},
                batches=connection.execute(closed).scalar_one(),
            )

    def waiting(self) -> int:
        """Return the number of unchecked reports of all tasks; an index has just these."""
        unchecked = reports.c.state < ReportState.COUNTED
        with self._database.read() as connection:
            found = connection.execute(
                sa.select(sa.func.count()).select_from(reports).where(unchecked)
            )
            return int(found.scalar_one())

    def last_batch(self) -> int:
        """Return the end of the newest closed batch (Unix time); 0 if there is none."""
        newest = sa.select(sa.func.max(batches.c.start + batches.c.duration))
        with self._database.read() as connection:
            return int(connection.execute(newest).scalar() or 0)

    def rejected(self) -> dict[PrepareError, int]:
        """Return the number of rejected reports of all tasks, by reason."""
        amount = sa.func.sum(rejections.c.amount)
        with self._database.read() as connection:
            found = connection.execute(
                sa.select(rejections.c.reason, amount).group_by(rejections.c.reason)
            )
            return {PrepareError(reason): int(total) for reason, total in found}

    def now(self) -> float:
        """Return the time of its clock, seconds since 1970."""
        return self._clock()

    def collect_garbage(self) -> int:
        """Delete payloads, jobs and sums of expired tasks; return the number of these tasks.

        Report ids and closed batches stay. Keys that nothing needs any more are erased.
        """
        oldest = self._clock() - self._rules.keep
        old = sa.select(tasks.c.number, tasks.c.id).where(
            tasks.c.end <= oldest, tasks.c.purged.is_(False)
        )
        with self._database.read() as connection:
            found = [(row.number, row.id) for row in connection.execute(old)]
        for number, task_id in found:
            with self._database.write() as connection:
                lock_task(connection, number, alone=True)
                for table in (payloads, jobs, accumulators):
                    connection.execute(sa.delete(table).where(table.c.task == number))
                connection.execute(
                    sa.update(answers).where(answers.c.task == number), {"response": None}
                )
                lost = connection.execute(
                    sa.update(reports).where(
                        reports.c.task == number, reports.c.state < ReportState.COUNTED
                    ),
                    {"state": ReportState.REJECTED, "job": None},
                ).rowcount
                if lost:
                    self._database.add_rejections(
                        connection, number, int(PrepareError.TASK_EXPIRED), lost
                    )
                connection.execute(
                    sa.update(tasks).where(tasks.c.number == number), {"purged": True}
                )
            self._seals.erase(task_id)
        self._seals.erase_closed(self._database)
        self._batches.erase_noise_keys(oldest)
        if found:
            self._database.empty_log()
        self.rotate_keys()
        return len(found)

    def signed_keys(self) -> bytes:
        """Return the list of its HPKE keys, signed; empty if its card has the only one."""
        hpke = self._keys.hpke
        return hpke.signed_list(self._clock()) if isinstance(hpke, HpkeKeyRing) else b""

    def key_configs(self) -> bytes:
        """Return DAP's list of its public HPKE keys, newest first."""
        if isinstance(self._keys.hpke, HpkeKeyRing):
            return self._keys.hpke.config_list(self._clock())
        return HpkeConfigList((self._keys.hpke.config,)).encode()

    def rotate_keys(self) -> None:
        """Make a new HPKE key if it is time, and erase those that no open task needs."""
        if isinstance(self._keys.hpke, HpkeKeyRing):
            self._keys.hpke.maintain(self._clock(), self._has_open_task)

    def _has_open_task(self, begun: int) -> bool:
        """Return True if a task that had begun by this time is neither closed nor purged."""
        with self._database.read() as connection:
            for number in self._task_store.row_numbers(connection):
                task = self._task_store.by_number(number, connection)
                document = task.document
                closed = sum(  # closed batches do not overlap
                    min(batch.end, document.end) - max(batch.start, document.begin)
                    for batch in closed_intervals(connection, task)
                )
                if document.begin <= begun and closed < document.end - document.begin:
                    return True
        return False
