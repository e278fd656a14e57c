"""One run of the recommender: two tasks for two servers, and the model made of their sums.

The first sums rows over all items; of what it releases the heads are picked, whose pairs the second
sums. All of it is within one budget of the person.

Nobody has to be online at the same time. The recommender learns who asked for a token, which says
nothing about the report that comes with it: it signs blindly. Every step is in the checkpoint
before it happens: a killed run resumes with the same task and request.
"""

import dataclasses
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from hdpmf.common.aggregation.two_servers.dap.hpke import aggregate_share_info
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregateShareAad,
    CollectionJobReq,
    CollectionJobResp,
    HpkeCiphertext,
    Interval,
    Problem,
    Role,
)
from hdpmf.common.aggregation.two_servers.tokens import IssuerKey
from hdpmf.common.net.sum_servers import SumServers
from hdpmf.common.privacy.pairs import LINEAR_BITS, PAIR_BITS, Heads, limit_of
from hdpmf.common.protocol import CatalogueVersion
from hdpmf.common.protocol.catalogue import KnownItems, known_items
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.servers import Servers
from hdpmf.common.protocol.task import (
    Linear,
    Pairs,
    Task,
    configuration_of,
    prio_of,
    read_task,
    task_id,
)
from hdpmf.errors import DapError, FederationError, ProtocolError, RunOverError, TransportError
from hdpmf.untrusted.recommender.deconvolution import beside_public
from hdpmf.untrusted.recommender.pairs import PairsAnswer, facts_from_pairs, popularity_of
from hdpmf.untrusted.service.keys import CollectorKeys
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.outcome import RunOutcome, outcome_of
from hdpmf.untrusted.service.settings import (
    ATTEMPTS,
    RUN_BYTES,
    Checkpoint,
    Pace,
    Part,
    RunFiles,
    RunSettings,
    Trouble,
)
from hdpmf.untrusted.service.token_issuer import TokenIssuer

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

NOISES = 2
"""Times the whole noise is in a sum: each server adds it."""

_FINAL = (Problem.INVALID_BATCH_SIZE, Problem.BATCH_INVALID)

_AWAY = (
    "See that both servers run and can be reached; their operators see it, too. Nothing is lost: "
    "the sum is asked for until it is there"
)

_SLOW = (
    "See that the helper runs, can be reached from the leader and has the right time: reports wait "
    "there to be checked. Nothing is lost until 30 days after the period. To end the run, give it "
    "up (--give-up)"
)

_OVER = "The run is given up. What devices have paid for it stays paid"

R = TypeVar("R")


def no_log(line: str) -> None:
    """Discard a line."""


