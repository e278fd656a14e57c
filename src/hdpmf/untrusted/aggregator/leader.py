"""The leader: stores reports, checks them with the helper, gives sums to the collector.

It asks the helper over HTTPS, pinned to the helper's card.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from hdpmf.common.aggregation.two_servers.dap.codec import Message
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AGGREGATE_SHARES_PATH,
    AGGREGATION_JOBS_PATH,
    MEDIA_TYPES,
    AggregateShare,
    AggregateShareReq,
    AggregationJobInitReq,
    AggregationJobResp,
    CollectionJobReq,
    CollectionJobResp,
    Interval,
    PingPongEnd,
    PingPongShare,
    Report,
    ReportError,
    ReportShare,
    VerifyInit,
    VerifyResp,
    id_to_text,
    job_id,
)
from hdpmf.common.aggregation.two_servers.prio import Preparation
from hdpmf.common.aggregation.two_servers.tokens import Token
from hdpmf.common.net.sum_servers import ServerClient
from hdpmf.common.privacy.sampling import Noise
from hdpmf.errors import DapError, PrioError, TransportError, needs
from hdpmf.untrusted.aggregator.aggregation_job import (
    Accumulator,
    AggregationJob,
    AggregationJobs,
    prepare_share,
)
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, collections
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.hpke_keys import PartnerKeys
from hdpmf.untrusted.aggregator.report_writer import Upload, Uploads
from hdpmf.untrusted.aggregator.server import (
    EPOCH_MEDIA_TYPE,
    EPOCH_PATH,
    Aggregator,
    read_epoch,
)
from hdpmf.untrusted.aggregator.tasks import AggregatorTask, Rules, ServerKeys

with needs("sqlalchemy"):
    import sqlalchemy as sa


_LOG = logging.getLogger(__name__)


class Leader(Aggregator):
    """The server that devices and the collector talk to; ``helper`` is the other one."""

    role = "leader"

    def __init__(
        self,
        keys: ServerKeys,
        database: ServerDatabase,
        state: Path,
        helper: HelperApi,
        *,
        clock: Callable[[], float] = time.time,
        noise: Noise | None = None,
        rules: Rules | None = None,
    ) -> None:
        super().__init__(keys, database, state, clock=clock, noise=noise, rules=rules)
        self._helper = helper
        self._partner_keys = PartnerKeys(keys.partner)
        shared = (database, self._task_store, self._seals, self._rules)
        self.upload_many = Uploads(
            *shared,
            self.partner_clock.earlier,
            knows_key=keys.hpke.knows,
            helper_knows_key=self._partner_keys.knows,
        ).take
        self._jobs = AggregationJobs(*shared, self._clock)

    def upload(self, task_id: bytes, report: bytes, token: Token | None = None) -> None:
        """Store a report durably; raise DapError if it is refused."""
        (refused,) = self.upload_many([Upload(task_id, report, token)])
        if refused is not None:
            raise refused

    @property
    def lacks_partner_keys(self) -> bool:
        """True if the list of the helper's keys should be asked for."""
        return self._partner_keys.outdated

    def follow_partner_keys(self) -> None:
        """Ask for the list of the helper's keys.

        Raises:
            TransportError: The helper could not be reached.
            ProtocolError: The list is older than the one before, forged or of somebody else.
        """
        self._partner_keys.follow(self._helper.signed_keys())

    def compare_clocks(self) -> None:
        """Ask the helper for its time; raise TransportError if it could not be reached."""
        self.partner_clock.compare(self._helper.now())

    def take_over(self) -> None:
        """Resume jobs of a killed process at once. Only if no other one serves the database."""
        self._jobs.release_all()

    def compare_epochs(self) -> None:
        """State this server's epoch, and take note of the helper's; errors as in ``aggregate``."""
        self.meet(self._helper.meet(self.epoch))

    def aggregate(self, limit: int = 256) -> int:
        """Check some of the stored reports with the helper, and add the valid ones to the sums.

        Several processes may do so at once, and any may be killed at any time. Returns the number
        of reports; 0 if none waited. Reports that are too early by the helper's clock wait: they
        were confirmed, and are tried again.

        Raises:
            TransportError: The helper could not be reached. The reports wait.
            DapError: The helper refuses, as for an unknown task. These reports wait.
        """
        job = self._jobs.claim(limit)
        if job is None:
            return 0
        try:
            self.compare_epochs()  # a task that ends now has no reports any more
            return self._run(job)
        except DapError:
            # the helper refuses this job: until its lease is over, other tasks' reports have their
            # turn
            raise
        except Exception:
            self._jobs.release(job)
            raise

    def collect(self, task_id: bytes, request: bytes) -> bytes | None:
        """Start a collection job by a ``CollectionJobReq``, or go on with it; as ``collection``.

        Raises DapError if the request is invalid, too.
        """
        task = self._task_store.get(task_id)
        interval = CollectionJobReq.decode(request).interval.in_seconds(task.document.precision)
        self._task_store.require_open(task)
        self._batches.check(task, interval)
        self._batches.check_overlap(task, interval)
        job = job_id(request)
        row = {
            "task": task.number, "job": job, "request": request,
            "start": interval.start, "duration": interval.duration,
        }  # fmt: skip
        with self._database.write() as connection:
            connection.execute(self._database.insert(collections).on_conflict_do_nothing(), row)
        return self.collection(task_id, job)

    def collection(self, task_id: bytes, job: bytes) -> bytes | None:
        """Return the ``CollectionJobResp`` of a collection job, the same bytes each time.

        None until the batch's time is over and its reports are checked. Raises DapError if the job
        is unknown, or the batch is too small, overlaps, or differs between the servers.
        """
        task = self._task_store.get(task_id)
        here = sa.and_(collections.c.task == task.number, collections.c.job == job)
        with self._database.read() as connection:
            row = connection.execute(sa.select(collections).where(here)).one_or_none()
        if row is None:
            self._task_store.require_open(task)
            raise DapError("there is no such collection job; ask for it first")
        interval = Interval(row.start, row.duration)
        batch = self._batches.find(task, interval)
        if batch is None:
            if self.partner_clock.earlier() < interval.end:
                return None
            self._task_store.require_open(task)
        if batch is None or batch.other is None:
            self.compare_epochs()
            batch = self._batches.close(task, interval)
            if batch is None:
                return None
            wanted = CollectionJobReq.decode(row.request)
            share_request = AggregateShareReq(wanted, wanted.interval, batch.count, batch.checksum)
            share = AggregateShare.decode(
                self._helper.aggregate_share(task_id, share_request.encode())
            )
            batch = self._batches.keep_other(task, interval, share.encrypted_aggregate_share)
        if batch.other is None:
            return None
        times = batch.times.in_steps(task.document.precision)
        return CollectionJobResp(batch.count, times, batch.share, batch.other).encode()

    def _run(self, job: AggregationJob) -> int:
        """Run one job, from its reports to their sum; return how many are done with."""
        task = job.task
        sums = Accumulator(job.task)
        prepared: dict[bytes, tuple[int, Preparation]] = {}
        inits = []
        rejected: list[bytes] = []
        for report_id, body in self._jobs.bodies(job):
            if body is None:
                sums.reject(ReportError.REPORT_DROPPED)
                rejected.append(report_id)
                continue
            report = Report.decode(body)
            metadata = report.report_metadata
            result = prepare_share(
                self._keys,
                task,
                metadata,
                report.public_share,
                report.leader_encrypted_input_share,
            )
            if isinstance(result, ReportError):
                sums.reject(result)
                rejected.append(metadata.report_id)
                continue
            prepared[metadata.report_id] = metadata.time * task.document.precision, result[0]
            share = ReportShare(metadata, report.public_share, report.helper_encrypted_input_share)
            inits.append(VerifyInit(share, PingPongShare(result[1]).encode()))
        counted: list[bytes] = []
        early: list[bytes] = []
        if inits:
            request = AggregationJobInitReq(tuple(inits)).encode()
            answer = AggregationJobResp.decode(self._helper.aggregation_job(task.id, request))
            if [resp.report_id for resp in answer.verify_resps] != list(prepared):
                raise DapError("the helper answered for other reports than it was asked about")
            for resp in answer.verify_resps:
                when, preparation = prepared.pop(resp.report_id)
                if resp.result == ReportError.REPORT_TOO_EARLY:
                    early.append(resp.report_id)
                    continue
                reason = self._count(task, sums, resp, when, preparation)
                (counted if reason is None else rejected).append(resp.report_id)
                if reason is not None:
                    sums.reject(reason)
        if self._jobs.finish(job, sums, counted, rejected, early):
            _LOG.info(
                "task %s: %d reports counted, %d rejected, %d too early for the helper",
                task.id.hex()[:16],
                len(counted),
                len(rejected),
                len(early),
            )
        return len(counted) + len(rejected)

    def _count(
        self,
        task: AggregatorTask,
        sums: Accumulator,
        resp: VerifyResp,
        when: int,
        preparation: Preparation,
    ) -> ReportError | None:
        """Add a report that the helper accepts; else return the reason to reject it."""
        if isinstance(resp.result, ReportError):
            return resp.result
        try:
            output = task.prio.finish(preparation, PingPongEnd.decode(resp.result).verifier_message)
        except PrioError:
            return ReportError.VDAF_VERIFY_ERROR
        sums.add(resp.report_id, when, output)
        return None


