"""The base class of leader and helper: tasks, clocks, counts, garbage collection."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hdpmf.common.aggregation.two_servers.dap.messages import ReportError
from hdpmf.common.aggregation.two_servers.prio import compile_kernels
from hdpmf.common.base.logs import event
from hdpmf.common.privacy.sampling import Noise
from hdpmf.common.protocol.documents import from_base64
from hdpmf.common.protocol.key_list import read_key_list
from hdpmf.errors import ConfigError, DapError, needs
from hdpmf.untrusted.aggregator.collection import NOISE_KEY_FILE, Batches, closed_intervals
from hdpmf.untrusted.aggregator.datastore import (
    ReportState,
    ServerDatabase,
    batches,
    rejections,
    reports,
    server,
    tasks,
)
from hdpmf.untrusted.aggregator.sealing import BATCH_KEYS_FILE, BatchSeals, KeyFile
from hdpmf.untrusted.aggregator.tasks import (
    AggregatorTask,
    Rules,
    ServerKeys,
    ServerRole,
    TaskStore,
)

with needs("sqlalchemy"):
    import sqlalchemy as sa


_DELETED_AT_ONCE = 10_000

EPOCH_PATH = "/epoch"
EPOCH_MEDIA_TYPE = "text/plain"
EPOCH_SIZE = 16


def read_epoch(body: bytes) -> int:
    """Return an epoch as it travels: a number in decimals; raise DapError for anything else."""
    if not (body.isdigit() and len(body) <= EPOCH_SIZE):
        raise DapError("an epoch is a number")
    return int(body)


class PartnerClock:
    """The other server's clock, as far as it is known.

    Which reports are too early, and when a batch is over, is a question of time. Where two servers
    answer it differently, reports that one of them has confirmed are rejected by the other, or a
    batch is closed before people have reported. So clocks are compared before a report is taken, by
    the ``Date`` header of HTTP: the leader asks the helper now and then, and its requests say its
    own time.

    Between two comparisons it goes on by the machine's monotonic clock, so that a jump of this
    server's own clock is seen at once, also while the other server is away.

    Args:
        clock: This server's, seconds since 1970.
        tolerance: Seconds by which the two may differ.
        monotonic: Seconds since any moment, which nobody sets.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        tolerance: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._tolerance = tolerance
        self._monotonic = monotonic
        self._guard = threading.Lock()
        self._ahead: float | None = None  # of the monotonic clock
        self._heard = 0.0

    def compare(self, theirs: float) -> None:
        """Take note of the other server's time, which is theirs now."""
        with self._guard:
            self._heard = self._monotonic()
            self._ahead = theirs - self._heard

    @property
    def skew(self) -> float | None:
        """Seconds by which the other clock is ahead; None before the first comparison."""
        with self._guard:
            ahead = self._ahead
        return None if ahead is None else ahead + self._monotonic() - self._clock()

    @property
    def differs(self) -> bool:
        """True if the clocks are known to differ by more than they may."""
        skew = self.skew
        return skew is not None and abs(skew) > self._tolerance

    def heard_within(self, seconds: float) -> bool:
        """Return True if the other server was heard of so recently."""
        with self._guard:
            return self._ahead is not None and self._monotonic() - self._heard <= seconds

    def earlier(self) -> float:
        """Return the time of the clock that is behind."""
        return self._clock() + min(self.skew or 0.0, 0.0)


@dataclass(frozen=True)
class TaskCounts:
    """Counts of a task's reports and closed batches."""

    waiting: int
    counted: int
    rejected: dict[ReportError, int]
    batches: int


