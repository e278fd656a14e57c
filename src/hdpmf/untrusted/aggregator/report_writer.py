"""Uploaded reports: cheap checks first, then one commit for many of them."""

import asyncio
import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from hdpmf.common.aggregation.two_servers.dap.messages import (
    Interval,
    Problem,
    Report,
    ReportError,
    ReportRefusedError,
)
from hdpmf.common.aggregation.two_servers.tokens import Token
from hdpmf.common.base.logs import event
from hdpmf.errors import DapError, HdpmfError, StorageError, needs
from hdpmf.untrusted.aggregator.collection import closed_intervals
from hdpmf.untrusted.aggregator.datastore import (
    ReportState,
    ServerDatabase,
    lock_task,
    payloads,
    reports,
)
from hdpmf.untrusted.aggregator.sealing import BatchSeals
from hdpmf.untrusted.aggregator.tasks import AggregatorTask, Rules, TaskStore

with needs("sqlalchemy"):
    import sqlalchemy as sa


@dataclass(frozen=True)
class Upload:
    """An uploaded report.

    Attributes:
        report: Encoded.
        token: In tasks for enrolled devices.
    """

    task_id: bytes
    report: bytes = field(repr=False)
    token: Token | None = field(default=None, repr=False)


@dataclass(frozen=True)
class _Checked:
    """An upload that may be stored; ``readable`` if both servers have the keys that open it."""

    task: AggregatorTask
    upload: Upload
    report_id: bytes
    time: int
    digest: bytes
    readable: bool


class Uploads:
    """Checks uploads and stores them.

    ``knows_key`` and ``helper_knows_key`` return True if the server has a key of an id.
    """

    def __init__(
        self,
        database: ServerDatabase,
        task_store: TaskStore,
        seals: BatchSeals,
        rules: Rules,
        clock: Callable[[], float],
        *,
        knows_key: Callable[[int], bool],
        helper_knows_key: Callable[[int], bool],
    ) -> None:
        self._knows_key = knows_key
        self._helper_knows_key = helper_knows_key
        self._database = database
        self._task_store = task_store
        self._seals = seals
        self._rules = rules
        self._clock = clock

    def take(self, uploads: Sequence[Upload]) -> list[DapError | None]:
        """Store reports with one commit; return for each None or the reason it was refused."""
        results: list[DapError | None] = [None] * len(uploads)
        by_task: dict[int, list[tuple[int, _Checked]]] = {}
        for index, upload in enumerate(uploads):
            try:
                checked = self._check(upload)
            except DapError as error:
                results[index] = error
            else:
                by_task.setdefault(checked.task.number, []).append((index, checked))
        if by_task:
            with self._database.write() as connection:
                for number in sorted(by_task):
                    self._store(connection, by_task[number], results)
        return results

    def _check(self, upload: Upload) -> _Checked:
        """Check all that needs no database, the length first."""
        task = self._task_store.get(upload.task_id)
        if len(upload.report) != task.report_size:
            raise DapError(
                f"a report of this task has {task.report_size} bytes, not {len(upload.report)}"
            )
        report = Report.decode(upload.report)
        if len(report.public_share) != task.public_share_size:
            raise DapError("the parts of the report do not have the sizes of this task")
        time = report.report_metadata.time * task.document.precision
        if not task.document.begin <= time < task.document.end:
            raise _rejected("its time is not within the task", ReportError.REPORT_DROPPED)
        if time > self._clock() + self._rules.skew:
            raise _rejected("it is from the future; set the clock", ReportError.REPORT_TOO_EARLY)
        if self._task_store.expired(task):
            raise _over()
        digest = hashlib.sha256(upload.report).digest()
        if task.document.token_key:
            _check_token(task, upload.token, report.report_metadata.report_id)
        elif upload.token is not None:
            raise DapError("this task takes reports without a token; do not send one")
        readable = self._knows_key(
            report.leader_encrypted_input_share.config_id
        ) and self._helper_knows_key(report.helper_encrypted_input_share.config_id)
        return _Checked(task, upload, report.report_metadata.report_id, time, digest, readable)

    def _store(
        self,
        connection: sa.Connection,
        given: list[tuple[int, _Checked]],
        results: list[DapError | None],
    ) -> None:
        task = given[0][1].task
        if not lock_task(connection, task.number):
            for index, _ in given:
                results[index] = _over()
            return
        closed = closed_intervals(connection, task)
        known = _digests(connection, task, {checked.report_id for _, checked in given})
        fresh: dict[bytes, list[tuple[int, _Checked]]] = {}
        for index, checked in given:
            before = known.get(checked.report_id)
            if before is None:
                results[index] = _refusal(checked, closed)
                if results[index] is None:
                    known[checked.report_id] = checked.digest
                    fresh[checked.report_id] = [(index, checked)]
            elif before != checked.digest:
                results[index] = _same_id()
            elif checked.report_id in fresh:
                fresh[checked.report_id].append((index, checked))
        if fresh:
            self._insert(connection, task, fresh, results)

    def _insert(
        self,
        connection: sa.Connection,
        task: AggregatorTask,
        fresh: dict[bytes, list[tuple[int, _Checked]]],
        results: list[DapError | None],
    ) -> None:
        first = [copies[0][1] for _, copies in sorted(fresh.items())]
        rows = [
            {
                "task": task.number,
                "id": checked.report_id,
                "bucket": checked.time,
                "state": ReportState.STORED,
                "digest": checked.digest,
                "job": None,
            }
            for checked in first
        ]
        made = self._database.insert(reports).on_conflict_do_nothing().returning(reports.c.id)
        written = set(connection.execute(made, rows).scalars())
        stored = [checked for checked in first if checked.report_id in written]
        # Another worker may have stored some of them meanwhile.
        for report_id, digest in _digests(connection, task, fresh.keys() - written).items():
            for index, checked in fresh[report_id]:
                results[index] = None if checked.digest == digest else _same_id()
        if not stored:
            return
        sealed = self._seals.seal_reports(
            task.id,
            [(checked.report_id, checked.time, checked.upload.report) for checked in stored],
        )
        bodies = [
            {"task": task.number, "report": checked.report_id, "body": body}
            for checked, body in zip(stored, sealed, strict=True)
        ]
        connection.execute(payloads.insert(), bodies)


