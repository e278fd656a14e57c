"""Counts about a recommender's runs; nothing is about the content of messages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

_RECENT = 20


@dataclass
class Metrics:
    """Counts since the process began. One thread writes; others may read at any moment.

    Attributes:
        stage: The activity, in a few words.
        run: Id of the run under way.
        rounds: T of the run under way.
        number: The round under way.
        rounds_done: Completed, over all runs.
        rounds_lost: Given up because a secure sum broke off.
        impossible: Numbers of sums that were clamped to what so many users can have.
        participants: Users in the last completed round.
        members: Devices of the run under way.
        present: Devices that are connected.
        bytes_in: From devices.
        bytes_out: To devices.
        refusals: By reason: a device's own word, or ours for a reply that could not be taken.
        requests: Of devices and everybody else, by status.
        round_seconds: Of all completed rounds together.
        until: Unix time at which the wait under way ends, if known.
        not_begun: Why the run that was asked for, or is due, cannot begin; empty if it can.
        listeners: Called after every round, and now and then in a wait.
    """

    stage: str = "idle"
    run: str = ""
    method: str = ""
    rounds: int = 0
    number: int = 0
    rounds_done: int = 0
    rounds_lost: int = 0
    impossible: int = 0
    participants: int = 0
    members: int = 0
    present: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    messages: int = 0
    replies: int = 0
    round_seconds: float = 0.0
    until: float | None = None
    not_begun: str = ""
    refusals: Counter[str] = field(default_factory=Counter)
    requests: Counter[int] = field(default_factory=Counter)
    listeners: list[Callable[[], None]] = field(default_factory=list)
    _recent: list[float] = field(default_factory=list)
    _began: float | None = None
    _refused_before: Counter[str] = field(default_factory=Counter)
    _refused_of_run: Counter[str] = field(default_factory=Counter)

    def run_begins(self, run: bytes, refusals: Mapping[str, int] | None = None) -> None:
        """Count for this run, which had these refusals before, from now on."""
        self.run = run.hex()
        self._refused_before = Counter(self.refusals)
        self._refused_of_run = Counter(refusals or {})

    @property
    def refusals_of_run(self) -> dict[str, int]:
        """Refusals since the run under way began, also in processes that were killed."""
        return dict(self.refusals - self._refused_before + self._refused_of_run)

    def round_begins(self, number: int) -> None:
        """The clock of a round starts."""
        self.number = number
        self._began = time.monotonic()

    def round_ends(self, participants: int, *, lost: bool = False) -> float:
        """The clock of a round stops; its seconds."""
        seconds = 0.0 if self._began is None else time.monotonic() - self._began
        self._began = None
        if lost:
            self.rounds_lost += 1
        else:
            self.rounds_done += 1
            self.participants = participants
            self.round_seconds += seconds
            self._recent = [*self._recent[-_RECENT + 1 :], seconds]
        for listen in self.listeners:
            listen()
        return seconds

    @property
    def recent_round(self) -> float | None:
        """Seconds of a round, as the last ones were."""
        return sum(self._recent) / len(self._recent) if self._recent else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the wait under way, or the run at the speed of the last rounds, ends."""
        if self.until is not None:
            return max(self.until - time.time(), 0.0)
        each = self.recent_round
        return None if each is None else each * max(self.rounds - self.number, 0)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = [
            each.name
            for each in fields(self)
            if each.name[0] != "_" and each.name not in ("listeners", "refusals", "requests")
        ]
        return {name: getattr(self, name) for name in names} | {
            "refusals": dict(self.refusals),
            "refusals_of_run": self.refusals_of_run,
        }
