"""What the recommender counts about its runs. Nothing here is about what was in a message."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

_RECENT = 20


class Metrics:
    """Counts since the process began. One thread writes; others may read at any moment.

    Attributes:
        stage: What is under way, in a few words.
        method: Of the run under way.
        rounds: T of the run under way.
        number: The round that is under way.
        rounds_done: Rounds that were completed, over all runs.
        rounds_lost: Rounds that were given up because a secure sum broke off.
        participants: Users in the last completed round.
        members: Devices of the run under way.
        present: Devices that are connected.
        bytes_in: Received from devices.
        bytes_out: Sent to devices.
        messages: Sent.
        replies: Received.
        refusals: By reason: a device's own word, or ours for a reply that could not be taken.
        round_seconds: Of all completed rounds together.
        listeners: Called after every round.
    """

    def __init__(self) -> None:
        self.stage = "idle"
        self.method = ""
        self.rounds = 0
        self.number = 0
        self.rounds_done = 0
        self.rounds_lost = 0
        self.participants = 0
        self.members = 0
        self.present = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages = 0
        self.replies = 0
        self.refusals: Counter[str] = Counter()
        self.round_seconds = 0.0
        self.listeners: list[Callable[[], None]] = []
        self._recent: list[float] = []
        self._began: float | None = None

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
        """Until the run's last round is done, at the speed of the last rounds."""
        each = self.recent_round
        return None if each is None else each * max(self.rounds - self.number, 0)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = (
            "stage", "method", "rounds", "number", "rounds_done", "rounds_lost", "participants", "members", "present",
            "bytes_in", "bytes_out", "messages", "replies", "round_seconds",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names} | {"refusals": dict(self.refusals)}