def _digests(
    connection: sa.Connection, task: AggregatorTask, ids: Set[bytes]
) -> dict[bytes, bytes]:
    """Return the digests of the reports that are already stored, by id."""
    if not ids:
        return {}
    here = sa.and_(reports.c.task == task.number, reports.c.id.in_(ids))
    return {
        row.id: row.digest
        for row in connection.execute(sa.select(reports.c.id, reports.c.digest).where(here))
    }


def _refusal(checked: _Checked, closed: list[Interval]) -> DapError | None:
    """Return the reason to refuse a new report, or None."""
    if any(checked.time in interval for interval in closed):
        return _rejected("its batch is collected", ReportError.BATCH_COLLECTED)
    if not checked.readable:
        return _rejected("its key is not in use; ask for the keys", ReportError.OUTDATED_CONFIG)
    return None


def _check_token(task: AggregatorTask, token: Token | None, report_id: bytes) -> None:
    """Raise DapError unless the recommender has signed a token for a report of this id.

    Ids count once in a task, so that the token does, too: nothing else of it is kept.
    """
    key = task.token_key
    if token is None or token.challenge != task.token_challenge or not key.holds(token):
        raise DapError(
            "reports to this task come with a token of the recommender's for it",
            Problem.UNAUTHORIZED_REQUEST,
        )
    if token.report_id != report_id:
        raise DapError("the token is for another report", Problem.UNAUTHORIZED_REQUEST)


def _rejected(why: str, reason: ReportError) -> DapError:
    return ReportRefusedError(f"the report was refused: {why}", reason)


def _same_id() -> DapError:
    return _rejected("another report has the same id", ReportError.REPORT_REPLAYED)


