"""Attacks on the wire: real processes, TLS, loopback. Strangers, replayed headers, devices that
break the rules.

One recommender with its SuperLink; devices are threads with real connections. Every test is bounded
in time.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.flower.environment import needs_flower
from hdpmf.common.net.flower.fleet import Fleet
from hdpmf.common.net.flower.messages import record_of
from hdpmf.common.net.flower.recommender import FlowerRecommender
from hdpmf.common.net.flower.signing import BODY, Doorkeeper, server_name, signed_headers
from hdpmf.common.net.keys import NodeKey

from .test_tls import GOOD, OLD, client

pytestmark = pytest.mark.slow

with needs_flower():
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.app.message import remove_content_from_message
    from flwr.common.serde import message_to_proto
    from flwr.proto.fleet_pb2 import ActivateNodeRequest, PushMessagesRequest
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PushObjectRequest
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

HEARTBEAT = 2.0
HONEST = 12
WAIT = 10.0
CALL = "/v1/fleet/pull-messages"
ACTIVATE = "/v1/fleet/activate-node"
Behaviour = Callable[[Fleet, threading.Event], None]


class Town:
    """A recommender and its devices."""

    def __init__(self, folder: Path, n: int, max_reply: int | None = None) -> None:
        self.keys = {f"{place:04x}": NodeKey.generate() for place in range(n)}
        roster = {name: key.public for name, key in self.keys.items()}
        self.recommender = FlowerRecommender(
            folder, roster=roster, heartbeat=HEARTBEAT, max_bytes=4_000_000, max_reply=max_reply
        )
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.recommender.authority.decode("ascii"))

    def start(self, behaviour: Behaviour, *names: str) -> None:
        for name in names:
            self.threads.append(
                threading.Thread(target=self._live, args=(name, behaviour), daemon=True)
            )
            self.threads[-1].start()

    def _live(self, name: str, behaviour: Behaviour) -> None:
        while not self.stop.is_set():
            with contextlib.suppress(Exception), self._connected(self.keys[name]) as fleet:
                behaviour(fleet, self.stop)
            self.stop.wait(0.2)

    def _connected(self, key: NodeKey) -> Fleet:
        address, authority = self.recommender.address, self.recommender.authority
        return Fleet(address, authority, key, heartbeat=60.0, wait=WAIT, max_bytes=4_000_000)

    def wait_for(self, names: list[str], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not set(names) <= self.recommender.present():
            assert time.monotonic() < end, "devices do not get in"
            time.sleep(0.1)

    def ask(self, names: list[str], deadline: float = 30.0) -> set[str]:
        data = {name: b"what is your name, device " + name.encode() for name in names}
        replies = self.recommender.exchange(data, deadline)
        return {reply.device for reply in replies if reply.data == b"it is " + data[reply.device]}

    def close(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(20)
        self.recommender.close()


def honest(fleet: Fleet, stop: threading.Event) -> None:
    while not stop.is_set():
        pending = fleet.receive()
        if pending is not None and (data := fleet.open(pending)) is not None:
            fleet.reply(pending, b"it is " + data)


def confirms_at_once(fleet: Fleet, stop: threading.Event) -> None:
    """Says that it has received a message before it can have, and then again and again."""
    while not stop.is_set():
        pending = fleet.receive()
        if pending is not None:
            meta = pending.message.metadata
            for name in (meta.message_id, pending.tree.children[0].object_id):
                fleet._client.ConfirmMessageReceived(
                    ConfirmMessageReceivedRequest(
                        node=fleet._node, run_id=meta.run_id, message_object_id=name
                    )
                )


def _announce(fleet: Fleet, pending, record: RecordDict):
    message = Message(record, reply_to=pending.message)
    message.metadata.__dict__["_message_id"] = message.object_id
    answer = fleet._client.PushMessages(
        PushMessagesRequest(
            node=fleet._node,
            messages_list=[message_to_proto(remove_content_from_message(message))],
            message_object_trees=[get_object_tree(message)],
            clientapp_runtime_list=[0.0],
        )
    )
    return message, answer


def never_uploads(fleet: Fleet, stop: threading.Event) -> None:
    """Announces a reply of which nothing comes."""
    while not stop.is_set():
        pending = fleet.receive()
        if pending is not None:
            _announce(
                fleet, pending, RecordDict({"letter": ConfigRecord({"data": b"x", "token": "t"})})
            )


def sends_rubbish(fleet: Fleet, stop: threading.Event) -> None:
    """A whole reply that is none of ours: another record, or a token that is no plain text."""
    turn = 0
    while not stop.is_set():
        pending = fleet.receive()
        if pending is None:
            continue
        turn += 1
        records = {"letter": ConfigRecord({"data": [1.5]})} if turn % 2 else {}
        pending.message.metadata.__dict__["_group_id"] = "ü\U0001f4a5"
        message, answer = _announce(fleet, pending, RecordDict(records))
        objects = get_all_nested_objects(message)
        for name in answer.objects_to_push:
            fleet._client.PushObject(
                PushObjectRequest(
                    node=fleet._node,
                    run_id=pending.message.metadata.run_id,
                    session_id=answer.session_id,
                    object_id=name,
                    object_content=objects[name].deflate(),
                )
            )


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    made = Town(tmp_path_factory.mktemp("town"), HONEST + 4)
    names = list(made.keys)
    made.start(honest, *names[:HONEST])
    try:
        made.wait_for(names[:HONEST])
        yield made
    finally:
        made.close()


# 16. One enrolled device stops every exchange.


@pytest.mark.parametrize(
    ("place", "behaviour"), list(enumerate([confirms_at_once, never_uploads, sends_rubbish]))
)
def test_a_hostile_device_costs_its_own_turn_only(town: Town, place: int, behaviour: Behaviour):
    names = list(town.keys)[:HONEST]
    hostile = list(town.keys)[HONEST + place]
    town.start(behaviour, hostile)
    town.wait_for([hostile])
    for _ in range(4):
        begun = time.monotonic()
        assert town.ask([hostile, *names]) == set(names)
        assert time.monotonic() - begun < 20.0  # and not the deadline of 30


def test_many_light_honest_devices_are_all_heard(tmp_path: Path):
    """The same race without an attacker: some answer while messages for others are still being
    uploaded.
    """
    crowd = Town(tmp_path, 60)
    names = list(crowd.keys)
    try:
        crowd.start(honest, *names)
        crowd.wait_for(names, 120.0)
        for _ in range(3):
            assert crowd.ask(names, 60.0) == set(names)
    finally:
        crowd.close()


def test_nobody_replies_in_anothers_name(tmp_path: Path):
    """An enrolled device knows another's message, and the token in it, and answers first."""
    place = Town(tmp_path, 2)
    name, other = place.keys
    heard: dict[str, bytes] = {}

    def exchange() -> None:
        messages = {name: b"for the victim", other: b"for the thief"}
        heard.update(
            {reply.device: reply.data for reply in place.recommender.exchange(messages, 30.0)}
        )

    try:
        with (
            place._connected(place.keys[name]) as victim,
            place._connected(place.keys[other]) as thief,
        ):
            asking = threading.Thread(target=exchange, daemon=True)
            asking.start()
            asked, own = victim.receive(), thief.receive()
            assert asked is not None
            assert own is not None

            def refused(source: int, to: str | None = None) -> int:
                """The status of a reply to the victim's message, or another, as if from this
                device.
                """
                forged = Message(
                    record_of(b"forged", asked.message.metadata.group_id), reply_to=asked.message
                )
                forged.metadata.__dict__["_message_id"] = forged.object_id
                proto = message_to_proto(remove_content_from_message(forged))
                proto.metadata.src_node_id = source
                proto.metadata.reply_to_message_id = to or proto.metadata.reply_to_message_id
                request = PushMessagesRequest(
                    node=thief._node,
                    messages_list=[proto],
                    message_object_trees=[get_object_tree(forged)],
                    clientapp_runtime_list=[0.0],
                )
                with pytest.raises(httpx.HTTPStatusError) as failed:
                    thief._client.PushMessages(request)
                return failed.value.response.status_code

            assert refused(victim._node.node_id) == 403  # in the victim's name
            assert refused(thief._node.node_id) == 403  # in its own, to the victim's message
            assert refused(thief._node.node_id, "0" * 64) == 403  # to nobody
            assert (
                refused(victim._node.node_id, own.message.metadata.message_id) == 403
            )  # to its own, as the victim
            whole = thief._node
            thief._node = victim._node  # and if it says that it is the victim in all calls
            assert refused(victim._node.node_id) == 401
            thief._node = whole
            victim.reply(asked, b"true")
            thief.reply(own, b"mine")
            asking.join(30.0)
        assert heard == {name: b"true", other: b"mine"}
    finally:
        place.close()


