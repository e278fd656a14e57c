"""Taking part: read what is public, decide, commit, seal, send, and take the answer.

A step either works on ratings or sends: a report is made before its moment, and leaves at it.
"""

import secrets
import time
from collections.abc import Callable

from hdpmf.common.protocol.published import Index
from hdpmf.errors import HdpmfError, TooLongError, TransportError
from hdpmf.private.device.carrier import Carrier
from hdpmf.private.device.decide import Sending, answered, decide, next_moment
from hdpmf.private.device.public import Published, index_wanted, read_index, wanted
from hdpmf.private.device.seal import Sealed, seal, status_in, token_in
from hdpmf.private.device.state import Joined, State
from hdpmf.private.device.state_file import ChangedError, StateFile

POLL_EVERY = 300.0
"""Seconds, about, between two looks at what is published."""

_SOON = 1.0
_TRIES = 16
_OS = secrets.SystemRandom()


class Participant:
    """Takes part with every recommender that was joined.

    Args:
        file: The device's, opened to take part.
        carrier: The way to recommenders and leaders.
        every: Seconds, about, between two looks at their files.
        clock: What time it is (Unix).
        log: Called with lines for the owner. They hold no rating.
    """

    def __init__(
        self,
        file: StateFile,
        carrier: Carrier,
        *,
        every: float = POLL_EVERY,
        clock: Callable[[], float] = time.time,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._file = file
        self._carrier = carrier
        self._every = every
        self._clock = clock
        self._log = log
        self._look_at = 0.0
        self._ready: list[tuple[Sending, Sealed]] = []
        self._version = 0  # of the state that they were made of

    def __repr__(self) -> str:
        return f"Participant({self._file!r})"

    def step(self) -> float:
        """Do what is due; return the seconds until there may be something to do again."""
        now = self._clock()
        if self._ready and self._file.load().version != self._version:
            self._ready.clear()  # the owner has changed something: it is decided again
        if self._ready:
            self._send_due(now)
        else:
            self._decide(now)
        return self._pause()

    def _pause(self) -> float:
        moments = [self._look_at]
        if self._ready:
            moments = [float(sending.at) for sending, _ in self._ready]
        else:
            due = next_moment(self._file.load().state)
            moments += [] if due is None else [float(due)]
        return max(min(moments) - self._clock(), _SOON)

    def _decide(self, now: float) -> None:
        """Look, decide and commit; make what is to be sent."""
        published = {}
        # Or the clock was put back.
        if now >= self._look_at or self._look_at > now + 3 * self._every:
            published = self._look(int(now))
            self._look_at = now + self._every * (0.5 + _OS.random())
        for _ in range(_TRIES):
            held = self._file.load()
            decision = decide(held.state, published, int(self._clock()))
            try:
                committed = self._file.commit(decision.state, held.version)
                break
            except ChangedError:
                continue  # the owner was here: it is decided again, on what was read
        else:
            return
        self._version = committed.version
        self._say(decision.said)
        for sending in decision.sending:
            try:
                self._ready.append((sending, seal(committed, sending, int(now))))
            except HdpmfError as error:
                self._log(f"not sent: {error}")
                self._take(sending, None)

    def _send_due(self, now: float) -> None:
        due = next((each for each in self._ready if each[0].at <= now), None)
        if due is None:
            return
        self._ready.remove(due)  # one at a time: meanwhile the owner may change something
        sending, sealed = due
        try:
            told = self._carrier.send(sealed)
        except TransportError as error:
            self._log(f"not reached: {error}")
            self._take(sending, None)
        else:
            self._take(sending, told.status, told.body)

    def _take(self, sending: Sending, status: int | None, body: bytes = b"") -> None:
        """Commit what came of something that was sent."""

        def change(state: State) -> State:
            token, answer, told = b"", state.of(sending.address).answer, status
            if sending.what == "report" and status == 200:
                told = status_in(body)
            if sending.what == "token" and status == 200 and answer is not None:
                token = token_in(answer, body)
            decision = answered(state, sending, int(self._clock()), told, token)
            said.extend(decision.said)
            return decision.state

        said: list[str] = []
        before = self._file.load().version
        try:
            version = self._file.change(change).version
        except HdpmfError as error:
            self._log(str(error))
            if status is not None:  # an answer that is none
                self._take(sending, None)
            return
        if before == self._version and version <= before + 1:
            self._version = version  # else the owner was here: what is ready is made again
        self._say(said)

    def _look(self, now: int) -> dict[str, Published]:
        """Read what is published. What is read depends on nothing but what is public."""
        state, found = self._file.load().state, {}
        for joined in state.joined:
            if joined.left:
                continue
            try:
                first = index_wanted()
                index = read_index(self._carrier.read(f"{joined.address}/{first.name}", first.most))
                found[joined.address] = self._read(state, joined, index, now)
            except TransportError as error:
                self._log(f"not reached: {error}")
            except HdpmfError as error:
                self._log(str(error))
        return found

    def _read(self, state: State, joined: Joined, index: Index, now: int) -> Published:
        files: dict[str, bytes] = {}
        tried: set[str] = set()
        size = 0
        while True:
            seen = Published(index, dict(files), size)
            waiting = [each for each in wanted(state, joined, seen, now) if each.name not in tried]
            if not waiting:
                return seen
            for each in waiting:
                tried.add(each.name)
                try:
                    data = self._carrier.read(f"{joined.address}/{each.name}", each.most)
                except TooLongError as error:
                    size += error.received
                    files[each.digest] = b""  # so that it is refused
                except TransportError as error:
                    size += error.received
                    self._log(f"not reached: {error}")
                else:
                    size += len(data)
                    files[each.digest] = data

    def _say(self, said: tuple[str, ...] | list[str]) -> None:
        for line in said:
            self._log(line)
