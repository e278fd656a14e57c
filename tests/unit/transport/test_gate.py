"""The door before the SuperLink: who gets where, how much may be sent, and questions that wait
for an answer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hdpmf.common.net.flower.gate import (
    CALLS_AT_ONCE,
    CLOCK_HEADER,
    ENVELOPE,
    OPEN,
    RING,
    SECRET_HEADER,
    Gate,
)
from hdpmf.errors import TransportError

TO_DEVICES = "/v1/fleet/pull-messages"
REPLIES = "/v1/runtime/pull-messages"
ANSWERED = "/v1/fleet/confirm-message-received"
SECRET = "open sesame"


class Server:
    """What is behind the door: answers what it is given for a path, and counts."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.asked: list[tuple[str, bytes]] = []
        self.on_ask: Callable[[], None] = lambda: None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        self.asked.append((scope["path"], message.get("body", b"")))
        body = self.bodies.get(scope["path"], b"")
        self.on_ask()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


class Caller:
    """One request, with a connection that can be hung up."""

    def __init__(self, gate: Gate, path: str, body: bytes = b"x", **headers: str) -> None:
        headers.setdefault("content-length", str(len(body)))
        pairs = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ]
        self._scope = {"type": "http", "method": "POST", "path": path, "headers": pairs}
        self._gate = gate
        self._parts = [{"type": "http.request", "body": body, "more_body": False}]
        self._hung_up = asyncio.Event()
        self.answer: list[Any] = []

    async def call(self) -> tuple[int, bytes]:
        await self._gate(self._scope, self._receive, self._send)
        return self.answer[0]["status"], b"".join(part.get("body", b"") for part in self.answer[1:])

    def hang_up(self) -> None:
        self._hung_up.set()

    async def _receive(self) -> Any:
        if self._parts:
            return self._parts.pop(0)
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.answer.append(message)


class Enrolled:
    """Whoever does not say that they are a stranger."""

    def caller(self, headers: Any, method: str, path: str, length: int) -> bytes | None:
        return None if b"stranger" in headers else headers.get(b"device", b"a device")


def check(headers: Any, body: bytes) -> None:
    if b"other-body" in headers:
        raise TransportError("another body")


def _gate(server: Server, max_bytes: int) -> Gate:
    return Gate(
        server,
        secret=SECRET,
        max_bytes=max_bytes,
        guard=Enrolled(),
        check=check,
        known=print,
        mailbox=bytes.decode,
    )


def _run(scene: Callable[[Gate, Server], Awaitable[None]], max_bytes: int = 1000) -> None:
    async def play() -> None:
        server = Server()
        gate = _gate(server, max_bytes)
        await _open(gate)
        await asyncio.wait_for(scene(gate, server), 10)  # no patience is as long

    asyncio.run(play())


async def _open(gate: Gate) -> None:
    status, _ = await Caller(gate, OPEN, b"", **{SECRET_HEADER: SECRET}).call()
    assert status == 204


async def _ring(gate: Gate, *devices: str) -> None:
    named = json.dumps(devices or ["a device"]).encode()
    status, _ = await Caller(gate, RING, named, **{SECRET_HEADER: SECRET}).call()
    assert status == 204


async def _asleep(gate: Gate, devices: int) -> None:
    """Until so many wait for a ring."""
    while sum(bell.waiting for bell in gate._bells.values()) < devices:
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "path", [TO_DEVICES, ANSWERED, "/v1/fleet/activate-node", "/v1/fleet/push-object"]
)
def test_devices_reach_what_is_for_devices(path: str):
    async def scene(gate: Gate, server: Server) -> None:
        server.bodies[path] = b"answer"
        await _ring(gate)
        assert await Caller(gate, path, b"question").call() == (200, b"answer")
        assert server.asked == [(path, b"question")]

    _run(scene)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/docs",
        "/v1/control/start-run",
        REPLIES,
        "/v1/fleet/get-fab",
        "/v1/fleet/register-node",
        RING,
        OPEN,
        "/v1/fleet/../control/start-run",
        "/v1/fleet/pull-messages/",
        "//v1/fleet/pull-messages",
        "/V1/FLEET/pull-messages",
    ],
)
def test_nothing_else_is_reached_without_the_secret(path: str):
    async def scene(gate: Gate, server: Server) -> None:
        for headers in (
            {},
            {SECRET_HEADER: ""},
            {SECRET_HEADER: SECRET[:-1]},
            {"authorization": SECRET},
        ):
            assert await Caller(gate, path, **headers).call() == (404, b"")
        assert server.asked == []

    _run(scene)


def test_with_the_secret_everything_is_reached():
    async def scene(gate: Gate, server: Server) -> None:
        server.bodies["/v1/control/start-run"] = b"started"
        assert await Caller(gate, "/v1/control/start-run", **{SECRET_HEADER: SECRET}).call() == (
            200,
            b"started",
        )

    _run(scene)