# 17. Strangers, and long bodies.


def test_no_more_is_read_of_a_device_than_a_reply_can_have(tmp_path: Path):
    place = Town(tmp_path, 1, max_reply=100_000)
    name, key = next(iter(place.keys.items()))
    here, path = server_name(place.recommender.authority), "/v1/fleet/push-object"
    try:
        with _connection(place) as wire:
            headers = signed_headers(key, here, "POST", path, bytes(300_000)) | {
                "host": "x",
                "content-length": "300000",
            }
            lines = "".join(f"{field}: {value}\r\n" for field, value in headers.items())
            wire.sendall(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode())
            wire.settimeout(5.0)
            assert wire.recv(100).startswith(b"HTTP/1.1 413")
        place.start(honest, name)
        place.wait_for([name])
        long = b"a message may be longer than a reply" + bytes(300_000)
        assert list(place.recommender.exchange({name: long}, 5.0)) == []
        assert place.ask([name]) == {name}
    finally:
        place.close()


def test_a_stranger_is_refused_before_anything_of_its_body_is_read(town: Town):
    with _connection(town) as wire:
        wire.sendall(
            f"POST {CALL} HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\nx-hdpmf-key: "
            "eA==\r\n\r\n".encode()
        )
        wire.settimeout(5.0)
        assert wire.recv(100).startswith(b"HTTP/1.1 401")
    with _connection(town) as wire:
        wire.sendall(
            b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\ncontent-length: 3900000\r\n\r\n"
        )
        wire.settimeout(5.0)
        assert wire.recv(100).startswith(b"HTTP/1.1 401")


