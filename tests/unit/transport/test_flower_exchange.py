"""One exchange over Flower with an engine that lies: replies in another's name, twice, too long,
to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from hdpmf.common.net.flower.messages import (
    RECORD,
    Incoming,
    Outgoing,
    bytes_in_part,
    bytes_of,
    data_part,
    record_of,
)
from hdpmf.common.net.flower.recommender import WINDOW, exchange_over
from hdpmf.common.net.interface import Patience

NODES = {"aa": 1, "bb": 2, "cc": 3}


class Engine:
    """Replies with what a test makes of each message; refuses messages to node 3."""

    def __init__(self, *rounds: dict[int, list[Incoming]]) -> None:
        self._rounds = list(rounds)
        self.sent: dict[int, Outgoing] = {}
        self.left: list[Outgoing] | None = None

    def send(self, messages: Sequence[Outgoing], seconds: float) -> list[str]:
        self.sent = {message.node: message for message in messages}
        return ["" if message.node == 3 else f"message-{message.node}" for message in messages]

    def pull(self, ids: Iterable[str], wait: float) -> list[Incoming]:
        if not self._rounds:
            return []
        # A token of None stands for the right one.
        return [
            replace(reply, token=self.sent[node].token if reply.token is None else reply.token)
            for node, replies in self._rounds.pop(0).items()
            for reply in replies
        ]

    def forget(self, messages: Iterable[Outgoing]) -> None:
        self.left = list(messages)


def _reply(node: int, data: bytes | None, token: str | None = None) -> Incoming:
    return Incoming(f"message-{node}", token, data)  # type: ignore[arg-type]


def _exchange(engine: Engine, deadline: float = 0.2) -> list[tuple[str, bytes]]:
    messages = dict.fromkeys(NODES, b"message")
    return [
        (reply.device, reply.data)
        for reply in exchange_over(engine, NODES, messages, deadline, max_bytes=10)
    ]


def test_replies_come_with_the_name_that_the_message_went_to():
    engine = Engine({2: [_reply(2, b"two")]}, {1: [_reply(1, b"one")]})
    assert _exchange(engine, 30.0) == [("bb", b"two"), ("aa", b"one")]
    assert engine.left == []
    assert len({message.token for message in engine.sent.values()}) == 3


def test_a_reply_in_another_devices_name_is_dropped():
    forged = _reply(1, b"forged", token="guessed")
    assert _exchange(Engine({1: [forged], 2: [_reply(2, b"two")]})) == [("bb", b"two")]


def test_of_two_replies_only_the_first_counts():
    engine = Engine(
        {1: [_reply(1, b"first"), _reply(1, b"second")]},
        {1: [_reply(1, b"third")], 2: [_reply(2, b"two")]},
    )
    assert _exchange(engine, 30.0) == [("aa", b"first"), ("bb", b"two")]


def test_replies_to_nothing_that_was_sent_are_dropped():
    assert (
        _exchange(
            Engine({1: [replace(_reply(1, b"x"), to="message-9"), replace(_reply(1, b"x"), to="")]})
        )
        == []
    )


@pytest.mark.parametrize("data", [None, bytes(11)])
def test_no_reply_and_too_long_a_reply_leave_a_device_silent_without_waiting(data: bytes | None):
    assert _exchange(Engine({1: [_reply(1, data)], 2: [_reply(2, bytes(10))]}), 30.0) == [
        ("bb", bytes(10))
    ]


def test_what_was_not_answered_is_told_to_the_engine():
    engine = Engine({2: [_reply(2, b"two")]})
    assert _exchange(engine) == [("bb", b"two")]
    assert engine.left == [engine.sent[1]]


def test_who_is_not_connected_gets_no_message():
    engine = Engine()
    assert list(exchange_over(engine, {}, {"aa": b"x"}, 30.0, max_bytes=10)) == []
    assert engine.sent == {}


class Crowd:
    """So many devices, some of which never answer; knows how many had a message at a time."""

    def __init__(self, mute: Iterable[int] = ()) -> None:
        self._mute = set(mute)
        self._open: dict[str, Outgoing] = {}
        self.most = 0
        self.order: list[int] = []

    def send(self, messages: Sequence[Outgoing], seconds: float) -> list[str]:
        self._open.update({str(message.node): message for message in messages})
        self.most = max(
            self.most, sum(message.node not in self._mute for message in self._open.values())
        )
        self.order += [message.node for message in messages]
        return [str(message.node) for message in messages]

    def pull(self, ids: Iterable[str], wait: float) -> list[Incoming]:
        for name in ids:
            if int(name) not in self._mute:
                return [Incoming(name, self._open.pop(name).token, b"here")]
        time.sleep(min(wait, 0.01))
        return []

    def forget(self, messages: Iterable[Outgoing]) -> None:
        self.left = sorted(message.node for message in messages)


def test_so_many_have_a_message_at_a_time_and_the_order_is_drawn(monkeypatch: pytest.MonkeyPatch):
    nodes = {f"{number:04}": number for number in range(500)}
    orders = []
    for _ in range(2):
        crowd = Crowd()
        replies = exchange_over(crowd, nodes, dict.fromkeys(nodes, b"x"), 30.0, 10)
        assert {reply.device for reply in replies} == set(nodes)
        assert WINDOW // 2 <= crowd.most <= WINDOW
        orders.append(crowd.order)
    assert orders[0] != orders[1]


def test_mute_devices_cost_their_own_turn_and_hold_nobody_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Patience, "AT_LEAST", 0.2)
    nodes = {f"{number:04}": number for number in range(300)}
    mute = range(0, 300, 3)  # more than have a message at a time
    crowd, silent = Crowd(mute), dict[str, int]()
    begin = time.monotonic()
    replies = list(exchange_over(crowd, nodes, dict.fromkeys(nodes, b"x"), 2.0, 10, silent))
    assert len(replies) == 200
    assert crowd.left == list(mute)
    assert set(silent.values()) == {1}
    assert len(silent) == 100
    assert time.monotonic() - begin < 5  # not a hundred times two seconds


def test_bytes_survive_flowers_records_and_anything_else_is_refused():
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    for data in (b"", bytes(range(256))):
        record = record_of(data, "token")
        assert bytes_of(Message(record, 1, "query")) == data
        assert bytes_in_part(record[RECORD].deflate()) == data
    for wrong in (RecordDict(), RecordDict({RECORD: ConfigRecord({"data": "text"})})):
        with pytest.raises(ValueError, match="not a message of ours"):
            bytes_of(Message(wrong, 1, "query"))
    with pytest.raises(ValueError, match="not a message of ours"):
        bytes_in_part(ConfigRecord({"data": 5}).deflate())


def test_only_messages_of_one_record_have_a_part_with_the_bytes():
    from flwr.proto.message_pb2 import ObjectTree

    leaf = ObjectTree(object_id="leaf")
    assert (
        data_part(ObjectTree(object_id="m", children=[ObjectTree(object_id="r", children=[leaf])]))
        == "leaf"
    )
    with pytest.raises(ValueError, match="not a message of ours"):
        data_part(ObjectTree(object_id="m", children=[leaf, leaf]))
    deep = leaf
    for _ in range(20):
        deep = ObjectTree(object_id="x", children=[deep])
    with pytest.raises(ValueError, match="not a message of ours"):
        data_part(deep)
