"""What every transport promises. One set of tests, run over each engine by a class that provides
``network``.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import pytest

from hdpmf.common.net import RecommenderTransport
from hdpmf.errors import ProtocolError

MAX_BYTES = 16 * 1024 * 1024
LONG = 60.0  # seconds; nothing below waits for it unless something is wrong


class ScriptedDevice:
    """A device that does what the message says, so that a test can drive one in another process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._messages = 0

    def __call__(self, message: bytes) -> bytes:
        self._messages += 1
        order, _, rest = message.partition(b" ")
        if order == b"echo":
            return rest
        if order == b"name":
            return self._name.encode()
        if order == b"count":
            return str(self._messages).encode()
        if order == b"sleep":
            seconds, _, rest = rest.partition(b" ")
            time.sleep(float(seconds))
            return rest
        if order == b"long":
            return bytes(int(rest))
        raise RuntimeError("a fault of this device")


@dataclass
class Network:
    """A recommender's end with two scripted devices."""

    transport: RecommenderTransport
    devices: tuple[str, str]
    second: float = 1.0  # where nothing has to travel, a tenth is long

    def ask(self, messages: dict[str, bytes], deadline: float = LONG) -> dict[str, bytes]:
        """One exchange; more than one reply of a device would show."""
        arrivals = [
            (reply.device, reply.data) for reply in self.transport.exchange(messages, deadline)
        ]
        assert len({device for device, _ in arrivals}) == len(arrivals), "two replies of one device"
        return dict(arrivals)

    def sleep(self, seconds: float, reply: bytes) -> bytes:
        return f"sleep {seconds * self.second} ".encode() + reply

    def ask_both(self, message: bytes, deadline: float = LONG) -> dict[str, bytes]:
        return self.ask(dict.fromkeys(self.devices, message), deadline)


class TransportContract:
    """Subclasses have a fixture ``network`` with a size limit of ``MAX_BYTES``."""

    def test_connected_devices_are_present(self, network: Network) -> None:
        assert network.transport.present() == frozenset(network.devices)

    def test_a_reply_carries_the_name_of_who_was_authenticated(self, network: Network) -> None:
        assert network.ask_both(b"name") == {name: name.encode() for name in network.devices}

    def test_each_device_gets_its_own_message(self, network: Network) -> None:
        messages = {name: b"echo for " + name.encode() for name in network.devices}
        assert network.ask(messages) == {name: b"for " + name.encode() for name in network.devices}

    def test_only_devices_with_a_message_are_asked(self, network: Network) -> None:
        first, second = network.devices
        before = int(network.ask({second: b"count"})[second])
        assert network.ask({first: b"echo x"}) == {first: b"x"}
        assert int(network.ask({second: b"count"})[second]) == before + 1

    @pytest.mark.parametrize(
        "data",
        [bytes(range(256)), b"", b"\0", b"\r\n\r\n", "Ünïcödé".encode(), b"the same for everybody"],
        ids=["all bytes", "empty", "nul", "line ends", "text", "equal"],
    )
    def test_bytes_arrive_unchanged(self, network: Network, data: bytes) -> None:
        assert network.ask_both(b"echo " + data) == dict.fromkeys(network.devices, data)

    def test_ten_megabytes_travel_both_ways(self, network: Network) -> None:
        data = {name: os.urandom(10_000_000) for name in network.devices}
        assert network.ask({name: b"echo " + sent for name, sent in data.items()}) == data

    def test_a_device_whose_answer_fails_is_silent_and_goes_on(self, network: Network) -> None:
        first, second = network.devices
        assert network.ask({first: b"fail", second: b"echo x"}) == {second: b"x"}
        assert network.ask_both(b"echo y") == dict.fromkeys(network.devices, b"y")

    def test_after_the_deadline_nobody_is_waited_for_and_late_replies_are_dropped(
        self, network: Network
    ) -> None:
        slow, quick = network.devices
        began = time.monotonic()
        assert network.ask(
            {slow: network.sleep(6, b"late"), quick: b"echo x"}, deadline=2 * network.second
        ) == {quick: b"x"}
        assert time.monotonic() - began < 6 * network.second
        # It is still at the late one; what it says then must not be taken for an answer to this.
        assert network.ask_both(b"echo new") == dict.fromkeys(network.devices, b"new")
        assert network.ask_both(b"echo newer") == dict.fromkeys(network.devices, b"newer")

    def test_a_message_that_waited_past_its_deadline_is_not_answered_later(
        self, network: Network
    ) -> None:
        busy, other = network.devices
        network.ask({busy: network.sleep(3, b"late")}, deadline=0.5 * network.second)
        assert network.ask({busy: b"echo stale"}, deadline=0.5 * network.second) == {}
        assert network.ask_both(b"echo fresh") == {busy: b"fresh", other: b"fresh"}

    def test_replies_are_handed_over_as_they_come(self, network: Network) -> None:
        slow, quick = network.devices
        arrivals = network.transport.exchange(
            {slow: network.sleep(2, b"a"), quick: b"echo b"}, LONG
        )
        assert [reply.device for reply in arrivals] == [quick, slow]

    def test_devices_answer_at_the_same_time(self, network: Network) -> None:
        began = time.monotonic()
        assert network.ask_both(network.sleep(4, b"x")) == dict.fromkeys(network.devices, b"x")
        assert time.monotonic() - began < 2 * 4 * network.second

    def test_a_message_that_is_too_long_is_refused_before_anything_is_sent(
        self, network: Network
    ) -> None:
        first, second = network.devices
        before = int(network.ask({first: b"count"})[first])
        with pytest.raises(ProtocolError, match="longer than the limit"):
            network.ask({first: b"echo x", second: bytes(MAX_BYTES + 1)})
        assert int(network.ask({first: b"count"})[first]) == before + 1

    def test_a_reply_that_is_too_long_is_dropped(self, network: Network) -> None:
        first, second = network.devices
        messages = {first: f"long {MAX_BYTES + 1}".encode(), second: f"long {MAX_BYTES}".encode()}
        assert network.ask(messages) == {second: bytes(MAX_BYTES)}
        assert network.ask_both(b"echo x") == dict.fromkeys(network.devices, b"x")

    def test_who_is_not_on_the_roster_is_silent(self, network: Network) -> None:
        first, _ = network.devices
        assert network.ask({"nobody": b"echo x"}) == {}
        assert network.ask({"nobody": b"echo x", first: b"echo y"}) == {first: b"y"}

    def test_no_messages_no_replies(self, network: Network) -> None:
        assert network.ask({}) == {}

    def test_an_exchange_that_is_left_early_leaves_nothing_to_the_next(
        self, network: Network
    ) -> None:
        for _ in network.transport.exchange(dict.fromkeys(network.devices, b"echo old"), LONG):
            break
        assert network.ask_both(b"echo new") == dict.fromkeys(network.devices, b"new")

    def test_nothing_is_sent_before_a_reply_is_asked_for(self, network: Network) -> None:
        first, _ = network.devices
        before = int(network.ask({first: b"count"})[first])
        network.transport.exchange({first: b"echo x"}, LONG)
        assert int(network.ask({first: b"count"})[first]) == before + 1
