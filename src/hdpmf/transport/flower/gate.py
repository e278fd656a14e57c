"""The door in front of Flower's SuperLink: one port, of which devices get only what devices need.

Flower serves three interfaces on one port: Fleet (for devices), Control (start runs, register devices, stop runs) and
Runtime (be the server's app). Control asks for no credentials at all, and a run that is started there runs the
sender's code on the server. So this door lets anybody through to eight calls of Fleet, where Flower authenticates the
node, and to everything else only who knows the secret that the recommender's process drew when it started the
SuperLink.

It also saves polling. Whoever asks for messages may add ``Prefer: wait=SECONDS``; while there are none, the question
waits here until something was delivered, instead of being asked ten times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SECRET_HEADER = "x-hdpmf-secret"  # noqa: S105 - a header's name
RING = "/hdpmf/ring"
ENVELOPE = 64 * 1024
"""Bytes around a message: the heads of its parts, and the request that carries one."""
MAX_WAIT = 20.0
"""Seconds that a question may wait: below every client's own patience for an answer (30)."""

_FLEET = "/v1/fleet/"
DEVICE_CALLS = frozenset(
    _FLEET + name
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
TO_DEVICES = _FLEET + "pull-messages"
TO_RECOMMENDER = "/v1/runtime/pull-messages"
_ANSWERED = _FLEET + "confirm-message-received"  # the last call of a device in an exchange


class Gate:
    """An ASGI application around another one.

    Args:
        app: What is behind the door.
        secret: Opens everything.
        max_bytes: No request may be longer.
    """

    def __init__(self, app: App, *, secret: str, max_bytes: int) -> None:
        self._app = app
        self._secret = secret.encode("ascii")
        self._max_bytes = max_bytes
        self._bells = {TO_DEVICES: _Bell(), TO_RECOMMENDER: _Bell()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request (or the start and end of the server)."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        headers = dict(scope["headers"])
        path = scope["path"]
        known = hmac.compare_digest(headers.get(SECRET_HEADER.encode(), b""), self._secret)
        if not known and path not in DEVICE_CALLS:
            await _refuse(send, 404)
            return
        length = headers.get(b"content-length", b"0" if scope["method"] in ("GET", "HEAD") else b"")
        if not length.isdigit():
            await _refuse(send, 411)
        elif int(length) > self._max_bytes:
            await _refuse(send, 413)
        elif path == RING:
            self._bells[TO_DEVICES].ring()
            await _refuse(send, 204)
        elif path in self._bells and (patience := _patience(headers)) > 0:
            await self._wait_for_mail(self._bells[path], patience, scope, receive, send)
        else:
            await self._app(scope, receive, send)
            if path == _ANSWERED:
                self._bells[TO_RECOMMENDER].ring()

    async def _wait_for_mail(self, bell: _Bell, patience: float, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if body is None:
            return
        gone = asyncio.ensure_future(receive())  # ends when the other side hangs up
        end = time.monotonic() + patience
        try:
            while True:
                next_ring = bell.next()  # taken before the question: a ring while it is asked must not be missed
                answer = await _ask(self._app, scope, body)
                left = end - time.monotonic()
                if gone.done():
                    return
                if left <= 0 or not _no_mail(answer):
                    break
                either: set[asyncio.Future[Any]] = {gone, next_ring}
                await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return  # and no mail is fetched for somebody who cannot get it
            for message in answer:
                await send(message)
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await gone


class _Bell:
    """Wakes whoever waits, once per ring."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def next(self) -> asyncio.Future[None]:
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    def ring(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)


async def _ask(app: App, scope: Scope, body: bytes) -> list[Message]:
    """What ``app`` answers, whole."""
    question = iter([{"type": "http.request", "body": body, "more_body": False}])
    answer: list[Message] = []
    never = asyncio.Event()

    async def receive() -> Message:
        for message in question:
            return message
        await never.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        answer.append(message)

    await app(dict(scope), receive, send)
    return answer


def _no_mail(answer: list[Message]) -> bool:
    """A list of messages without messages is, in Protocol Buffers, no bytes at all."""
    return answer[0].get("status") == 200 and not any(message.get("body") for message in answer)


async def read_body(receive: Receive) -> bytes | None:
    """The whole body of a request; None if the other side hung up before."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _patience(headers: dict[bytes, bytes]) -> float:
    name, _, value = headers.get(b"prefer", b"").partition(b"=")
    if name.strip().lower() != b"wait":
        return 0.0
    try:
        return min(max(float(value), 0.0), MAX_WAIT)
    except ValueError:
        return 0.0


async def _refuse(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