@pytest.mark.parametrize(
    ("length", "status"),
    [("1000", 200), ("1001", 413), ("99999999999", 413), ("-1", 411), ("", 411)],
)
def test_requests_have_a_length_and_it_is_bounded(length: str, status: int):
    async def scene(gate: Gate, server: Server) -> None:
        caller = Caller(gate, "/v1/fleet/push-object", bytes(10), **{"content-length": length})
        assert (await caller.call())[0] == status
        assert len(server.asked) == (status == 200)

    _run(scene)


@pytest.mark.parametrize(("length", "status"), [(500, 200), (501, 413)])
def test_a_device_sends_no_more_than_a_reply_can_have(length: int, status: int):
    async def play() -> None:
        server = Server()
        gate = Gate(
            server,
            secret=SECRET,
            max_bytes=1000,
            max_reply=500,
            guard=Enrolled(),
            check=check,
            known=print,
            mailbox=bytes.decode,
        )
        await _open(gate)
        caller = Caller(gate, "/v1/fleet/push-object", bytes(length))
        assert (await caller.call())[0] == status
        assert len(caller._parts) == (status != 200)  # nothing of the body was read
        ours = Caller(gate, "/v1/fleet/push-object", bytes(1000), **{SECRET_HEADER: SECRET})
        assert (await ours.call())[0] == 200

    asyncio.run(play())


def test_a_question_without_patience_is_answered_at_once():
    async def scene(gate: Gate, server: Server) -> None:
        for prefer in ("", "wait=0", "wait=x", "wait=nan", "wait=-3", "respond-async"):
            assert await Caller(gate, TO_DEVICES, prefer=prefer).call() == (200, b"")

    _run(scene)


@pytest.mark.parametrize("path", [TO_DEVICES, REPLIES])
def test_mail_that_is_there_is_handed_over_at_once(path: str):
    async def scene(gate: Gate, server: Server) -> None:
        server.bodies[path] = b"mail"
        assert await Caller(gate, path, prefer="wait=20", **{SECRET_HEADER: SECRET}).call() == (
            200,
            b"mail",
        )
        assert len(server.asked) == 1

    _run(scene)


def test_a_question_for_messages_waits_until_the_recommender_rings_for_it():
    async def scene(gate: Gate, server: Server) -> None:
        server.bodies[TO_DEVICES] = b"message"
        callers = [
            Caller(gate, TO_DEVICES, prefer="wait=20", device=f"device {number}")
            for number in range(3)
        ]
        waiting = [asyncio.create_task(caller.call()) for caller in callers]
        await _asleep(gate, 3)
        await _ring(gate, "device 0", "device 2", "nobody")
        assert [await waiting[number] for number in (0, 2)] == [(200, b"message")] * 2
        assert not waiting[1].done()
        assert len(server.asked) == 2  # nobody asks for a device that has no mail
        await _ring(gate, "device 1")
        assert await waiting[1] == (200, b"message")

    _run(scene)


def test_mail_is_there_until_all_of_it_was_fetched():
    async def scene(gate: Gate, server: Server) -> None:
        await _ring(gate)  # before the device asks
        for message in (b"left over", b"new"):
            server.bodies[TO_DEVICES] = message
            assert await Caller(gate, TO_DEVICES).call() == (200, message)
        server.bodies[TO_DEVICES] = b""
        assert await Caller(gate, TO_DEVICES).call() == (200, b"")
        assert len(server.asked) == 3
        assert await Caller(gate, TO_DEVICES).call() == (200, b"")
        assert len(server.asked) == 3
        assert not gate._bells

    _run(scene)


def test_a_question_for_replies_waits_until_a_device_has_answered():
    async def scene(gate: Gate, server: Server) -> None:
        waiting = asyncio.create_task(
            Caller(gate, REPLIES, prefer="wait=20", **{SECRET_HEADER: SECRET}).call()
        )
        while not server.asked:
            await asyncio.sleep(0)
        await _ring(gate)  # is not for it
        server.bodies[REPLIES] = b"reply"
        await Caller(gate, ANSWERED).call()
        assert await waiting == (200, b"reply")

    _run(scene)


def test_a_ring_while_the_question_is_asked_is_not_missed():
    async def scene(gate: Gate, server: Server) -> None:
        def deliver() -> (
            None
        ):  # too late for this answer, which is empty already, and before the wait begins
            server.on_ask = lambda: None
            server.bodies[TO_DEVICES] = b"message"
            gate._bells["a device"].ring()

        server.on_ask = deliver
        await _ring(gate)
        assert await Caller(gate, TO_DEVICES, prefer="wait=20").call() == (200, b"message")

    _run(scene)


def test_patience_ends():
    async def scene(gate: Gate, server: Server) -> None:
        begin = time.monotonic()
        assert await Caller(gate, TO_DEVICES, prefer="wait=0.05").call() == (200, b"")
        assert time.monotonic() - begin > 0.04

    _run(scene)


