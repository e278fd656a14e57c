"""One run of the recommender, from the first offer to the model."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from hdpmf.common.protocol import AnyCatalogue, ItemFacts, Plan, Round, Survey, Terms
from hdpmf.common.protocol.catalogue import KnownItems, known_items
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.common.protocol.federation import RUN_BYTES
from hdpmf.untrusted.recommender.one_round import Answer
from hdpmf.untrusted.recommender.rounds import RandomSource
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.service.aggregation import Aggregation
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.outcome import RunOutcome, outcome_of
from hdpmf.untrusted.service.run_files import Checkpoint, RunFiles
from hdpmf.untrusted.service.settings import Pace, RunSettings
from hdpmf.untrusted.service.survey import SurveyRun
from hdpmf.untrusted.service.training import TrainingRun


def no_log(line: str) -> None:
    """Discard a line."""


@dataclass(kw_only=True)
class Run:
    """A run and its state. Every step is in the checkpoint before anybody sees it.

    Attributes:
        table: The items, as they are published.
        enrolled: The roster; it does not change during a run.
        aggregation: Collects contributions.
        id: A new one where not given.
        only: The devices that are asked; everyone on the roster where not given.
        files: For checkpoints; none where not given.
        pace: Waiting times.
        log: Called with lines for people.
        cohort: The devices that are asked.
        known: The items, as the recommender computes with them.
        checkpoint: The state to resume from.
    """

    settings: RunSettings
    table: AnyCatalogue
    enrolled: Enrolled
    aggregation: Aggregation
    id: bytes = field(default_factory=lambda: secrets.token_bytes(RUN_BYTES))
    only: frozenset[str] | None = None
    files: RunFiles = field(default_factory=RunFiles)
    pace: Pace = field(default_factory=Pace)
    metrics: Metrics = field(default_factory=Metrics)
    log: Callable[[str], None] = no_log
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.cohort = frozenset(self.enrolled.users) if self.only is None else self.only
        self.known: KnownItems = known_items(self.table)
        self.checkpoint: Checkpoint = self.files.load()
        self.aggregation.attach(self)
        self.metrics.run_begins(self.id, self.checkpoint.refusals)
        self.metrics.method = self.settings.method
        self.metrics.rounds = self.settings.rounds
        self.metrics.number = 0

    @property
    def terms(self) -> Terms:
        """Return the terms for devices."""
        users = self.enrolled.users
        asked = [users[device] for device in self.cohort]
        return self.settings.terms(self.known.fingerprint, users.values(), asked)

    def save(self) -> None:
        """Keep how far the run is."""
        self.checkpoint.refusals = self.metrics.refusals_of_run
        self.files.save(self.checkpoint)

    def stage(self, words: str) -> None:
        """Say what is under way."""
        self.metrics.stage = words
        self.log(words)

    def enough(self, devices: Collection[str]) -> bool:
        """Return whether these devices count for the smallest number of users allowed."""
        counted = self.settings.counted(self.enrolled.users[device] for device in devices)
        return counted >= self.settings.minimum

    def impossible(self, changed: int, users: int) -> None:
        """Log that numbers of a sum were clamped to what is possible; a sum hides who sent them."""
        if changed:
            self.metrics.impossible += changed
            self.checkpoint.impossible += changed
            self.log(
                f"{changed} numbers of the sum cannot come from {users} users and were brought to "
                "what can: a device has sent wrong numbers, and a secure sum hides which"
            )

    def conduct(
        self, *, earlier: Sequence[SurveyAnswer] = (), random_source: RandomSource | None = None
    ) -> RunOutcome:
        """Bring the run to its end, from its last checkpoint.

        Args:
            earlier: Answers to the same survey in other runs.
            random_source: Draws h and the first factors; from the operating system where not given.
        """
        before = (self.metrics.bytes_in, self.metrics.bytes_out)
        numbers: Round | ItemFacts
        plan: Plan | Survey
        answer: Answer | None = None
        if self.settings.one_round:
            survey = SurveyRun(self, earlier)  # refuses what nobody should be asked
            self.aggregation.gather()
            answer, numbers = survey.conduct()
            plan = survey.survey
        else:
            self.aggregation.gather()
            training = TrainingRun(
                self, SystemRandomSource() if random_source is None else random_source
            )
            numbers = training.conduct()
            plan = training.plan
        return outcome_of(self, numbers, plan, answer, earlier=earlier, traffic=before)


class SystemRandomSource:
    """Draws from the operating system's entropy, which nobody can repeat.

    That is why a round is kept on disk before it is sent.
    """

    def exponentials(self, shape: tuple[int, ...]) -> np.ndarray:
        """Exp(1) draws."""
        return np.asarray(-np.log(_uniforms(shape)), np.float32)

    def normals(self, shape: tuple[int, ...]) -> np.ndarray:
        """N(0, 1) draws (Box and Muller)."""
        radius = np.sqrt(-2.0 * np.log(_uniforms(shape)))
        return np.asarray(radius * np.cos(2.0 * np.pi * _uniforms(shape)), np.float32)


def _uniforms(shape: tuple[int, ...]) -> np.ndarray:
    """Draws from (0, 1): 52 bits and a half, so that neither end is reached."""
    n = int(np.prod(shape))
    words = np.frombuffer(os.urandom(8 * n), np.uint64) >> np.uint64(12)
    return ((words.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)