@dataclass(kw_only=True)
class Run:
    """A run and its state.

    Attributes:
        table: The items, as they are published.
        people: How many were enrolled when it began.
        servers: The pair.
        keys: That the pair knows this recommender by.
        sum_servers: The way to the pair.
        publish: Shows devices the task that is under way, or that none is.
        issuer: Issues tokens to the enrolled while the task is under way. Without one the task is
            for everybody who can reach the leader: in simulations.
        follow_keys: Shows devices newer keys of the servers; called while reports are taken.
        id: A new one where not given.
        files: For checkpoints; none where not given.
        popularity: What is publicly known of how often items are chosen, if anything.
        log: Called with lines for people.
        known: The items, as the recommender computes with them.
        checkpoint: The state to resume from.
    """

    settings: RunSettings
    table: CatalogueVersion
    people: int
    servers: Servers
    keys: CollectorKeys
    sum_servers: SumServers
    publish: Callable[[bytes | None], None] = lambda document: None
    issuer: TokenIssuer | None = None
    follow_keys: Callable[[], None] = lambda: None
    id: bytes = field(default_factory=lambda: secrets.token_bytes(RUN_BYTES))
    files: RunFiles = field(default_factory=RunFiles)
    popularity: np.ndarray | None = None
    pace: Pace = field(default_factory=Pace)
    metrics: Metrics = field(default_factory=Metrics)
    log: Callable[[str], None] = no_log
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.known: KnownItems = known_items(self.table)
        self.checkpoint: Checkpoint = self.files.load()
        self.metrics.run = self.id.hex()

    def conduct(self) -> RunOutcome:
        """Bring the run to its end, from its last checkpoint."""
        checkpoint, known = self.checkpoint, self.known
        plan = self.settings.plan(known, self.people)
        linear = Linear(
            items=plan.items,
            bits=LINEAR_BITS,
            bound=limit_of(LINEAR_BITS),
            cap=self.settings.cap,
            presence=plan.linear,
            values=plan.values,
        )
        rows = self._sum(checkpoint.linear, linear)
        # Not everybody who is asked answers.
        plan = dataclasses.replace(plan, people=checkpoint.linear.reports)
        answered = rows[: plan.items], rows[plan.items :]
        popularity = popularity_of(plan, answered[0], NOISES)
        popularity[known.retired] = -np.inf
        heads = Heads.of(popularity, plan.heads)
        pairs = Pairs(
            heads=tuple(heads.items.tolist()),
            weights=tuple(heads.weights.tolist()),
            bits=PAIR_BITS,
            bound=limit_of(PAIR_BITS),
            cap=self.settings.cap,
            deviation=plan.pairs,
        )
        answer = PairsAnswer(*answered, heads, self._sum(checkpoint.pairs, pairs), NOISES)
        self._stage("making a model of the sums")
        facts, lists = facts_from_pairs(plan, answer, known.features, known.fingerprint)
        popular = facts.popularity.copy()
        popular[known.retired] = 0.0
        facts = beside_public(replace(facts, popularity=popular), self.popularity)
        self.metrics.runs_done += 1
        self.metrics.reports = checkpoint.pairs.reports
        self.metrics.tell()
        return outcome_of(self, facts, lists)

    def _sum(self, part: Part, sums: Linear | Pairs) -> np.ndarray:
        """Give a task to both servers, publish it, wait for its end, and collect the sum."""
        if part.numbers:
            return part.sum
        task = self._task(part, sums)
        if not part.collection:
            self._take_reports(part, task)
            self._collect(part, task)
        numbers, part.reports = open_collection(part.document, part.collection, self.keys)
        enrolled = self.people if self.issuer is None else len(self.issuer.participants)
        if part.reports > enrolled:
            raise FederationError(
                f"the servers counted {part.reports} reports, more than people are enrolled: a "
                "server does not keep to the task, and its sum is not used",
                "Give the run up (--give-up)",
            )
        self.log(f"{part.reports} reports are in the sum")
        part.numbers = numbers.astype("<i8").tobytes()
        self.files.save(self.checkpoint)
        return part.sum

    def _task(self, part: Part, sums: Linear | Pairs) -> Task:
        """Return the task, as before a kill or new, and saved before anybody sees it."""
        if not part.document:
            key = None if self.issuer is None else IssuerKey.generate()
            begin = -int(-self.clock() // self.settings.rounded) * self.settings.rounded
            part.document = Task(
                servers=self.servers,
                collector=self.keys.card,
                sums=sums,
                catalogue=self.known.fingerprint,
                run=to_base64(self.id),
                asked=self.settings.asked,
                begin=begin,
                end=begin + self.settings.period,
                precision=self.settings.rounded,
                minimum=self.settings.minimum,
                token_key="" if key is None else to_base64(key.public.encoded),
            ).to_bytes()
            if self.issuer is not None and key is not None:
                name = task_id(part.document)
                self.issuer.create(name, key, self.files.folder)
            self.files.save(self.checkpoint)
        return read_task(part.document)

    def _take_reports(self, part: Part, task: Task) -> None:
        name = task_id(part.document).hex()[:12]
        if not part.placed:
            if self.clock() >= task.end:
                raise FederationError(
                    f"the period of task {name} was over before both servers had it; nobody has "
                    "reported",
                    "Give the run up (--give-up), and begin a new one when both servers can be "
                    "reached",
                )
            self._stage(f"giving task {name} to {task.servers.names}")
            self._try(lambda: self.sum_servers.add_task(part.document))
            part.placed = True
            self.files.save(self.checkpoint)
        if self.clock() < task.end:
            self._issue(part, name)
            self.publish(part.document)
            self._wait(task, name)
        self.publish(None)
        if self.issuer is not None:
            self.issuer.drop(self.files.folder)

    def _issue(self, part: Part, name: str) -> None:
        """Give tokens to devices that ask, while the task is under way."""
        if self.issuer is None:
            return
        if not self.issuer.open(task_id(part.document), self.files.folder):
            self.log(
                f"task {name}: who has a token was forgotten, as after a restore; no more tokens "
                "are given out, and devices that have one report"
            )

    def _wait(self, task: Task, name: str) -> None:
        self._stage(f"task {name} takes reports")
        self.metrics.until = task.end
        while (left := task.end - self.clock()) > 0:
            self.metrics.tell()
            self.follow_keys()
            self.sleep(min(left, max(min(left / 20, LONGEST_WAIT), 1.0)))
        self.metrics.until = None

    def _collect(self, part: Part, task: Task) -> None:
        """Ask for the sum until it is there. The servers may need long: one of them may be away."""
        name = task_id(part.document)
        short = name.hex()[:12]
        self._stage(f"asking for the sum of task {short}")
        pause, said = self.pace.pause, ""
        while True:
            found = None
            try:
                # After a kill once more: the same bytes are the same job.
                found = self.sum_servers.collect(name, collection_request(task))
                words, remedy = "the servers are still summing", ""
                if self.clock() >= task.end + SLOW_SECONDS:
                    words = f"the sum of task {short} is not there long after its period"
                    remedy = _SLOW
            except TransportError as error:
                words, remedy = str(error), _AWAY
            except DapError as error:
                refused = _refused(error, task, short)
                patience = FINAL_SECONDS if error.kind in _FINAL else LOST_SECONDS
                if self.clock() < task.end + patience:
                    raise refused from error
                raise RunOverError(refused.cause, _OVER) from error
            if found is not None:
                part.collection = found
                self.files.save(self.checkpoint)
                return
            if self.clock() >= task.end + LOST_SECONDS:
                raise RunOverError(
                    f"the sum of task {short} did not come before the servers deleted what they "
                    f"had ({words})",
                    _OVER,
                )
            if words != said:
                self.log(f"{words}; asking again until it is there")
                trouble = Trouble(cause=words, remedy=remedy, at=self.clock()) if remedy else None
                self.files.keep_trouble(trouble)
            said = words
            self.sleep(pause)
            pause = min(max(2 * pause, 0.1), LONGEST_PAUSE)

    def _try(self, call: Callable[[], R]) -> R:
        """Return the result of a call, with a few retries if a server is unreachable."""
        attempt = 1
        while True:
            try:
                return call()
            except TransportError as error:
                if attempt == ATTEMPTS:
                    raise FederationError(
                        f"{error}; tried {attempt} times",
                        "The run is kept, and tried again while it is served: see that both "
                        "servers run and can be reached",
                    ) from error
                self.log(f"{error}; trying again")
                self.sleep(self.pace.pause)
            except (DapError, ProtocolError) as error:
                raise FederationError(
                    f"a server refuses the task: {error}",
                    "Has its operator admitted this recommender (hdpmf aggregator admit FOLDER "
                    "collector-card.json)?",
                ) from error
            attempt += 1

    def _stage(self, words: str) -> None:
        self.metrics.stage = words
        self.log(words)


def _refused(error: DapError, task: Task, name: str) -> FederationError:
    what = f"the servers refuse the sum of task {name}"
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
        f"{what} ({error.kind}): {error}. Nothing was released", f"{give_up} if this stays so"
    )