def test_no_mail_is_fetched_for_who_has_hung_up():
    async def scene(gate: Gate, server: Server) -> None:
        caller = Caller(gate, TO_DEVICES, prefer="wait=20")
        waiting = asyncio.create_task(gate(caller._scope, caller._receive, caller._send))
        await _asleep(gate, 1)
        caller.hang_up()
        await waiting
        server.bodies[TO_DEVICES] = b"message"
        await _ring(gate)
        assert server.asked == []
        assert caller.answer == []

    _run(scene)


def test_a_websocket_is_closed():
    async def scene(gate: Gate, server: Server) -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await gate({"type": "websocket", "path": TO_DEVICES, "headers": []}, send, send)
        assert [message["type"] for message in sent] == ["websocket.close"]
        assert server.asked == []

    _run(scene)


def test_strangers_are_turned_away_before_anything_is_read():
    async def scene(gate: Gate, server: Server) -> None:
        caller = Caller(gate, "/v1/fleet/push-object", bytes(10), stranger="yes")
        assert await caller.call() == (401, b"")
        assert len(caller._parts) == 1  # still there
        assert (b"connection", b"close") in caller.answer[0]["headers"]
        assert server.asked == []

    _run(scene)


def test_a_body_that_was_not_signed_is_refused():
    async def scene(gate: Gate, server: Server) -> None:
        assert await Caller(gate, ANSWERED, other_body="yes").call() == (401, b"")
        assert server.asked == []

    _run(scene)


@pytest.mark.parametrize(("path", "status"), [(TO_DEVICES, 413), ("/v1/fleet/push-object", 200)])
def test_only_what_carries_a_reply_may_be_long(path: str, status: int):
    async def scene(gate: Gate, server: Server) -> None:
        assert (await Caller(gate, path, bytes(ENVELOPE + 1)).call())[0] == status

    _run(scene, max_bytes=10 * ENVELOPE)


def test_a_device_has_few_calls_open_at_once():
    async def scene(gate: Gate, server: Server) -> None:
        waiting = [
            asyncio.create_task(Caller(gate, TO_DEVICES, prefer="wait=20").call())
            for _ in range(CALLS_AT_ONCE)
        ]
        await _asleep(gate, CALLS_AT_ONCE)
        assert await Caller(gate, ANSWERED).call() == (429, b"")
        assert await Caller(gate, ANSWERED, device="another").call() == (200, b"")
        server.bodies[TO_DEVICES] = b"message"
        await _ring(gate)
        await asyncio.gather(*waiting)
        assert await Caller(gate, ANSWERED).call() == (200, b"")

    _run(scene)


def test_messages_are_for_devices_when_all_their_parts_are_there():
    async def scene(gate: Gate, server: Server) -> None:
        server.bodies[TO_DEVICES] = b"message"
        assert await Caller(gate, TO_DEVICES).call() == (200, b"")
        waiting = asyncio.create_task(Caller(gate, TO_DEVICES, prefer="wait=20").call())
        await asyncio.sleep(0.05)
        await Caller(gate, "/v1/runtime/push-object", **{SECRET_HEADER: SECRET}).call()
        assert not waiting.done()
        await _ring(gate)
        assert await waiting == (200, b"message")

    _run(scene)


def test_a_device_sends_one_long_body_at_a_time():
    async def scene(gate: Gate, server: Server) -> None:
        path = "/v1/fleet/push-object"
        slow = Caller(gate, path, b"x")
        slow._parts[0]["more_body"] = True  # and then nothing comes
        sending = asyncio.create_task(slow.call())
        await asyncio.sleep(0.01)
        assert await Caller(gate, path, b"x").call() == (429, b"")
        assert await Caller(gate, path, b"x", device="another").call() == (200, b"")
        slow.hang_up()
        with pytest.raises(IndexError):  # there is nobody to answer
            await sending
        assert await Caller(gate, path, b"x").call() == (200, b"")

    _run(scene)


def test_nobody_is_called_a_stranger_before_the_roster_is_here_or_while_the_server_ends():
    async def play() -> None:
        server = Server()
        gate = _gate(server, 1000)
        for headers in ({}, {"stranger": ""}):
            assert await Caller(gate, TO_DEVICES, **headers).call() == (503, b"")
        await _open(gate)
        assert await Caller(gate, TO_DEVICES).call() == (200, b"")
        waiting = Caller(gate, TO_DEVICES, prefer="wait=9")
        answer = asyncio.ensure_future(waiting.call())
        await _asleep(gate, 1)
        gate.close()
        assert await asyncio.wait_for(answer, 1) == (503, b"")
        assert await Caller(gate, TO_DEVICES).call() == (503, b"")

    asyncio.run(play())


def test_a_refusal_says_what_time_it_is():
    async def scene(gate: Gate, server: Server) -> None:
        stranger = Caller(gate, TO_DEVICES, stranger="")
        assert await stranger.call() == (401, b"")
        said = float(dict(stranger.answer[0]["headers"])[CLOCK_HEADER.encode()])
        assert abs(said - time.time()) < 5

    _run(scene)
