"""A run of ``hdp-sum`` whose sums two servers make: publish a task, wait until its period is over, collect the sum.

Nobody has to be online at the same time, and the recommender does not learn who reported. With taste labels there are
two tasks, one after the other: counts, then the survey by labels. Every step is in the checkpoint before it happens:
whoever goes on after a kill has the same task and asks for the same sum.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from hdpmf.dap import JOB_ID_SIZE, Problem
from hdpmf.errors import DapError, FederationError, ProtocolError, TransportError
from hdpmf.protocol import AnyCatalogue, Grouping, ItemFacts, Popularity, SumContribution, Survey, encode
from hdpmf.protocol.catalogue import KnownItems, known_items
from hdpmf.protocol.enrolled import Enrolled
from hdpmf.protocol.federation import RUN_BYTES
from hdpmf.protocol.servers import Servers
from hdpmf.protocol.task import Part, Task, task_id
from hdpmf.recommender.one_round import OneRoundRecommender
from hdpmf.recommender.possible import possible
from hdpmf.recommender.runs import Answered
from hdpmf.service.collector import NOISES, collection_request, make_task, open_collection, read_task
from hdpmf.service.collector_keys import CollectorKeys
from hdpmf.service.metrics import Metrics
from hdpmf.service.run import no_log
from hdpmf.service.run_files import Checkpoint, Period, RunFiles, kept
from hdpmf.service.settings import Pace, RunSettings
from hdpmf.transport.summing import SumServers

LONGEST_PAUSE = 30.0
"""Seconds between two questions to the leader, at most."""

LONGEST_WAIT = 600.0
"""Seconds between two words on how long the period still takes, at most; towards its end they come more often."""

A = TypeVar("A", SumContribution, Popularity)
T = TypeVar("T")


def not_published(document: bytes | None) -> None:
    """Nobody reads it."""


@dataclass(kw_only=True)
class PeriodRun:
    """One run, from its task to the item facts.

    Attributes:
        table: The items, as devices get them.
        enrolled: Who may report; it does not change during a run.
        servers: The pair.
        keys: The recommender's.
        door: The way to the pair.
        publish: Shows devices the task under way, or takes it down (None). It may be told the same again.
        id: The run's id; a new one where not given.
        files: Where checkpoints go; nowhere where not given.
        pace: How long to wait.
        log: Told what happens, in lines for people.
        sleep: For tests.
        clock: For tests.
        known: The items, as the recommender computes with them.
        checkpoint: How far the run is.
    """

    settings: RunSettings
    table: AnyCatalogue
    enrolled: Enrolled
    servers: Servers
    keys: CollectorKeys
    door: SumServers
    publish: Callable[[bytes | None], None] = not_published
    id: bytes = field(default_factory=lambda: secrets.token_bytes(RUN_BYTES))
    files: RunFiles = field(default_factory=RunFiles)
    pace: Pace = field(default_factory=Pace)
    metrics: Metrics = field(default_factory=Metrics)
    log: Callable[[str], None] = no_log
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.known: KnownItems = known_items(self.table)
        self.checkpoint: Checkpoint = self.files.load()
        self.survey: Survey = self.settings.survey(self.known, self.settings.sharing(()))
        self._recommender = OneRoundRecommender(
            self.survey, self.known.features, score=self.settings.labels, retired=self.known.retired
        )
        metrics = self.metrics
        metrics.run_begins(self.id)
        metrics.method, metrics.rounds, metrics.number = self.settings.method, self.settings.rounds, 0

    @property
    def users(self) -> int:
        """Reports in the last sum."""
        return self.checkpoint.users[-1] if self.checkpoint.users else 0

    def conduct(self, earlier: Sequence[Answered] = ()) -> tuple[SumContribution, ItemFacts]:
        """The answer in this run's sums, and the facts from all answers.

        Args:
            earlier: What came of earlier runs of the same design; devices report only ratings that are in none.
        """
        checkpoint, labels = self.checkpoint, self.survey.labels
        if checkpoint.stage in ("gather", "open"):
            checkpoint.stage = "count" if labels else "work"
        if checkpoint.stage == "count":
            counted = self._sum(0, "counts", None, Popularity)
            grouping = self._recommender.group([counted], NOISES)
            # Kept before it is published: whoever goes on after a kill has the same.
            checkpoint.counted, checkpoint.round, checkpoint.stage = encode(counted), encode(grouping), "work"
            self._save()
        if labels:
            self._recommender.resume([kept(checkpoint.counted, Popularity)], kept(checkpoint.round, Grouping))
        if checkpoint.stage == "work":
            by = kept(checkpoint.round, Grouping) if labels else None
            summed = self._sum(1 if labels else 0, "labels" if labels else "whole", by, SumContribution)
            checkpoint.answer, checkpoint.stage = encode(summed), "deliver"
            self._save()
        answer = kept(checkpoint.answer, SumContribution)
        facts = self._recommender.facts([answer], n_sums=NOISES, earlier=earlier)
        facts = msgspec.structs.replace(facts, prior=self.settings.prior)
        if checkpoint.stage == "deliver":
            checkpoint.stage = "done"
            self._save()
        return answer, facts

    def _sum(self, number: int, part: Part, grouping: Grouping | None, kind: type[A]) -> A:
        """One task, from its document to the answer in its sum."""
        self.metrics.round_begins(number)
        period = self._period(number, part, grouping)
        if not period.collection:
            self._take_reports(period)
            self._collect(period)
        answer, reports = open_collection(period.document, period.collection, self.keys)
        if not isinstance(answer, kind):
            raise FederationError("the checkpoint holds the task of another step; start a new run")
        if reports > self.enrolled.count_users(self.enrolled.users):
            raise FederationError(
                f"the servers counted {reports} reports, more than users are enrolled: a server does not keep to the "
                "task, and its sum is not used. Give the run up (--give-up)"
            )
        answer, changed = possible(self.survey, answer, reports, NOISES)
        if changed:
            self.metrics.impossible += changed
            self.checkpoint.impossible += changed
            self.log(f"{changed} numbers of the sum cannot come from {reports} reports and were brought to what can")
        self.checkpoint.users.append(reports)
        self.checkpoint.seconds.append(self.metrics.round_ends(reports))
        self.log(f"{reports} reports are in the sum")
        return answer

    def _period(self, number: int, part: Part, grouping: Grouping | None) -> Period:
        """The task of a step: the one that was made before, or a new one, which is kept before anybody sees it."""
        periods = self.checkpoint.periods
        if number == len(periods):
            task = make_task(self.settings, self.known, self.servers, self.keys, self.clock(), part, grouping)
            periods.append(Period(document=encode(task), job=secrets.token_bytes(JOB_ID_SIZE)))
            self._save()
        return periods[number]

    def _take_reports(self, period: Period) -> None:
        """Give the task to both servers, publish it, and wait until its period is over."""
        task, name = read_task(period.document), task_id(period.document).hex()[:12]
        if not period.placed:
            if self.clock() >= task.end:
                raise FederationError(
                    f"the period of task {name} was over before both servers had it; nobody has reported. Give the run "
                    "up (--give-up), and begin a new one when both servers can be reached"
                )
            self._stage(f"giving task {name} to {task.servers.names}")
            devices = [(card.identity, card.users) for card in self.enrolled.cards]
            self._try(lambda: self.door.add_task(period.document, devices))
            period.placed = True
            self._save()
        if self.clock() < task.end:
            self.publish(period.document)
            self._wait(task, name)
        self.publish(None)

    def _wait(self, task: Task, name: str) -> None:
        self._stage(f"task {name} takes reports")
        self.metrics.until = task.end
        while (left := task.end - self.clock()) > 0:
            for listen in self.metrics.listeners:
                listen()
            self.sleep(min(left, max(min(left / 20, LONGEST_WAIT), 1.0)))
        self.metrics.until = None

    def _collect(self, period: Period) -> None:
        """Ask for the sum until it is there. The servers may need long: one of them may be away."""
        task, name = read_task(period.document), task_id(period.document)
        self._stage(f"asking for the sum of task {name.hex()[:12]}")
        pause, said, asked = self.pace.pause, "", False
        while True:
            try:
                if not asked:
                    # After a kill once more: the same job, the same bytes.
                    self.door.begin_collection(name, period.job, collection_request(task))
                    asked = True
                found = self.door.collection(name, period.job)
                trouble = "" if found is not None else "the servers are still summing"
            except TransportError as error:
                found, trouble = None, str(error)
            except DapError as error:
                raise self._refused(error, task, name) from error
            if found is not None:
                period.collection = found
                self._save()
                return
            if trouble != said:
                self.log(f"{trouble}; asking again until it is there")
            said = trouble
            self.sleep(pause)
            pause = min(max(2 * pause, 0.1), LONGEST_PAUSE)

    def _refused(self, error: DapError, task: Task, name: bytes) -> FederationError:
        what = f"the servers refuse the sum of task {name.hex()[:12]}"
        give_up = "Give the run up (--give-up), and begin a new one"
        if error.kind == Problem.INVALID_BATCH_SIZE:
            return FederationError(
                f"{what}: fewer than {task.minimum} reports that count came in its period, or fewer than a server's "
                f"own minimum. Nothing was released. {give_up} with a longer --period, more devices or a lower "
                "--minimum (devices and servers have one of their own)"
            )
        if error.kind == Problem.UNAUTHORIZED_REQUEST:
            return FederationError(
                f"{what}: they do not know this recommender. Their operators admit it: hdpmf aggregator admit FOLDER "
                "collector-card.json. Nothing was released"
            )
        return FederationError(f"{what} ({error.kind}): {error}. Nothing was released. {give_up} if this stays so")

    def _try(self, call: Callable[[], T]) -> T:
        """What a call gives; where a server cannot be reached, it is tried again, a bounded number of times."""
        for attempt in range(1, self.pace.attempts + 1):
            try:
                return call()
            except TransportError as error:
                if attempt == self.pace.attempts:
                    raise FederationError(
                        f"{error}; tried {attempt} times. The run is kept and goes on when it is started again"
                    ) from error
                self.log(f"{error}; trying again")
                self.sleep(self.pace.pause)
            except (DapError, ProtocolError) as error:
                raise FederationError(
                    f"a server refuses the task: {error}. Has its operator admitted this recommender (hdpmf aggregator "
                    "admit FOLDER collector-card.json)?"
                ) from error
        raise FederationError("attempts must be at least 1")

    def _save(self) -> None:
        self.files.save(self.checkpoint)

    def _stage(self, words: str) -> None:
        self.metrics.stage = words
        self.log(words)