def test_idle_strangers_lock_nobody_out(town: Town):
    names = list(town.keys)[:HONEST]
    idle = []
    address = ("127.0.0.1", town.recommender.port)
    try:
        for _ in range(700):
            with contextlib.suppress(OSError):
                idle.append(socket.create_connection(address, timeout=2.0))
        assert town.ask(names) == set(
            names
        )  # devices that are connected, and the recommender's own link
        time.sleep(12.0)  # the patience with strangers is 10 s
        late = list(town.keys)[HONEST + 3]
        town.start(honest, late)
        town.wait_for([late], 30.0)
        assert town.ask([late]) == {late}
        cut = 0
        for wire in idle:
            wire.settimeout(0.05)
            with contextlib.suppress(TimeoutError, OSError):
                cut += wire.recv(1) == b""
        assert cut >= len(idle) - 128
    finally:
        for wire in idle:
            wire.close()


@contextlib.contextmanager
def _connection(town: Town) -> Iterator[ssl.SSLSocket]:
    raw = socket.create_connection(("127.0.0.1", town.recommender.port), timeout=10.0)
    with raw, town.trust.wrap_socket(raw, server_hostname="127.0.0.1") as wire:
        yield wire


def test_nobody_gets_an_older_tls_or_none(town: Town):
    for version in (*OLD, GOOD):
        refused = (
            contextlib.nullcontext()
            if version == GOOD
            else pytest.raises((ssl.SSLError, ConnectionError))
        )
        with (
            socket.create_connection(("127.0.0.1", town.recommender.port), timeout=10.0) as raw,
            refused,
            client(town.recommender.authority, version).wrap_socket(
                raw, server_hostname="127.0.0.1"
            ) as wire,
        ):
            assert wire.version() == "TLSv1.2"
    with socket.create_connection(("127.0.0.1", town.recommender.port), timeout=10.0) as raw:
        raw.sendall(f"POST {CALL} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            assert not raw.recv(100).startswith(b"HTTP")


# 18. Headers that one recommender has seen.


def test_what_one_recommender_was_sent_is_of_no_use_at_another(town: Town, tmp_path: Path):
    elsewhere = ensure_certificates(tmp_path / "tls", ["127.0.0.1"]).authority.read_bytes()
    key = next(iter(town.keys.values()))
    here = server_name(town.recommender.authority)
    with httpx.Client(verify=town.trust, base_url=f"https://{town.recommender.address}") as client:

        def status(headers: dict[str, str], path: str = CALL, body: bytes = b"") -> int:
            return client.post(path, headers=headers, content=body).status_code

        body = ActivateNodeRequest(
            public_key=key.public.encode(), heartbeat_interval=60.0
        ).SerializeToString()
        assert (
            status(signed_headers(key, here, "POST", ACTIVATE, body), ACTIVATE, body) != 401
        )  # the control
        seen = signed_headers(key, server_name(elsewhere), "POST", ACTIVATE, body)
        assert status(seen, ACTIVATE, body) == 401
        signed = signed_headers(key, here, "POST", ACTIVATE, body)
        assert status(signed, CALL, body) == 401
        assert status(signed, ACTIVATE, body + b"x") == 401
        assert status(signed, ACTIVATE, bytes(len(body))) == 401
        other = {**signed, BODY: hashlib.sha256(bytes(len(body))).hexdigest()}
        assert status(other, ACTIVATE, bytes(len(body))) == 401
        assert (
            status(signed_headers(NodeKey.generate(), here, "POST", ACTIVATE, body), ACTIVATE, body)
            == 401
        )
        assert status({}) == 401


def test_a_signature_is_good_for_a_while_only(monkeypatch: pytest.MonkeyPatch):
    key = NodeKey.generate()
    guard = Doorkeeper([b"here"], lambda _: True)
    headers = {
        name.encode(): value.encode()
        for name, value in signed_headers(key, b"here", "POST", "/", b"").items()
    }
    assert guard.caller(headers, "POST", "/", 0) == key.public.encode()
    for changed in ("GET", "/", 0), ("POST", "/x", 0), ("POST", "/", 1):
        assert guard.caller(headers, *changed) is None
    now = time.time()
    for seconds in (-6.0, 301.0):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: now + seconds)
        assert guard.caller(headers, "POST", "/", 0) is None
