"""Sums by two servers: publish a task, wait until its period is over, collect the sum.

Nobody has to be online at the same time. The recommender learns who asked for a token, which says
nothing about the report that comes with it: it signs blindly. Every step is in the checkpoint
before it happens: a killed run resumes with the same task and request.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TypeVar

from hdpmf.common.aggregation.two_servers.dap.hpke import aggregate_share_info
from hdpmf.common.aggregation.two_servers.dap.messages import (
    JOB_ID_SIZE,
    AggregateShareAad,
    BatchSelector,
    Collection,
    CollectionReq,
    HpkeCiphertext,
    Interval,
    Problem,
    Query,
    Role,
)
from hdpmf.common.aggregation.two_servers.tokens import IssuerKey
from hdpmf.common.net.sum_servers import SumServers
from hdpmf.common.protocol import Grouping, Popularity, SumContribution, decode, encode
from hdpmf.common.protocol.catalogue import KnownItems
from hdpmf.common.protocol.layout import answer_of, survey_circuit
from hdpmf.common.protocol.servers import Servers
from hdpmf.common.protocol.task import Part, Task, prio_of, task_id
from hdpmf.errors import DapError, FederationError, ProtocolError, RunOverError, TransportError
from hdpmf.untrusted.service.aggregation import Aggregation, Job, JobResult
from hdpmf.untrusted.service.aggregation.token_issuer import TokenIssuer
from hdpmf.untrusted.service.keys import CollectorKeys
from hdpmf.untrusted.service.run_files import Period, Trouble
from hdpmf.untrusted.service.settings import RunSettings

LONGEST_PAUSE = 30.0
"""Seconds between two questions to the leader, at most."""

LONGEST_WAIT = 600.0
"""Most seconds between two progress messages; towards the end of a period they come more often."""

SLOW_SECONDS = 3600.0
"""Seconds after a period from which a sum that is not there is an alert."""

FINAL_SECONDS = 86_400.0
"""Seconds after a period from which a run is over that nobody can help: with too few reports, or
with none that are still there."""

LOST_SECONDS = 31 * 86_400.0
"""The same for all other reasons: servers delete what they have after 30 days."""

_FINAL = (Problem.INVALID_BATCH_SIZE, Problem.BATCH_INVALID)

_AWAY = (
    "See that both servers run and can be reached; their operators see it, too. Nothing is lost: "
    "the sum is asked for until it is there"
)

_PAID_BACK = (
    "The run is given up. Devices get back what they paid when both servers have signed that "
    "nothing was released"
)

_SLOW = (
    "See that the helper runs, can be reached from the leader and has the right time: reports wait "
    "there to be checked. Nothing is lost until 30 days after the period. To end the run, give it "
    "up (--give-up): devices get back what they paid"
)

T = TypeVar("T")

R = TypeVar("R")


def not_published(document: bytes | None) -> None:
    """Publish nothing: nobody reads it."""


NOISES = 2
"""Times the whole noise is in a sum: each server adds it."""


class TwoServers(Aggregation):
    """Devices report to two servers, and the recommender gets the sum that both made.

    Args:
        servers: The pair.
        keys: The recommender's.
        sum_servers: Client of the pair.
        publish: Shows devices the task under way, or withdraws it (None); may be repeated.
        issuer: Issues tokens to enrolled devices while a task is under way. Without one the tasks
            are for everybody who can reach the leader: in simulations.
        follow_keys: Shows devices newer keys of the servers; called while reports are taken.
        clock: For tests.
    """

    noises = float(NOISES)

    def __init__(
        self,
        servers: Servers,
        keys: CollectorKeys,
        sum_servers: SumServers,
        *,
        publish: Callable[[bytes | None], None] = not_published,
        issuer: TokenIssuer | None = None,
        follow_keys: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._follow_keys = follow_keys
        self._servers = servers
        self._keys = keys
        self._sum_servers = sum_servers
        self._publish = publish
        self._issuer = issuer
        self._clock = clock

    def gather(self) -> None:
        """Begin: whoever is enrolled may report, and nobody is asked before."""
        if self.run.checkpoint.stage == "gather":
            self.run.checkpoint.stage = "open"

    def collect(self, job: Job[T]) -> JobResult[T]:
        """Return the answer in the sum of one task."""
        run = self.run
        period = self._period(job)
        if not period.collection:
            self._take_reports(period)
            self._collect(period)
        answer, reports = open_collection(period.document, period.collection, self._keys)
        if not isinstance(answer, job.kind):
            raise FederationError("the checkpoint holds the task of another step; start a new run")
        if reports > run.enrolled.count_users(run.enrolled.users):
            raise FederationError(
                f"the servers counted {reports} reports, more than users are enrolled: a server "
                "does not keep to the task, and its sum is not used",
                "Give the run up (--give-up)",
            )
        run.log(f"{reports} reports are in the sum")
        return JobResult(answer, None, reports, self.noises)

    def _period(self, job: Job[T]) -> Period:
        """Return the task of a job, as before a kill or new, and saved before anybody sees it."""
        run = self.run
        periods = run.checkpoint.periods
        if job.number == len(periods):
            key = None if self._issuer is None else IssuerKey.generate()
            task = make_task(
                run.settings,
                run.known,
                self._servers,
                self._keys,
                self._clock(),
                job.part,
                job.grouping,
                token_key=b"" if key is None else key.public.encoded,
            )
            document = encode(task)
            if self._issuer is not None and key is not None:
                users = run.enrolled.users
                self._issuer.create(task_id(document), key, users, run.files.token_folder())
            periods.append(Period(document=document, job=secrets.token_bytes(JOB_ID_SIZE)))
            run.save()
        return periods[job.number]

    def _take_reports(self, period: Period) -> None:
        """Give the task to both servers, publish it, and wait until its period is over."""
        task = read_task(period.document)
        name = task_id(period.document).hex()[:12]
        if not period.placed:
            if self._clock() >= task.end:
                raise FederationError(
                    f"the period of task {name} was over before both servers had it; nobody has "
                    "reported",
                    "Give the run up (--give-up), and begin a new one when both servers can be "
                    "reached",
                )
            self.run.stage(f"giving task {name} to {task.servers.names}")
            self._try(lambda: self._sum_servers.add_task(period.document))
            period.placed = True
            self.run.save()
        if self._clock() < task.end:
            self._issue(period, task, name)
            self._publish(period.document)
            self._wait(task, name)
        self._publish(None)
        if self._issuer is not None:
            self._issuer.drop(self.run.files.token_folder())

    def _issue(self, period: Period, task: Task, name: str) -> None:
        """Give tokens to devices that ask, while the task is under way."""
        if self._issuer is None or not task.token_key:
            return
        if not self._issuer.open(task_id(period.document), self.run.files.token_folder()):
            self.run.log(
                f"task {name}: who has a token was forgotten, as after a restore; no more tokens "
                "are given out, and devices that have one report"
            )

    def _wait(self, task: Task, name: str) -> None:
        self.run.stage(f"task {name} takes reports")
        self.run.metrics.until = task.end
        while (left := task.end - self._clock()) > 0:
            for listen in self.run.metrics.listeners:
                listen()
            self._follow_keys()
            self.run.sleep(min(left, max(min(left / 20, LONGEST_WAIT), 1.0)))
        self.run.metrics.until = None

    def _collect(self, period: Period) -> None:
        """Ask for the sum until it is there. The servers may need long: one of them may be away."""
        task = read_task(period.document)
        name = task_id(period.document)
        self.run.stage(f"asking for the sum of task {name.hex()[:12]}")
        pause = self.run.pace.pause
        said = ""
        asked = False
        while True:
            try:
                if not asked:
                    # After a kill once more: the same job, the same bytes.
                    self._sum_servers.begin_collection(name, period.job, collection_request(task))
                    asked = True
                found = self._sum_servers.collection(name, period.job)
                words = "" if found is not None else "the servers are still summing"
                trouble = None
                if self._clock() >= task.end + SLOW_SECONDS:
                    words = f"the sum of task {name.hex()[:12]} is not there long after its period"
                    trouble = Trouble(cause=words, remedy=_SLOW, at=self._clock())
            except TransportError as error:
                found = None
                words = str(error)
                trouble = Trouble(cause=words, remedy=_AWAY, at=self._clock())
            except DapError as error:
                refused = self._refused(error, task, name)
                patience = FINAL_SECONDS if error.kind in _FINAL else LOST_SECONDS
                if self._clock() < task.end + patience:
                    raise refused from error
                raise RunOverError(refused.cause, _PAID_BACK) from error
            if found is not None:
                period.collection = found
                self.run.save()
                return
            if self._clock() >= task.end + LOST_SECONDS:
                raise RunOverError(
                    f"the sum of task {name.hex()[:12]} did not come before the servers deleted "
                    f"what they had ({words})",
                    _PAID_BACK,
                )
            if words != said:
                self.run.log(f"{words}; asking again until it is there")
                self.run.files.keep_trouble(trouble)
            said = words
            self.run.sleep(pause)
            pause = min(max(2 * pause, 0.1), LONGEST_PAUSE)

    def _refused(self, error: DapError, task: Task, name: bytes) -> FederationError:
        what = f"the servers refuse the sum of task {name.hex()[:12]}"
        give_up = "Give the run up (--give-up), and begin a new one"
        if error.kind == Problem.INVALID_BATCH_SIZE:
            return FederationError(
                f"{what}: fewer than {task.minimum} reports that count came in its period, or "
                "fewer than a server's own minimum. Nothing was released",
                f"{give_up} with a longer --period, more devices or a lower --minimum (devices "
                "and servers have one of their own)",
            )
        if error.kind == Problem.UNAUTHORIZED_REQUEST:
            return FederationError(
                f"{what}: they do not know this recommender. Nothing was released",
                "Their operators admit it: hdpmf aggregator admit FOLDER collector-card.json",
            )
        if error.kind == Problem.BATCH_OVERLAP:
            return FederationError(
                f"{what}: one of them has closed it before, and does not have it any more (its "
                "database is older than that). Nothing more was released",
                f"Its operator brings back the newest database; if there is none: {give_up}",
            )
        return FederationError(
            f"{what} ({error.kind}): {error}. Nothing was released",
            f"{give_up} if this stays so",
        )

    def _try(self, call: Callable[[], R]) -> R:
        """Return the result of a call, with a few retries if a server is unreachable."""
        for attempt in range(1, self.run.pace.attempts + 1):
            try:
                return call()
            except TransportError as error:
                if attempt == self.run.pace.attempts:
                    raise FederationError(
                        f"{error}; tried {attempt} times",
                        "The run is kept, and tried again while it is served: see that both "
                        "servers run and can be reached",
                    ) from error
                self.run.log(f"{error}; trying again")
                self.run.sleep(self.run.pace.pause)
            except (DapError, ProtocolError) as error:
                raise FederationError(
                    f"a server refuses the task: {error}",
                    "Has its operator admitted this recommender (hdpmf aggregator admit FOLDER "
                    "collector-card.json)?",
                ) from error
        raise FederationError("attempts must be at least 1")


def make_task(
    settings: RunSettings,
    known: KnownItems,
    servers: Servers,
    keys: CollectorKeys,
    now: float,
    part: Part = "whole",
    grouping: Grouping | None = None,
    *,
    token_key: bytes,
) -> Task:
    """Return the task for the two servers, from the next multiple of the precision on.

    Without a key for tokens it is for everybody.
    """
    survey = settings.survey(known, settings.sharing(()))
    circuit, noise = survey_circuit(survey, part, grouping)
    begin = -int(-now // settings.rounded) * settings.rounded
    return Task(
        servers=servers,
        collector=keys.card,
        circuit=circuit,
        noise=noise,
        begin=begin,
        end=begin + settings.seconds,
        precision=settings.rounded,
        minimum=settings.minimum,
        enrolled=bool(token_key),
        token_key=token_key,
        survey=survey,
        part=part,
        grouping=grouping,
    )


def read_task(document: bytes) -> Task:
    """The task in a checkpoint."""
    task = decode(document)
    if not isinstance(task, Task):
        raise FederationError("the checkpoint holds no task where one should be; start a new run")
    return task


def collection_request(task: Task) -> bytes:
    """Return the request for the whole sum of a task: always the same bytes."""
    return CollectionReq(Query(batch_interval=_whole(task)), b"").encode()


def open_collection(
    document: bytes, data: bytes, keys: CollectorKeys
) -> tuple[SumContribution | Popularity, int]:
    """Return the answer in a DAP ``Collection`` of the leader, and its number of reports.

    Raises:
        ProtocolError: The sum is not what the task asks for, or cannot be opened.
    """
    task = read_task(document)
    name = task_id(document)
    try:
        collection = Collection.decode(data)
        numbers = prio_of(task, name).unshard(
            [
                _opened(keys, task, name, collection.leader_encrypted_agg_share, Role.LEADER),
                _opened(keys, task, name, collection.helper_encrypted_agg_share, Role.HELPER),
            ]
        )
    except DapError as error:
        raise ProtocolError(f"the sum of task {name.hex()[:12]} cannot be used: {error}") from error
    if collection.report_count < task.minimum:
        raise ProtocolError(
            f"the sum of task {name.hex()[:12]} is over {collection.report_count} reports; "
            f"{task.minimum} were to be "
            "the fewest. A server does not keep to the task"
        )
    return answer_of(task, numbers), collection.report_count


def _opened(
    keys: CollectorKeys, task: Task, name: bytes, share: HpkeCiphertext, server: Role
) -> bytes:
    aad = AggregateShareAad(name, b"", BatchSelector(batch_interval=_whole(task))).encode()
    try:
        return keys.hpke.open(share, aggregate_share_info(server), aad)
    except DapError as error:
        raise DapError(f"the {server.name.lower()}'s share: {error}", error.kind) from error


def _whole(task: Task) -> Interval:
    return Interval(task.begin, task.end - task.begin)