class Aggregator:
    """Base class of leader and helper.

    Attributes:
        partner_clock: The other server's clock.

    Args:
        keys: Its keys, and both cards.
        database: Its database.
        state: Folder of its keys, outside the database.
        clock: Seconds since 1970.
        noise: Added to sums in a simulation; otherwise that of the server's noise key.
        rules: Conditions for tasks.
    """

    role: ClassVar[ServerRole]

    def __init__(
        self,
        keys: ServerKeys,
        database: ServerDatabase,
        state: Path,
        *,
        clock: Callable[[], float] = time.time,
        noise: Noise | None = None,
        rules: Rules | None = None,
    ) -> None:
        if keys.role != self.role:
            raise ConfigError(f"these keys are the {keys.role}'s")
        compile_kernels()
        database.claim_role(keys.role)
        self._keys = keys
        self._database = database
        self._clock = clock
        self._rules = Rules() if rules is None else rules
        self.partner_clock = PartnerClock(clock, self._rules.partner_skew)
        self._task_store = TaskStore(database, keys, self._rules, clock)
        self._seals = BatchSeals(KeyFile(state / BATCH_KEYS_FILE))
        noise_key = KeyFile(state / NOISE_KEY_FILE)
        self._batches = Batches(database, keys, self._rules, self._seals, noise_key, noise)
        self._seals.erase_closed(database)

    def add_task(self, document: bytes) -> bytes:
        """Add a task and return its id; raise ProtocolError if it is refused. Idempotent."""
        return self._task_store.add(document)

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
        released = sa.func.coalesce(sa.func.sum(batches.c.amount), 0)
        closed = sa.select(sa.func.count(), released).where(batches.c.task == number)
        with self._database.read() as connection:
            states = {ReportState(state): n for state, n in connection.execute(by_state)}
            n_batches, n_released = connection.execute(closed).one()
            return TaskCounts(
                waiting=states.get(ReportState.STORED, 0) + states.get(ReportState.CLAIMED, 0),
                # Ids are deleted in the end; until a batch is closed there are no other numbers.
                counted=max(states.get(ReportState.COUNTED, 0), int(n_released)),
                rejected={ReportError(why): n for why, n in connection.execute(by_reason)},
                batches=n_batches,
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

    def rejected(self) -> dict[ReportError, int]:
        """Return the number of rejected reports of all tasks, by reason."""
        amount = sa.func.sum(rejections.c.amount)
        with self._database.read() as connection:
            found = connection.execute(
                sa.select(rejections.c.reason, amount).group_by(rejections.c.reason)
            )
            return {ReportError(reason): int(total) for reason, total in found}

    @property
    def epoch(self) -> int:
        """The epoch of its database."""
        with self._database.read() as connection:
            return int(connection.execute(sa.select(server.c.epoch)).scalar_one())

    def begin_epoch(self) -> int:
        """Begin a new epoch and end all open tasks; return their number."""
        with self._database.write() as connection:
            self._database.begin_epoch(connection)
            ended = self._end_tasks(connection)
        self._seals.erase_closed(self._database)
        return ended

    def meet(self, theirs: int) -> int:
        """Take note of the other server's epoch, and return this one's.

        Tasks belong to a pair of epochs: a new one of either server ends all that are open.
        """
        with self._database.read() as connection:
            now = connection.execute(sa.select(server)).one()
        if now.partner_epoch != theirs:
            with self._database.write() as connection:
                known = sa.select(server.c.partner_epoch).with_for_update()
                if connection.execute(known).scalar() not in (None, theirs):
                    event(
                        "partner-began-an-epoch",
                        logging.WARNING,
                        ended=self._end_tasks(connection),
                    )
                connection.execute(sa.update(server), {"partner_epoch": theirs})
            self._seals.erase_closed(self._database)
        return int(now.epoch)

    def _end_tasks(self, connection: sa.Connection) -> int:
        numbers = self._task_store.row_numbers(connection)
        for number in numbers:
            self._task_store.purge(connection, number)
        return len(numbers)

    def now(self) -> float:
        """Return the time of its clock, seconds since 1970."""
        return self._clock()

    def collect_garbage(self) -> int:
        """Delete what expired tasks have left; return the number of these tasks.

        Who reported, the ids of reports and the shares of sums go. What stays of a task is that it
        is over, so that nothing of it is taken again whatever the clock says, which intervals were
        closed, and how many reports were counted and rejected. Keys that nothing needs any more are
        erased.
        """
        oldest = self._clock() - self._rules.keep
        old = sa.select(tasks.c.number, tasks.c.id).where(
            tasks.c.end <= oldest, tasks.c.purged.is_(False)
        )
        with self._database.read() as connection:
            found = [(row.number, row.id) for row in connection.execute(old)]
        for number, task_id in found:
            with self._database.write() as connection:
                self._task_store.purge(connection, number)
            self._seals.erase(task_id)
        deleted = self._delete_ids()
        self._seals.erase_closed(self._database)
        self._batches.erase_noise_keys(oldest)
        if found or deleted:
            self._database.empty_log()
        self.rotate_keys()
        return len(found)

    def _delete_ids(self) -> int:
        """Delete report ids of purged tasks, in steps: others write in between."""
        deleted = 0
        left = sa.exists().where(reports.c.task == tasks.c.number)
        with self._database.read() as connection:
            numbers = connection.execute(
                sa.select(tasks.c.number).where(tasks.c.purged, left)
            ).scalars()
            purged = list(numbers)
        for number in purged:
            here = reports.c.task == number
            some = sa.select(reports.c.id).where(here).limit(_DELETED_AT_ONCE)
            step = -1
            while step:
                with self._database.write() as connection:
                    gone = sa.delete(reports).where(here, reports.c.id.in_(some))
                    step = connection.execute(gone).rowcount
                deleted += step
        return deleted

    def keys(self) -> bytes:
        """Return its HPKE keys, an encoded ``HpkeConfigList``."""
        return from_base64(read_key_list(self.signed_keys(), self._keys.own).configs)

    def signed_keys(self) -> bytes:
        """Return the list of its HPKE keys, signed."""
        return self._keys.hpke.signed_list(self._clock())

    def rotate_keys(self) -> None:
        """Make a new HPKE key if it is time, and erase those that no open task needs."""
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
