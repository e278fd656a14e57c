"""How messages travel between the recommender and the devices, whatever carries them.

The recommender asks and a device answers; a device never speaks first. Who a reply is from is settled by the engine's
authentication, not by anything in the reply. An engine may lose messages, replies and devices. It never delivers a
message twice to a device that stayed up, never hands over two replies of one device in one exchange, and never one of
an earlier exchange in a later one.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from hdpmf.errors import ProtocolError
from hdpmf.protocol.wire import MAX_BYTES as MAX_MESSAGE_BYTES

MAX_BYTES = MAX_MESSAGE_BYTES + 1024 * 1024
"""No message and no reply may be longer: the longest one of the protocol, and room for its envelope."""

Answer = Callable[[bytes], bytes]
"""A device's reply to one message. If it raises, or its reply is too long, the device counts as silent."""


@dataclass(frozen=True, slots=True)
class DeviceReply:
    """A reply.

    Attributes:
        device: Roster name of the device that was authenticated as the sender (its identity key, hex).
        data: The reply, as the device wrote it.
    """

    device: str
    data: bytes


class Patience:
    """How long an exchange goes on. A few silent devices cost their own turn, not everybody's deadline.

    Once ``MOST`` of the devices have answered, the others get ``TIMES`` as long as these took, and at least
    ``AT_LEAST`` seconds.

    Args:
        asked: Devices.
        deadline: Seconds, at most.
    """

    MOST = 0.75
    TIMES = 3.0
    AT_LEAST = 5.0

    def __init__(self, asked: int, deadline: float) -> None:
        self._begun = time.monotonic()
        self._asked = asked
        self._answered = 0
        self.end = self._begun + deadline

    @property
    def left(self) -> float:
        """Seconds; none or less: it is over."""
        return self.end - time.monotonic()

    def answered(self) -> None:
        """One more has answered (or it is known that it will not)."""
        self._answered += 1
        if self._answered == math.ceil(self.MOST * self._asked):
            now = time.monotonic()
            self.end = min(self.end, now + max(self.AT_LEAST, self.TIMES * (now - self._begun)))


class RecommenderTransport(Protocol):
    """The recommender's end."""

    def present(self) -> frozenset[str]:
        """Roster names of the devices that are connected now."""
        ...

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """Send each device its message and hand over the replies as they come.

        Ends when every device has answered or ``deadline`` seconds have passed since the first message was sent; when
        most have answered, the others do not get all of that time (``Patience``). A
        device that is not connected, is not on the roster or fails is silent; there is no other way to tell. Nothing
        is sent before the first reply is asked for. Leaving the iterator early gives up what was still to come.

        Raises:
            ProtocolError: A message is longer than ``MAX_BYTES``; nothing was sent.
        """
        ...

    def close(self) -> None:
        """Let go of the connection. May be called twice."""
        ...


class DeviceTransport(Protocol):
    """A device's end."""

    def serve(self, answer: Answer, stop: threading.Event) -> None:
        """Answer messages, one at a time, until ``stop`` is set. Connects again, with growing pauses, when cut off."""
        ...


def check_sizes(messages: Mapping[str, bytes], limit: int = MAX_BYTES) -> None:
    """Refuse messages that are too long, before any of them is sent."""
    for device, data in messages.items():
        if len(data) > limit:
            raise ProtocolError(f"a message of {len(data)} bytes to {device[:16]} is longer than the limit of {limit}")
