"""Transports between a recommender and devices: the interface, and one within this process.

The recommender offers and a device answers; a device never speaks first. The sender of a reply is
known by the transport's authentication, not by anything in the reply. A transport may lose
messages, replies and devices. It never delivers a message twice to a device that stayed up, nor
hands over two replies of one device in one exchange, nor one of an earlier exchange.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from bisect import insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from hdpmf.common.protocol.codec import MAX_BYTES as MAX_MESSAGE_BYTES
from hdpmf.errors import ProtocolError, TooLongError, TransportError

_OS = secrets.SystemRandom()

MAX_BYTES = MAX_MESSAGE_BYTES + 1024 * 1024
"""Longest message or reply: the protocol's longest, and room for its envelope."""

Answer = Callable[[bytes], bytes]
"""Returns a device's reply; one that raises, or is too long, counts as silence."""


@dataclass(frozen=True, slots=True)
class DeviceReply:
    """A reply.

    Attributes:
        device: Identity key (hex) of the authenticated sender.
        data: As the device wrote it.
    """

    device: str
    data: bytes


def backoff(
    tries: int, first: float, longest: float, uniform: Callable[[], float] = _OS.random
) -> float:
    """Return the seconds before the next try: doubled after each failure, times 50 to 150 %.

    Clients that failed together do not come back together.

    Args:
        tries: Failures in a row before this one.
        first: Seconds after the first failure.
        longest: Most seconds, before the draw.
        uniform: Draws from 0 to 1.
    """
    return min(first * 2.0 ** min(tries, 30), longest) * (0.5 + uniform())


class Patience:
    """Deadlines of the devices in an exchange, each from when its message was sent.

    Once ``MOST`` of the devices have answered, a turn is ``TIMES`` as long as these took, and at
    least ``AT_LEAST`` seconds. A device that missed a deadline gets half the time, halved again on
    each miss, ``HALVINGS`` times at most, and never less than ``MOMENT``.

    Args:
        deadline: Longest turn in seconds.
        silent: Misses in a row of each device; updated here.
    """

    MOST = 0.75
    TIMES = 3.0
    AT_LEAST = 5.0
    HALVINGS = 4
    MOMENT = 1.0

    def __init__(self, deadline: float, silent: dict[str, int] | None = None) -> None:
        self._deadline = deadline
        self._silent = {} if silent is None else silent
        self._begun: dict[str, float] = {}  # of those that are waited for, the earliest first
        self._took: list[float] = []  # of those that have answered, the quickest first
        self._asked = 0

    def sent(self, device: str) -> None:
        """Its turn begins."""
        self._asked += 1
        self._begun[device] = time.monotonic()

    def on_answer(self, device: str) -> None:
        """Its turn is over (or it is known that it will not answer)."""
        begun = self._begun.pop(device, None)
        if begun is not None:
            insort(self._took, time.monotonic() - begun)
            self._silent.pop(device, None)

    def over(self) -> list[str]:
        """Devices whose turn has ended without an answer; they are waited for no more."""
        now = time.monotonic()
        turn = self._turn()
        late = [
            device
            for device, begun in self._begun.items()
            if begun + self._own(turn, device) <= now
        ]
        for device in late:
            del self._begun[device]
            self._silent[device] = self._silent.get(device, 0) + 1
        return late

    @property
    def seconds_left(self) -> float:
        """Seconds until the next turn ends; none or less: somebody's is over."""
        turn = self._turn()
        ends = [begun + self._own(turn, device) for device, begun in self._begun.items()]
        return min(ends, default=0.0) - time.monotonic()

    def _turn(self) -> float:
        enough = math.ceil(self.MOST * self._asked)
        if not enough or len(self._took) < enough:
            return self._deadline
        return min(self._deadline, max(self.AT_LEAST, self.TIMES * self._took[enough - 1]))

    def _own(self, turn: float, device: str) -> float:
        # A device that comes back needs a moment: without one it would stay silent for ever.
        return max(
            turn * 0.5 ** min(self._silent.get(device, 0), self.HALVINGS), min(turn, self.MOMENT)
        )


