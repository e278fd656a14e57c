"""A clock that tests move."""

from __future__ import annotations

HOUR = 3600


class Clock:
    """The time, which only tests move."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass, as `time.sleep` does."""
        self.now += seconds
