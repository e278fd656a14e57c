"""The helper: checks reports that the leader sends, and holds the other share of the sums."""

import logging
from hashlib import sha256

from hdpmf.common.aggregation.two_servers.dap.messages import (
    JOB_ID_SIZE,
    AggregateShare,
    AggregateShareReq,
    AggregationJobInitReq,
    AggregationJobResp,
    PingPongEnd,
    PingPongShare,
    Problem,
    ReportError,
    VerifyInit,
    VerifyResp,
)
from hdpmf.errors import DapError, PrioError, StorageError, needs
from hdpmf.untrusted.aggregator.aggregation_job import Accumulator, prepare_share
from hdpmf.untrusted.aggregator.collection import closed_intervals
from hdpmf.untrusted.aggregator.datastore import ReportState, answers, lock_task, reports
from hdpmf.untrusted.aggregator.server import Aggregator
from hdpmf.untrusted.aggregator.tasks import AggregatorTask

with needs("sqlalchemy"):
    import sqlalchemy as sa

_LOG = logging.getLogger(__name__)
_TRIES = 5


class Helper(Aggregator):
    """The server that only the leader talks to."""

    role = "helper"

    def aggregation_job(self, task_id: bytes, body: bytes) -> bytes:
        """Check reports with the leader, and add the valid ones to the sums. Idempotent.

        Takes an ``AggregationJobInitReq`` and returns an ``AggregationJobResp``. Raises DapError if
        it is malformed.
        """
        task = self._task_store.get(task_id)
        digest = sha256(body).digest()
        found = self.answered(task_id, digest[:JOB_ID_SIZE])
        if found is not None:
            return found
        if self._task_store.expired(task):
            raise _over()
        wanted = AggregationJobInitReq.decode(body)
        ids = {init.report_share.report_metadata.report_id for init in wanted.verify_inits}
        if len(ids) != len(wanted.verify_inits):
            raise DapError("a report is twice in an aggregation job")
        # Another worker may take one of these reports, or close their batch, meanwhile.
        for _ in range(_TRIES):
            response = self._run(task, digest, wanted.verify_inits)
            if response is not None:
                return response
        raise StorageError(
            "other workers took these reports again and again; send the job once more"
        )

    def answered(self, task_id: bytes, job: bytes) -> bytes | None:
        """Return the ``AggregationJobResp`` of a job that was run, or None."""
        with self._database.read() as connection:
            return _answered(connection, self._task_store.get(task_id), job)

    def aggregate_share(self, task_id: bytes, body: bytes) -> bytes:
        """Close a batch, if the leader has the same reports in it. Idempotent.

        Takes an ``AggregateShareReq`` and returns an ``AggregateShare``. Raises DapError if the
        batch is too small, overlaps with another, or has other reports here.
        """
        task = self._task_store.get(task_id)
        wanted = AggregateShareReq.decode(body)
        self._task_store.require_open(task)
        if wanted.interval != wanted.collection_job_req.interval:
            raise DapError("a batch is all of what the collector asks for", Problem.BATCH_INVALID)
        interval = wanted.interval.in_seconds(task.document.precision)
        batch = self._batches.close(task, interval, (wanted.report_count, wanted.checksum))
        if batch is None:
            raise DapError("reports of this batch wait to be checked", Problem.BATCH_MISMATCH)
        return AggregateShare(batch.share).encode()

    def _run(
        self, task: AggregatorTask, digest: bytes, inits: tuple[VerifyInit, ...]
    ) -> bytes | None:
        """Check the reports and store the result; None if another worker was faster."""
        ids = {init.report_share.report_metadata.report_id for init in inits}
        with self._database.read() as connection:
            closed = closed_intervals(connection, task)
            here = sa.and_(reports.c.task == task.number, reports.c.id.in_(ids))
            seen = set(connection.execute(sa.select(reports.c.id).where(here)).scalars())
        sums = Accumulator(task)
        resps = []
        rows = []
        for init in inits:
            metadata = init.report_share.report_metadata
            time = metadata.time * task.document.precision
            result: bytes | ReportError
            if time < task.document.begin:
                result = ReportError.TASK_NOT_STARTED
            elif time >= task.document.end:
                result = ReportError.TASK_EXPIRED
            elif time > self._clock() + self._rules.skew:
                result = ReportError.REPORT_TOO_EARLY
            elif any(time in interval for interval in closed):
                result = ReportError.BATCH_COLLECTED
            elif metadata.report_id in seen:
                result = ReportError.REPORT_REPLAYED
            else:
                # Whatever comes of it: a report is looked at once, so that a leader cannot try it
                # in many ways.
                seen.add(metadata.report_id)
                result = self._check(task, sums, init)
                rejected = isinstance(result, ReportError)
                state = ReportState.REJECTED if rejected else ReportState.COUNTED
                rows.append(
                    {
                        "task": task.number,
                        "id": metadata.report_id,
                        "bucket": time,
                        "state": state,
                    }
                )
            if isinstance(result, ReportError):
                sums.reject(result)
            resps.append(VerifyResp(metadata.report_id, result))
        response = AggregationJobResp(tuple(resps)).encode()
        return self._write(task, digest, response, rows, sums, len(closed))

    def _check(
        self, task: AggregatorTask, sums: Accumulator, init: VerifyInit
    ) -> bytes | ReportError:
        """Check one report; return the message for the leader, or the reason to reject it."""
        share = init.report_share
        try:
            leaders = PingPongShare.decode(init.payload)
        except DapError:
            return ReportError.INVALID_MESSAGE
        metadata = share.report_metadata
        prepared = prepare_share(
            self._keys, task, metadata, share.public_share, share.encrypted_input_share
        )
        if isinstance(prepared, ReportError):
            return prepared
        try:
            message = task.prio.verify([leaders.verifier_share, prepared[1]])
            output = task.prio.finish(prepared[0], message)
        except PrioError:
            return ReportError.VDAF_VERIFY_ERROR
        sums.add(metadata.report_id, metadata.time * task.document.precision, output)
        return PingPongEnd(message).encode()

    def _write(
        self,
        task: AggregatorTask,
        digest: bytes,
        response: bytes,
        rows: list[dict[str, object]],
        sums: Accumulator,
        closed: int,
    ) -> bytes | None:
        with self._database.write() as connection:
            if not lock_task(connection, task.number):
                raise _over()
            job = digest[:JOB_ID_SIZE]
            row = {"task": task.number, "job": job, "digest": digest, "response": response}
            made = self._database.insert(answers).on_conflict_do_nothing().returning(answers.c.job)
            # Where nothing was looked at, the same may be asked later: reports were too early.
            if rows and connection.execute(made, row).first() is None:
                return _answered(connection, task, job)
            overtaken = len(closed_intervals(connection, task)) != closed
            if rows and not overtaken:
                rows = sorted(rows, key=lambda row: bytes(row["id"]))  # type: ignore[call-overload]
                fresh = (
                    self._database.insert(reports).on_conflict_do_nothing().returning(reports.c.id)
                )
                overtaken = len(connection.execute(fresh, rows).all()) != len(rows)
            if overtaken:
                connection.rollback()
                return None
            sums.write(connection, self._database, self._seals)
        _LOG.info("task %s: %d of %d reports counted", task.id.hex()[:16], sums.counted, len(rows))
        return response


def _over() -> DapError:
    return DapError("the task is over", Problem.UNRECOGNIZED_AGGREGATION_JOB)


def _answered(connection: sa.Connection, task: AggregatorTask, job: bytes) -> bytes | None:
    """Return the stored response to this job, if there is one."""
    here = sa.and_(answers.c.task == task.number, answers.c.job == job)
    response: bytes | None = connection.execute(sa.select(answers.c.response).where(here)).scalar()
    return response
