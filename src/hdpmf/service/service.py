"""The service: begins runs, goes on with those that were killed, and writes down how they ended."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hdpmf.errors import ConfigError, FederationError
from hdpmf.protocol import DeviceCard, ItemFacts, ListTable, Opening, Round, decode
from hdpmf.protocol.federation import RUN_BYTES
from hdpmf.protocol.lists import digest_of
from hdpmf.public.model import PublicModel
from hdpmf.recommender.one_round import Answer
from hdpmf.recommender.recommender import Draws
from hdpmf.service.channel import RunChannel
from hdpmf.service.delivery import hand_out
from hdpmf.service.draws import SystemDraws
from hdpmf.service.enrolment import Enrolled
from hdpmf.service.folder import RunRecord, ServiceFolder
from hdpmf.service.metrics import Metrics
from hdpmf.service.run import FederatedRun, no_log
from hdpmf.service.run_files import kept
from hdpmf.service.settings import RunSettings
from hdpmf.service.statement import Statement, state
from hdpmf.service.survey import SurveyRun, kept_answer
from hdpmf.service.training import TrainingRun
from hdpmf.transport import RecommenderTransport


@dataclass(frozen=True, slots=True, repr=False)
class RunOutcome:
    """How a run ended.

    Attributes:
        model: The result.
        statement: What the recommender could see and what that is worth.
        answer: Of a survey, what this run's devices answered.
        summary: All of it that is worth keeping, as plain values.
    """

    run: bytes
    model: PublicModel
    statement: Statement
    answer: Answer | None
    summary: dict[str, Any]


def conduct(run: FederatedRun, *, earlier: Sequence[Answer] = (), draws: Draws | None = None) -> RunOutcome:
    """One run from its first message to its result, or on from where its files say that it was.

    ``earlier`` are answers of other cohorts to the same survey. Without ``draws`` the operating system draws.
    """
    settings, metrics, checkpoint = run.settings, run.metrics, run.checkpoint
    before = (metrics.bytes_in, metrics.bytes_out)
    numbers: Round | ItemFacts
    answer: Answer | None = None
    survey = SurveyRun(run, earlier) if settings.one_round else None  # refuses what nobody should be asked
    run.gather()
    if survey is not None:
        answer, numbers = survey.conduct()
        plan: Any = survey.survey
    else:
        training = TrainingRun(run, SystemDraws() if draws is None else draws)
        numbers, plan = training.conduct(), training.plan
    metrics.stage = "done"
    opening = decode(checkpoint.opening) if checkpoint.opening else None
    statement = state(
        settings,
        run.known.scale,
        noise_budget=opening.noise_budget if isinstance(opening, Opening) else None,
    )
    facts = {
        "run": run.id.hex(),
        "method": settings.method,
        "catalogue": run.known.fingerprint,
        "settings": msgspec.to_builtins(settings),
        "privacy": statement.as_dict(),
    }
    summary = facts | {
        "devices": len(checkpoint.members),
        "users": run.enrolled.count_users(checkpoint.members),
        "rounds": len(checkpoint.users),
        "rounds_lost": len(checkpoint.lost),
        "least_users_in_a_round": min(checkpoint.users, default=0),
        "seconds": sum(checkpoint.seconds),
        "bytes_in": metrics.bytes_in - before[0],
        "bytes_out": metrics.bytes_out - before[1],
        "refusals": dict(metrics.refusals),
        "impossible_numbers": checkpoint.impossible,
        "wrong_shares": list(checkpoint.barred),
        "delivered": len(checkpoint.delivered),
        "cohorts": 1 + len(earlier),
    }
    lists = kept(checkpoint.lists, ListTable) if checkpoint.lists else None
    if lists is not None:
        summary["lists"] = {
            "kind": settings.list_model,
            "bytes": len(checkpoint.lists),
            "sha256": digest_of(checkpoint.lists),
        }
    model = PublicModel.of_run(facts, run.table, numbers, plan, lists)
    return RunOutcome(run.id, model, statement, answer, summary)


class Service:
    """A recommender with a folder."""

    def __init__(
        self,
        folder: ServiceFolder,
        transport: RecommenderTransport,
        *,
        metrics: Metrics | None = None,
        log: Callable[[str], None] = no_log,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.folder = folder
        self.metrics = Metrics() if metrics is None else metrics
        self._transport = transport
        self._log = log
        self._sleep = sleep
        self.metrics.listeners.append(self._write_state)

    def begin(self, settings: RunSettings) -> bytes:
        """Write down a new run; a survey asks only devices that have not answered one like it."""
        if self.folder.unfinished() is not None:
            raise ConfigError("a run is under way; let it end, or give it up with: hdpmf recommender serve --give-up")
        if settings.view == "two-servers":
            raise ConfigError("sums by two servers come from a task that they are given, not from a run with devices")
        enrolled = self.folder.enrolled
        if settings.one_round:
            settings.survey(self.folder.known)  # refuses what this catalogue has no features for
        earlier = self._earlier(settings)
        if earlier and settings.labels is not None:
            raise FederationError(
                "devices have answered by labels already, and such answers are not put together with those of others; "
                "new devices can have the model (--stay), or a run without labels"
            )
        answered = {name for past in earlier for name in self.folder.run_files(past).load().members}
        cohort = [card.identity for card in enrolled.cards if card.identity not in answered]
        if not cohort:
            raise FederationError("every enrolled device has answered already; enrol new devices first")
        asked = [enrolled.users[device] for device in cohort]
        settings.terms("-", enrolled.users.values(), asked)  # refuses a minimum that can never be reached
        run = secrets.token_bytes(RUN_BYTES)
        self.folder.begin_run(
            run,
            RunRecord(
                settings=settings,
                devices=enrolled.cards,
                cohort=tuple(cohort),
                earlier=tuple(past.hex() for past in earlier),
            ),
        )
        return run

    def conduct(self, run: bytes) -> RunOutcome:
        """A run that was begun, to its end."""
        record, files = self.folder.record(run), self.folder.run_files(run)
        outcome = conduct(
            FederatedRun(
                settings=record.settings,
                table=self.folder.catalogue,
                enrolled=Enrolled(record.devices),
                transport=self._transport,
                id=run,
                only=frozenset(record.cohort),
                files=files,
                pace=self.folder.config.pace,
                metrics=self.metrics,
                log=self._log,
                sleep=self._sleep,
            ),
            earlier=[self._answer(bytes.fromhex(name)) for name in record.earlier],
        )
        self.folder.finish(run, outcome.model, msgspec.json.format(msgspec.json.encode(outcome.summary), indent=1))
        self._write_state()
        return outcome

    def hand_out(self) -> int:
        """Give the last result to devices that are there and do not have it yet; how many took it."""
        model = self.folder.model()
        if model is None:
            raise FederationError("there is no model to hand out; let a run end first")
        run = bytes.fromhex(model.about["run"])
        files = self.folder.run_files(run)
        checkpoint = files.load()
        wanting = (self._transport.present() & set(self.folder.enrolled.users)) - set(checkpoint.delivered)
        took = hand_out(
            model, RunChannel(self._transport, run, self.metrics), wanting, self.folder.config.pace.deadline
        )
        if took:
            checkpoint.delivered = tuple(sorted(took | set(checkpoint.delivered)))
            files.save(checkpoint)
            self._log(f"{len(took)} more devices have the model")
        return len(took)

    def stay(self, admit: Callable[[DeviceCard], None] = lambda card: None) -> None:
        """Hand the result to whoever comes, until interrupted.

        Args:
            admit: Lets a device connect; told every card on the roster again and again, since people enrol meanwhile.
        """
        self.metrics.stage = "handing out the model"
        self._log(self.metrics.stage)
        while True:
            for card in self.folder.enrolled.cards:
                admit(card)
            self.hand_out()
            self._write_state()
            self._sleep(max(self.folder.config.pace.pause, 0.1))

    def _write_state(self) -> None:
        self.folder.write_state(msgspec.json.encode(self.metrics.as_dict()))

    def give_up(self, run: bytes) -> None:
        """End a run without a result. What devices have paid for it stays paid."""
        self.folder.finish(run, None, msgspec.json.encode({"run": run.hex(), "given_up": True}))

    def _earlier(self, settings: RunSettings) -> list[bytes]:
        """Finished surveys that ask the same of a rating, so that their answers can be put together."""
        if not settings.one_round:
            return []
        return [
            run
            for run in self.folder.runs()
            if self.folder.run_files(run).load().answer and _asks_the_same(self.folder.record(run).settings, settings)
        ]

    def _answer(self, run: bytes) -> Answer:
        return kept_answer(self.folder.run_files(run).load())


def _asks_the_same(before: RunSettings, now: RunSettings) -> bool:
    names = ("method", "epsilon", "design", "coding", "rounds")  # by labels there are two
    return all(getattr(before, name) == getattr(now, name) for name in names)