def _over() -> DapError:
    return _rejected("the task is over", ReportError.TASK_EXPIRED)


GROUP_REPORTS = 64
"""Reports of a group, at most."""

GROUP_BYTES = 16 << 20

_GATHER_SECONDS = 0.02  # for reports that are under way: a commit costs the same for many


Writer = Callable[[Sequence[Upload]], Sequence[HdpmfError | None]]


class ReportWriter:
    """A queue of uploads, and the thread that commits them in groups.

    Args:
        write: Commits a group; returns for each report None or the reason to refuse it.
        room: Uploads that may wait.
        written: Called after each group with how many are stored, by the thread.
    """

    def __init__(
        self,
        write: Writer,
        room: int,
        written: Callable[[int], None] = lambda stored: None,
    ) -> None:
        self._write = write
        self._room = room
        self._written = written
        self._waiting: deque[tuple[Upload, asyncio.Future[HdpmfError | None]]] = deque()
        self._some = threading.Condition()
        self._open = True
        self._expected = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)

    def start(self) -> None:
        """Start the thread; call this on the event loop that calls ``put``."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def expected(self) -> int:
        """Reports that are being read or written."""
        return self._expected

    def reserve(self) -> bool:
        """Reserve room for a report before reading it, until ``release``; False if none is left."""
        if not self._open or self._expected >= self._room:
            return False
        self._expected += 1
        return True

    def release(self) -> None:
        """Give back a reservation."""
        self._expected -= 1

    async def put(self, upload: Upload) -> None:
        """Queue a report and return when it is on the disk; raise HdpmfError if it is refused."""
        if self._loop is None:
            raise StorageError("the server is not writing yet")
        future: asyncio.Future[HdpmfError | None] = self._loop.create_future()
        with self._some:
            if not self._open:
                raise StorageError("the server is stopping; send the report again later")
            self._waiting.append((upload, future))
            if len(self._waiting) == 1 or self._gathered:
                self._some.notify()
        refused = await future
        if refused is not None:
            raise refused

    async def stop(self) -> None:
        """Write what is queued, then end the thread."""
        with self._some:
            self._open = False
            self._some.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    @property
    def _gathered(self) -> bool:
        """True if all reports that are under way wait, or enough for a group."""
        return len(self._waiting) >= min(self._expected, GROUP_REPORTS)

    def _run(self) -> None:
        while group := self._next():
            results = self._outcome([upload for upload, _ in group])
            if self._loop is not None:
                self._loop.call_soon_threadsafe(
                    _set_results, [future for _, future in group], results
                )
            self._written(sum(refused is None for refused in results))

    def _next(self) -> list[tuple[Upload, asyncio.Future[HdpmfError | None]]]:
        """Return the next group; empty at the end."""
        with self._some:
            while not self._waiting and self._open:
                self._some.wait()
            if self._open and not self._gathered:
                self._some.wait(_GATHER_SECONDS)
            group: list[tuple[Upload, asyncio.Future[HdpmfError | None]]] = []
            size = 0
            while self._waiting and len(group) < GROUP_REPORTS and size < GROUP_BYTES:
                group.append(self._waiting.popleft())
                size += len(group[-1][0].report)
            return group

    def _outcome(self, uploads: list[Upload]) -> Sequence[HdpmfError | None]:
        try:
            return self._write(uploads)
        except HdpmfError as error:
            event("write-failed", logging.ERROR, error, reports=len(uploads))
            return [error] * len(uploads)
        except Exception as error:  # the thread must live on; the reports are not confirmed
            event("write-failed", logging.ERROR, error, reports=len(uploads))
            return [
                StorageError("the report could not be written down; send it again later")
            ] * len(uploads)


def _set_results(
    futures: list[asyncio.Future[HdpmfError | None]], results: Sequence[HdpmfError | None]
) -> None:
    for future, result in zip(futures, results, strict=True):
        if not future.done():  # who sent it may be gone
            future.set_result(result)
