"""The other server's clock beside this one's.

Which reports are too early, and when a batch is over, is a question of time. Where two servers
answer it differently, reports that one of them has confirmed are rejected by the other, or a batch
is closed before people have reported. So the clocks are compared before a report is taken, by the
``Date`` header of HTTP: the leader asks the helper now and then, and its requests say its own time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class PartnerClock:
    """The other server's clock, as far as it is known.

    Between two comparisons it goes on by the machine's monotonic clock, so that a jump of this
    server's own clock is seen at once, also while the other server is away.

    Args:
        clock: This server's, seconds since 1970.
        tolerance: Seconds by which the two may differ.
        monotonic: Seconds since any moment, which nobody sets.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        tolerance: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._tolerance = tolerance
        self._monotonic = monotonic
        self._guard = threading.Lock()
        self._ahead: float | None = None  # of the monotonic clock
        self._heard = 0.0

    def compare(self, theirs: float) -> None:
        """Take note of the other server's time, which is theirs now."""
        with self._guard:
            self._heard = self._monotonic()
            self._ahead = theirs - self._heard

    @property
    def skew(self) -> float | None:
        """Seconds by which the other clock is ahead; None before the first comparison."""
        with self._guard:
            ahead = self._ahead
        return None if ahead is None else ahead + self._monotonic() - self._clock()

    @property
    def differs(self) -> bool:
        """True if the clocks are known to differ by more than they may."""
        skew = self.skew
        return skew is not None and abs(skew) > self._tolerance

    def heard_within(self, seconds: float) -> bool:
        """Return True if the other server was heard of so recently."""
        with self._guard:
            return self._ahead is not None and self._monotonic() - self._heard <= seconds

    def earlier(self) -> float:
        """Return the time of the clock that is behind."""
        return self._clock() + min(self.skew or 0.0, 0.0)