def collection_request(task: Task) -> bytes:
    """Return the request for the whole sum of a task: always the same bytes."""
    return _wanted(task).encode()


def open_collection(document: bytes, data: bytes, keys: CollectorKeys) -> tuple[np.ndarray, int]:
    """Return the sum in a DAP ``CollectionJobResp`` of the leader, and its number of reports.

    Raises:
        ProtocolError: The sum is not what the task asks for, or cannot be opened.
    """
    task = read_task(document)
    name = task_id(document)
    try:
        collection = CollectionJobResp.decode(data)
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
            f"{task.minimum} were to be the fewest. A server does not keep to the task"
        )
    limit = 1 << 62  # no honest sum is beyond
    clipped = [min(max(number, -limit), limit) for number in numbers]
    return np.array(clipped, np.int64), collection.report_count


def _opened(
    keys: CollectorKeys, task: Task, name: bytes, share: HpkeCiphertext, server: Role
) -> bytes:
    aad = AggregateShareAad(name, configuration_of(task, name), _wanted(task)).encode()
    try:
        return keys.hpke.open(share, aggregate_share_info(server), aad)
    except DapError as error:
        raise DapError(f"the {server.name.lower()}'s share: {error}", error.kind) from error


def _wanted(task: Task) -> CollectionJobReq:
    whole = Interval(task.begin, task.end - task.begin)
    return CollectionJobReq(whole.in_steps(task.precision))
