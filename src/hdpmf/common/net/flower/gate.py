"""The door in front of Flower's SuperLink: devices get only what devices need, and strangers get
nothing.

Flower serves three interfaces on one port: Fleet (for devices), Control (start runs, register
devices, stop runs) and Runtime (be the server's app). Control asks for no credentials at all, and a
run that is started there runs the sender's code on the server. So this door lets enrolled devices
through to eight calls of Fleet, and to everything else only who knows the secret that the
recommender's process drew when it started the SuperLink. Who calls is settled on the headers
(``signing``); until then nothing of a body is read.

It also saves polling. Whoever asks for messages may add ``Prefer: wait=SECONDS``; while there are
none, the question waits here until something was delivered, instead of being asked ten times a
second. The recommender's ring names the devices that have mail, when all of its parts are there;
nobody else is woken, and for nobody else is Flower asked.

What devices may know of the recommender's authorities is told here, too (``succession``).

Until the recommender has brought its roster, and from when the process ends, devices get a 503:
nobody is told then that it is not enrolled.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Hashable, Mapping, MutableMapping
from typing import Any, Protocol

from hdpmf.common.net.flower.versions import OTHER_VERSION, PROTOCOL, SPOKEN, speaks_another
from hdpmf.errors import TransportError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SECRET_HEADER = "x-hdpmf-secret"  # noqa: S105 - a header's name
RING = "/hdpmf/ring"
OPEN = "/hdpmf/open"
AUTHORITIES = "/hdpmf/authorities"
CLOCK_HEADER = "x-hdpmf-clock"
"""In a refusal of who calls: the time here, so that a device with a wrong clock knows why."""
CALLER = "hdpmf.caller"
"""In a request's scope: the public key of the device that signed it."""
ENVELOPE = 64 * 1024
"""Bytes around a message: the heads of its parts, and the request that carries one."""
MAX_WAIT = 20.0
"""Seconds that a question may wait: below every client's own patience for an answer (30)."""
CALLS_AT_ONCE = 4
"""Of one device: one asks for messages or answers, one is a sign of life."""
BODY_SECONDS = 60.0
"""A body has to be here within this time."""

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
) | {AUTHORITIES}
TO_DEVICES = _FLEET + "pull-messages"
TO_RECOMMENDER = "/v1/runtime/pull-messages"
_LONG = _FLEET + "push-object"  # the only call of a device that carries more than a few names
_ANSWERED = _FLEET + "confirm-message-received"  # the last call of a device in an exchange


class Guard(Protocol):
    """Who tells enrolled devices from strangers."""

    def caller(
        self, headers: Mapping[bytes, bytes], method: str, path: str, length: int
    ) -> bytes | None:
        """The public key of the enrolled device that signed these headers; None if none did."""
        ...


