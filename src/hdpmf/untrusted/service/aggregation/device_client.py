"""Messages to devices and their replies, which are checked here before anything else reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from hdpmf.common.aggregation.masks import ToDevice, ToRecommender, decode_to_recommender
from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.net import RecommenderTransport
from hdpmf.common.protocol import (
    Accepted,
    Envelope,
    Message,
    Refusal,
    Reply,
    decode,
    encode,
)
from hdpmf.errors import HdpmfError, ProtocolError, SecureSumError
from hdpmf.untrusted.service.metrics import Metrics


class DeviceClient:
    """The messages of one run.

    A reply is taken, or counted under a reason and dropped: the device's own word for its refusal,
    or ``malformed`` (not a reply of this protocol), ``other-run``, ``out-of-round``, ``unexpected``
    (a message that was not asked for), ``unknown-device``, ``duplicate``, and those that callers
    give to messages with impossible content.

    Args:
        transport: To devices.
        run: The run's id.
        metrics: Counts bytes and refusals.

    Attributes:
        heard: Devices that replied anything in the last exchange.
        busy: Those of them that are busy, and may be asked again.
    """

    def __init__(self, transport: RecommenderTransport, run: bytes, metrics: Metrics) -> None:
        self._transport = transport
        self._run = run
        self.metrics = metrics
        self.heard: set[str] = set()
        self.busy: set[str] = set()
        self._ever_busy: set[str] = set()

    def present(self) -> frozenset[str]:
        """Devices that are connected."""
        here = self._transport.present()
        self.metrics.present = len(here)
        return here

    def refused(self, reason: str) -> None:
        """Count a reply that cannot be taken."""
        self.metrics.refusals[reason] += 1

    def ask(
        self,
        devices: Collection[str],
        number: int,
        message: Message | bytes,
        deadline: float,
        *expected: type,
    ) -> Iterator[tuple[str, Message]]:
        """Send all devices the same message; yield replies of an ``expected`` kind as they come."""
        body = message if isinstance(message, bytes) else encode(message)
        data = encode(Envelope(run=self._run, number=number, part="job", body=body))
        for device, reply in self._exchange(
            dict.fromkeys(sorted(devices), data), number, "job", deadline
        ):
            try:
                answer = decode(reply.body)
            except ProtocolError:
                self.refused("malformed")
                continue
            if isinstance(answer, expected):
                yield device, answer
            else:
                self.refused("unexpected")

    def tell(
        self, devices: Collection[str], number: int, message: Message | bytes, deadline: float
    ) -> set[str]:
        """Send all of ``devices`` the same message; those that accepted it."""
        return {device for device, _ in self.ask(devices, number, message, deadline, Accepted)}

    def ask_in_sum(
        self, messages: Mapping[str, ToDevice], number: int, deadline: float
    ) -> Iterator[tuple[str, ToRecommender, bytes]]:
        """Send each device its message of a secure sum; yield the replies with their bytes."""
        encoded: dict[int, bytes] = {}  # two of the steps send everyone the same message
        for message in messages.values():
            if id(message) not in encoded:
                envelope = Envelope(
                    run=self._run, number=number, part="sum", body=encode_sum(message)
                )
                encoded[id(message)] = encode(envelope)
        outgoing = {device: encoded[id(message)] for device, message in messages.items()}
        for device, reply in self._exchange(outgoing, number, "sum", deadline):
            try:
                yield device, decode_to_recommender(reply.body), reply.body
            except SecureSumError:
                self.refused("malformed")

    def _exchange(
        self, outgoing: Mapping[str, bytes], number: int, part: str, deadline: float
    ) -> Iterator[tuple[str, Reply]]:
        metrics = self.metrics
        metrics.messages += len(outgoing)
        metrics.bytes_out += sum(map(len, outgoing.values()))
        self.heard = answered = set()
        self.busy = set()
        for received in self._transport.exchange(outgoing, deadline):
            metrics.replies += 1
            metrics.bytes_in += len(received.data)
            if received.device not in outgoing:
                self.refused("unknown-device")
            elif received.device in answered:
                self.refused("duplicate")
            else:
                answered.add(received.device)
                reply = self._opened(received.device, received.data, number, part)
                if reply is not None:
                    yield received.device, reply

    def _opened(self, device: str, data: bytes, number: int, part: str) -> Reply | None:
        try:
            reply = decode(data)
            refusal = (
                decode(reply.body) if isinstance(reply, Reply) and reply.part == "refusal" else None
            )
        except HdpmfError:
            self.refused("malformed")
            return None
        if not isinstance(reply, Reply):
            self.refused("malformed")
        elif reply.run != self._run:
            self.refused("other-run")
        elif reply.number != number:
            self.refused("out-of-round")
        elif isinstance(refusal, Refusal) and refusal.reason == "busy":
            self.busy.add(device)
            if device not in self._ever_busy:  # however often it is asked again
                self._ever_busy.add(device)
                self.refused("busy")
        elif refusal is not None:
            self.refused(refusal.reason if isinstance(refusal, Refusal) else "malformed")
        elif reply.part != part:
            self.refused("unexpected")
        else:
            return reply
        return None
