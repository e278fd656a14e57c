"""Reports that devices upload: checked as cheaply as can be, then written down, many at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from hdpmf.aggregator.batches import closed_times
from hdpmf.aggregator.store import ServerDatabase, lock_task
from hdpmf.aggregator.tables import ReportState, devices, payloads, reports
from hdpmf.aggregator.tasks import OpenTask, Rules, TaskBook
from hdpmf.dap import Interval, Problem, Report
from hdpmf.errors import DapError
from hdpmf.protocol.submission import signed_bytes
from hdpmf.transport.extras import needs

with needs("cryptography"):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
with needs("sqlalchemy"):
    import sqlalchemy as sa

_SAME_ID = "another report has the same id"


@dataclass(frozen=True)
class Upload:
    """A report as it arrived.

    Attributes:
        task_id: Of the task.
        report: Its bytes.
        device: Of a task for enrolled devices: whose it is, an Ed25519 public key in hexadecimal.
        signature: The device's, over ``signed_bytes``.
    """

    task_id: bytes
    report: bytes = field(repr=False)
    device: str = ""
    signature: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class _Checked:
    """An upload that may be stored."""

    opened: OpenTask
    upload: Upload
    report_id: bytes
    time: int
    digest: bytes


class Uploads:
    """The leader's front door."""

    def __init__(self, database: ServerDatabase, book: TaskBook, rules: Rules, clock: Callable[[], float]) -> None:
        self._database, self._book, self._rules, self._clock = database, book, rules, clock

    def take(self, uploads: Sequence[Upload]) -> list[DapError | None]:
        """Store reports with one commit; for each None, or why it was refused."""
        results: list[DapError | None] = [None] * len(uploads)
        by_task: dict[int, list[tuple[int, _Checked]]] = {}
        for place, upload in enumerate(uploads):
            try:
                checked = self._check(upload)
            except DapError as error:
                results[place] = error
            else:
                by_task.setdefault(checked.opened.number, []).append((place, checked))
        if by_task:
            with self._database.write() as connection:
                for number in sorted(by_task):
                    self._store(connection, by_task[number], results)
        return results

    def _check(self, upload: Upload) -> _Checked:
        """What can be said without the database; the length first."""
        opened = self._book.get(upload.task_id)
        if len(upload.report) != opened.report_size:
            raise DapError(f"a report of this task has {opened.report_size} bytes, not {len(upload.report)}")
        report = Report.decode(upload.report)
        if len(report.public_share) != opened.public_share_size:
            raise DapError("the parts of the report do not have the sizes of this task")
        time = report.report_metadata.time
        if not opened.in_time(time):
            raise _rejected("its time is not within the task, or not rounded")
        if time > self._clock() + self._rules.skew:
            raise DapError("the report is from the future; set the clock", Problem.REPORT_TOO_EARLY)
        if self._book.expired(opened):
            raise _rejected("the task is over")
        digest = hashlib.sha256(upload.report).digest()
        if opened.task.enrolled:
            _check_signature(upload, digest)
        elif upload.device or upload.signature:
            raise DapError("this task takes reports without a device's name; do not send it")
        return _Checked(opened, upload, report.report_metadata.report_id, time, digest)

    def _store(
        self, connection: sa.Connection, given: list[tuple[int, _Checked]], results: list[DapError | None]
    ) -> None:
        opened = given[0][1].opened
        lock_task(connection, opened.number)
        closed = closed_times(connection, opened)
        left = self._left(connection, given) if opened.task.enrolled else {}
        known = _digests(connection, opened, {checked.report_id for _, checked in given})
        fresh: dict[bytes, list[tuple[int, _Checked]]] = {}
        for place, checked in given:
            before = known.get(checked.report_id)
            if before is None:
                results[place] = _refusal(checked, closed, left)
                if results[place] is None:
                    known[checked.report_id] = checked.digest
                    fresh[checked.report_id] = [(place, checked)]
            elif before != checked.digest:
                results[place] = _rejected(_SAME_ID)
            elif checked.report_id in fresh:
                fresh[checked.report_id].append((place, checked))
        if fresh:
            self._insert(connection, opened, fresh, results)

    def _insert(
        self,
        connection: sa.Connection,
        opened: OpenTask,
        fresh: dict[bytes, list[tuple[int, _Checked]]],
        results: list[DapError | None],
    ) -> None:
        first = [places[0][1] for _, places in sorted(fresh.items())]
        rows = [
            {"task": opened.number, "id": checked.report_id, "bucket": checked.time, "state": ReportState.STORED,
             "digest": checked.digest, "job": None}
            for checked in first
        ]  # fmt: skip
        made = self._database.insert(reports).on_conflict_do_nothing().returning(reports.c.id)
        written = set(connection.execute(made, rows).scalars())
        stored = [checked for checked in first if checked.report_id in written]
        faster = _digests(connection, opened, fresh.keys() - written)  # what another worker stored meanwhile
        for report_id, digest in faster.items():
            for place, checked in fresh[report_id]:
                results[place] = None if checked.digest == digest else _rejected(_SAME_ID)
        if not stored:
            return
        bodies = [
            {"task": opened.number, "report": checked.report_id, "body": checked.upload.report} for checked in stored
        ]
        connection.execute(payloads.insert(), bodies)
        if opened.task.enrolled:
            taken: dict[str, int] = {}
            for checked in stored:
                taken[checked.upload.device] = taken.get(checked.upload.device, 0) + 1
            here = sa.and_(devices.c.task == opened.number, devices.c.identity == sa.bindparam("who"))
            more = sa.update(devices).where(here).values(taken=devices.c.taken + sa.bindparam("more"))
            connection.execute(more, [{"who": who, "more": count} for who, count in sorted(taken.items())])

    def _left(self, connection: sa.Connection, given: list[tuple[int, _Checked]]) -> dict[str, int]:
        """How many more different reports each device may send."""
        names = {checked.upload.device for _, checked in given}
        here = sa.and_(devices.c.task == given[0][1].opened.number, devices.c.identity.in_(names))
        # In one order, so that no two workers wait for each other.
        found = sa.select(devices).where(here).order_by(devices.c.identity).with_for_update()
        return {row.identity: row.users - row.taken for row in connection.execute(found)}


def _digests(connection: sa.Connection, opened: OpenTask, ids: Set[bytes]) -> dict[bytes, bytes]:
    """Of the reports among these that are known."""
    if not ids:
        return {}
    here = sa.and_(reports.c.task == opened.number, reports.c.id.in_(ids))
    return {row.id: row.digest for row in connection.execute(sa.select(reports.c.id, reports.c.digest).where(here))}


def _refusal(checked: _Checked, closed: list[Interval], left: dict[str, int]) -> DapError | None:
    """Why a new report is not stored. What a device may still send is counted down."""
    if any(checked.time in interval for interval in closed):
        return _rejected("its batch is collected")
    if checked.opened.task.enrolled:
        device = checked.upload.device
        if device not in left:
            return DapError("the device may not report in this task", Problem.UNAUTHORIZED_REQUEST)
        if left[device] < 1:
            return _rejected("the device has sent as many reports as it has users")
        left[device] -= 1
    return None


def _check_signature(upload: Upload, digest: bytes) -> None:
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(upload.device))
        key.verify(upload.signature, signed_bytes(upload.task_id, digest))
    except (InvalidSignature, ValueError):
        raise DapError("the device's signature does not hold", Problem.UNAUTHORIZED_REQUEST) from None


def _rejected(why: str) -> DapError:
    return DapError(f"the report was refused: {why}", Problem.REPORT_REJECTED)
