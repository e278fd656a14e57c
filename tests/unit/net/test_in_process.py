"""The network inside one process keeps every transport's promises, and a few of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hdpmf.common.net import InProcessNetwork
from hdpmf.common.net.carrier import FilesHere
from hdpmf.errors import ProtocolError, TooLongError, TransportError
from tests.federation.transport_contract import (
    MAX_BYTES,
    Network,
    ScriptedDevice,
    TransportContract,
)

NAMES = ("aa", "bb")


class TestInProcess(TransportContract):
    # Devices answer one after another here.
    test_after_the_deadline_nobody_is_waited_for_and_late_replies_are_dropped = None
    test_a_message_that_waited_past_its_deadline_is_not_answered_later = None
    test_replies_are_handed_over_as_they_come = None
    test_devices_answer_at_the_same_time = None

    @pytest.fixture
    def network(self) -> Iterator[Network]:
        answers = {name: ScriptedDevice(name) for name in NAMES}
        transport = InProcessNetwork(answers, max_bytes=MAX_BYTES)
        yield Network(transport, NAMES, second=0.1)
        transport.close()
        transport.close()


def _one_by_one(**options: object) -> Network:
    return Network(
        InProcessNetwork({name: ScriptedDevice(name) for name in NAMES}, **options), NAMES
    )  # type: ignore[arg-type]


def test_devices_answer_in_the_order_of_the_messages():
    network = _one_by_one()
    for order in (NAMES, NAMES[::-1]):
        arrivals = network.transport.exchange(dict.fromkeys(order, b"name"), 10.0)
        assert [reply.device for reply in arrivals] == list(order)


def test_the_deadline_counts_between_devices():
    network = _one_by_one()
    assert network.ask({"aa": b"sleep 0.3 late", "bb": b"echo x"}, deadline=0.1) == {}
    assert network.ask({"bb": b"count"}) == {"bb": b"1"}  # it was not even asked


def test_a_failing_or_wordy_device_is_silent():
    network = _one_by_one(max_bytes=100)
    assert network.ask({"aa": b"fail", "bb": b"long 101"}) == {}


def test_devices_come_and_go():
    transport = InProcessNetwork({})
    network = Network(transport, NAMES)
    assert transport.present() == frozenset()
    transport.attach("aa", ScriptedDevice("aa"))
    assert transport.present() == {"aa"}
    assert network.ask_both(b"name") == {"aa": b"aa"}
    transport.detach("aa")
    transport.detach("aa")
    assert network.ask_both(b"name") == {}


def test_a_message_may_be_as_long_as_the_limit_and_no_longer():
    network = _one_by_one(max_bytes=8)
    assert network.ask({"aa": b"echo 789"}) == {"aa": b"789"}
    with pytest.raises(ProtocolError, match="longer than the limit of 8"):
        network.ask({"aa": b"echo 789!"})


def test_why_a_device_failed_is_logged_without_its_words(caplog: pytest.LogCaptureFixture):
    def fail(message: bytes) -> bytes:
        raise ValueError("rated 5 stars")

    assert list(InProcessNetwork({"aa": fail}).exchange({"aa": b"x"}, 10.0)) == []
    assert "device aa failed to answer (ValueError)" in caplog.text
    assert "5 stars" not in caplog.text


def test_files_here_are_fetched_up_to_their_length_and_nothing_else_leaves():
    files = FilesHere({"index": b"12345"})
    assert files.fetch("index", 5) == b"12345"
    with pytest.raises(TooLongError):
        files.fetch("index", 4)
    with pytest.raises(TransportError, match="there is no other"):
        files.fetch("other", 5)
    with pytest.raises(TransportError, match="no way to a leader"):
        files.upload(None, "/", {}, b"", lambda: None)
    with pytest.raises(TransportError, match="no way to a recommender"):
        files.share("/", {}, b"", lambda: None)