class Gate:
    """An ASGI application around another one.

    Args:
        app: What is behind the door.
        secret: Opens everything.
        max_bytes: No request may be longer.
        max_reply: Nor one of a device, where this is less.
        guard: Tells devices from strangers.
        check: Raises TransportError if a body is not the one that its headers speak of.
        known: Told the address of a connection on which a device, or who has the secret, has
            called.
        mailbox: Whose mail a device with this key may have, as the recommender's ring names it.
        here: Told whose device asks for mail, which is a sign of life, and for how many seconds it
            will wait; and again, with 0, when it hung up meanwhile.
        told: What devices are told about the recommender's authorities.
    """

    def __init__(
        self,
        app: App,
        *,
        secret: str,
        max_bytes: int,
        max_reply: int | None = None,
        guard: Guard,
        check: Callable[[Mapping[bytes, bytes], bytes], None],
        known: Callable[[Any], None],
        mailbox: Callable[[bytes], Hashable],
        here: Callable[[Any, float], None] = lambda box, seconds: None,
        told: bytes = b"",
    ) -> None:
        self._app = app
        self._secret = secret.encode("ascii")
        self._max_bytes = max_bytes
        self._max_reply = max_bytes if max_reply is None else min(max_reply, max_bytes)
        self._guard = guard
        self._check = check
        self._known = known
        self._mailbox, self._here = mailbox, here
        self._bells: defaultdict[Hashable, _Bell] = defaultdict(_Bell)
        self._mail: set[Hashable] = set()
        self._told = told
        self._calls: Counter[bytes] = Counter()
        self._sending: set[bytes] = set()
        self._open = False

    def close(self) -> None:
        """Turn devices away from now on, also those that wait for messages: the server ends."""
        self._open = False
        for bell in self._bells.values():
            bell.ring()

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
        ours = hmac.compare_digest(headers.get(SECRET_HEADER.encode(), b""), self._secret)
        if not ours and path not in DEVICE_CALLS:
            await _refuse(send, 404)
            return
        if not ours and not self._open:
            await _refuse(send, 503)
            return
        length = headers.get(b"content-length", b"0" if scope["method"] in ("GET", "HEAD") else b"")
        if not length.isdigit() or len(length) > 12:
            await _refuse(send, 411)
        elif int(length) > (
            self._max_bytes if ours else self._max_reply if path == _LONG else ENVELOPE
        ):
            await _refuse(send, 413)
        elif ours:
            self._known(scope.get("client"))
            await self._of_recommender(scope, headers, receive, send)
        elif (caller := self._guard.caller(headers, scope["method"], path, int(length))) is None:
            await _refuse(send, OTHER_VERSION if speaks_another(headers) else 401)
        elif self._calls[caller] >= CALLS_AT_ONCE or (path == _LONG and caller in self._sending):
            await _refuse(send, 429)
        else:
            self._known(scope.get("client"))
            self._calls[caller] += 1
            if path == _LONG:
                self._sending.add(caller)  # one long body of a device at a time
            try:
                await self._of_device({**scope, CALLER: caller}, headers, receive, send)
            finally:
                self._calls[caller] -= 1
                if path == _LONG:
                    self._sending.discard(caller)
                if not self._calls[caller]:
                    del self._calls[caller]

    async def _of_recommender(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        path = scope["path"]
        if path == RING:
            body = await read_body(receive)
            for box in json.loads(body or b"[]"):
                self._mail.add(box)
                if box in self._bells:
                    self._bells[box].ring()
            await _refuse(send, 204)
        elif path == OPEN:
            self._open = True
            await _refuse(send, 204)
        elif path == TO_RECOMMENDER and (patience := _patience(headers)) > 0:
            body = await read_body(receive)
            if body is not None:
                await self._wait_for_mail(TO_RECOMMENDER, patience, scope, body, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _of_device(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        path = scope["path"]
        try:
            body = await asyncio.wait_for(read_body(receive), BODY_SECONDS)
            if body is None:
                return
            self._check(headers, body)
        except TransportError:
            await _refuse(send, 401)
            return
        except TimeoutError:
            await _refuse(send, 408)
            return
        if path == TO_DEVICES:
            await self._wait_for_mail(
                self._mailbox(scope[CALLER]), _patience(headers), scope, body, receive, send
            )
            return
        if path == AUTHORITIES:
            size = str(len(self._told)).encode()
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-length", size)],
                }
            )
            await send({"type": "http.response.body", "body": self._told})
            return
        for message in await _ask(self._app, scope, body):
            await send(message)
        if path == _ANSWERED and TO_RECOMMENDER in self._bells:
            self._bells[TO_RECOMMENDER].ring()

    async def _wait_for_mail(
        self,
        box: Hashable,
        patience: float,
        scope: Scope,
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer when there is mail in a box. Flower looks through all messages there are, so it
        is asked only then.
        """
        bell, of_device = self._bells[box], scope["path"] == TO_DEVICES
        gone = asyncio.ensure_future(receive())  # ends when the other side hangs up
        end = time.monotonic() + patience
        bell.waiting += 1
        if of_device:
            self._here(box, patience)
        try:
            while True:
                next_ring = (
                    bell.next()
                )  # taken before the question: a ring while it is asked must not be missed
                if not self._open and of_device:
                    await _refuse(send, 503)
                    return
                answer = (
                    _EMPTY
                    if of_device and box not in self._mail
                    else await _ask(self._app, scope, body)
                )
                left = end - time.monotonic()
                if gone.done():
                    return
                if not _no_mail(answer):
                    break
                if not next_ring.done():
                    self._mail.discard(box)
                if left <= 0:
                    break
                either: set[asyncio.Future[Any]] = {gone, next_ring}
                await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return  # and no mail is fetched for somebody who cannot get it
            for message in answer:
                await send(message)
        finally:
            bell.waiting -= 1
            if not bell.waiting:
                self._bells.pop(box, None)
            if of_device and gone.done():
                self._here(box, 0.0)
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await gone


class _Bell:
    """Wakes whoever waits, once per ring.

    Attributes:
        waiting: How many do.
    """

    def __init__(self) -> None:
        self.waiting = 0
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


_EMPTY: list[Message] = [
    {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]},
    {"type": "http.response.body", "body": b""},
]


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
        seconds = float(value)
    except ValueError:
        return 0.0
    return (
        min(seconds, MAX_WAIT) if seconds > 0.0 else 0.0
    )  # which is what a number that is none gets too


async def _refuse(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0")]
    if status == 401:
        headers.append((CLOCK_HEADER.encode(), f"{time.time():.3f}".encode()))
    if status >= 400:
        headers.append((PROTOCOL.encode(), str(SPOKEN).encode()))
        headers.append(
            (b"connection", b"close")
        )  # what was not read of the body is not read any more
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