ANSWER_SECONDS = 120.0
"""The helper checks all reports of a job before it answers."""


QUICK_SECONDS = 10.0
"""Where the answer takes no time."""


class HelperClient:
    """The helper over HTTPS. It tries once: the caller knows when to try again."""

    def __init__(self, keys: ServerKeys) -> None:
        self._slow = ServerClient(keys.partner, keys.party, ANSWER_SECONDS)
        self._quick = ServerClient(keys.partner, keys.party, QUICK_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._slow.close()
        self._quick.close()

    def now(self) -> float:
        """As in ``Helper``, to the second; a helper that hangs is soon given up."""
        return self._quick.now()

    def meet(self, theirs: int) -> int:
        """As in ``Helper``; a helper that hangs is soon given up."""
        _, _, answer = self._quick.ask("POST", EPOCH_PATH, b"%d" % theirs, EPOCH_MEDIA_TYPE)
        return read_epoch(answer)

    def signed_keys(self) -> bytes:
        """As in ``Helper``; a helper that hangs is soon given up."""
        return self._quick.signed_keys()

    def aggregation_job(self, task_id: bytes, body: bytes) -> bytes:
        """As in ``Helper``; errors as in ``ask``."""
        path = AGGREGATION_JOBS_PATH.format(task_id=id_to_text(task_id))
        return self._message(path, AggregationJobInitReq, body, AggregationJobResp)

    def aggregate_share(self, task_id: bytes, body: bytes) -> bytes:
        """As in ``Helper``; errors as in ``ask``."""
        path = AGGREGATE_SHARES_PATH.format(task_id=id_to_text(task_id))
        return self._message(path, AggregateShareReq, body, AggregateShare)

    def _message(self, path: str, sent: type[Message], body: bytes, wanted: type[Message]) -> bytes:
        _, media_type, answer = self._slow.ask("POST", path, body, MEDIA_TYPES[sent])
        if media_type != MEDIA_TYPES[wanted]:
            raise TransportError("the helper's address does not answer like a helper")
        return answer


HelperApi = Helper | HelperClient
"""The helper, in this process or over HTTPS."""