class RecommenderTransport(Protocol):
    """The recommender's end."""

    def present(self) -> frozenset[str]:
        """Roster names of the devices that are connected now."""
        ...

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """Send each device its message and yield the replies as they come.

        Ends when every device has answered or had its turn: ``deadline`` seconds from when its
        message was sent, or less once most have answered (``Patience``). Not all messages need be
        sent at once, and none before the first reply is asked for. A device that is not connected,
        not on the roster or fails is silent. Leaving the iterator early gives up the rest.

        Raises:
            ProtocolError: A message is longer than ``MAX_BYTES``; nothing was sent.
        """
        ...

    def close(self) -> None:
        """Let go of the connection. May be called twice."""
        ...


def check_sizes(messages: Mapping[str, bytes], limit: int = MAX_BYTES) -> None:
    """Refuse messages that are too long, before any of them is sent."""
    for device, data in messages.items():
        if len(data) > limit:
            raise ProtocolError(
                f"a message of {len(data)} bytes to {device[:16]} is longer than the limit of "
                f"{limit}"
            )


_log = logging.getLogger(__name__)


class InProcessNetwork:
    """The recommender's end, with every device's answer a function call away.

    Devices answer one after another in the order of the messages, so that a run is reproducible.

    Args:
        answers: By roster name.
        max_bytes: Of a message or reply.
    """

    def __init__(self, answers: Mapping[str, Answer], *, max_bytes: int = MAX_BYTES) -> None:
        self._answers = dict(answers)
        self._max_bytes = max_bytes

    def attach(self, name: str, answer: Answer) -> None:
        """A device has come, or come back with another state."""
        self._answers[name] = answer

    def detach(self, name: str) -> None:
        """A device has gone."""
        self._answers.pop(name, None)

    def present(self) -> frozenset[str]:
        """Roster names of the devices that are here now."""
        return frozenset(self._answers)

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """As in ``RecommenderTransport``."""
        check_sizes(messages, self._max_bytes)
        return self._replies(messages, deadline)

    def close(self) -> None:
        """Let the devices go."""
        self._answers.clear()

    def _replies(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        end = time.monotonic() + deadline
        for name, message in messages.items():
            if time.monotonic() >= end:
                return
            reply = self._deliver(name, message)
            if reply is not None and time.monotonic() < end:
                yield DeviceReply(name, reply)

    def _deliver(self, name: str, message: bytes) -> bytes | None:
        answer = self._answers.get(name)
        if answer is None:
            return None
        try:
            reply = answer(message)
        except Exception as error:  # whatever a device does wrong is its own affair
            _log.warning("device %.16s failed to answer (%s)", name, type(error).__name__)
            return None
        if len(reply) > self._max_bytes:
            _log.warning(
                "device %.16s: its reply of %d bytes is too long and was dropped", name, len(reply)
            )
            return None
        return reply


class FilesHere:
    """A recommender's files in memory, for simulations and where nothing but messages travels."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def fetch(self, name: str, most: int) -> bytes:
        """As in the device's ``Carrier``."""
        data = self.files.get(name)
        if data is None:
            raise TransportError(f"there is no {name}")
        if len(data) > most:
            raise TooLongError(f"{name} has {len(data):,} bytes; {most:,} are the most")
        return data

    def upload(
        self,
        leader: object,
        path: str,
        headers: dict[str, str],
        body: bytes,
        leaving: Callable[[], None],
    ) -> int:
        """As in the device's ``Carrier``: there is no leader here."""
        raise TransportError("there is no way to a leader from here")

    def request_token(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """As in the device's ``Carrier``: there is no issuer here."""
        raise TransportError("there is no way to a recommender from here")
