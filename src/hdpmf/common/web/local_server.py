"""A page for this machine only: a loopback server, checks of requests, browser sessions.

A web page on loopback is reachable by every page that the browser shows and by every user of the
machine. So a request must name our host exactly (another name that leads here is DNS rebinding) and
come from our own pages, and responses forbid embedding, reading, caching and extending them. A
browser gets its session by a one-time token; sessions lock when idle.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import socket
import tempfile
import time
import webbrowser
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from hdpmf.errors import ConfigError, needs

with needs("starlette", "page"), needs("uvicorn", "page"):
    from starlette.requests import ClientDisconnect, Request

    from hdpmf.common.net.server import WebServer, settings


TOKEN_SECONDS = 600.0
"""How long a link of the command can be used."""

IDLE_SECONDS = 900.0
"""After so long without a request a session is locked."""

_FREE_TRIES = 3
_LONGEST_WAIT = 300.0
_MOST_SESSIONS = 4


@dataclass(slots=True, repr=False, eq=False)
class BrowserSession:
    """The session of one browser.

    Attributes:
        csrf: Token in every request that changes something.
        notes: Notes for the next page: a kind and a sentence each.
        state: Values that a view keeps between two requests, as the preview of a file.
    """

    csrf: str
    used_at: float
    locked: bool = False
    notes: list[tuple[str, str]] = field(default_factory=list)
    state: dict[str, object] = field(default_factory=dict)

    def note(self, words: str, kind: str = "done") -> None:
        """Add a note for the next page; the same is said once, however often it happened."""
        if (kind, words) not in self.notes:
            self.notes.append((kind, words))

    def take_notes(self) -> list[tuple[str, str]]:
        """Return the notes and clear them."""
        notes = self.notes
        self.notes = []
        return notes


class BrowserSessions:
    """Browser sessions, started by one-time tokens and locked after ``idle`` seconds."""

    def __init__(
        self, idle: float = IDLE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle = idle
        self._clock = clock
        self._tokens: dict[bytes, float] = {}
        self._sessions: dict[bytes, BrowserSession] = {}

    def __repr__(self) -> str:
        return f"PageDoor({len(self._sessions)} sessions)"

    def token(self) -> str:
        """Return a new token, valid once and for ``TOKEN_SECONDS``."""
        now = self._clock()
        self._tokens = {known: until for known, until in self._tokens.items() if until > now}
        token = secrets.token_urlsafe(32)
        self._tokens[_known_by(token)] = now + TOKEN_SECONDS
        return token

    def enter(self, token: str) -> str | None:
        """Exchange a token for a new session's cookie; None if it is invalid."""
        until = self._tokens.pop(_known_by(token), None)
        if until is None or until <= self._clock():
            return None
        return self.begin()

    def begin(self, *, locked: bool = False) -> str:
        """Begin a session, and return its cookie."""
        now = self._clock()
        cookie = secrets.token_urlsafe(32)
        while len(self._sessions) >= _MOST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        self._sessions[_known_by(cookie)] = BrowserSession(
            csrf=secrets.token_urlsafe(32), used_at=now, locked=locked
        )
        return cookie

    def session(self, cookie: str, *, used: bool = True) -> BrowserSession | None:
        """Return the session of a cookie, locked if it has been idle; ``used`` counts as use."""
        session = self._sessions.get(_known_by(cookie))
        if session is None:
            return None
        if self.seconds_left(session) <= 0:
            self.lock(session)
        elif used:
            session.used_at = self._clock()
        return session

    def seconds_left(self, session: BrowserSession) -> float:
        """Return the seconds until a session locks."""
        return 0.0 if session.locked else session.used_at + self._idle - self._clock()

    def lock(self, session: BrowserSession) -> None:
        """Lock a session and drop its pending state."""
        session.locked = True
        session.state.clear()
        session.notes.clear()

    def unlock(self, session: BrowserSession) -> None:
        """Unlock a session, with a new CSRF token."""
        session.locked = False
        session.used_at = self._clock()
        session.csrf = secrets.token_urlsafe(32)

    def leave(self, session: BrowserSession) -> None:
        """End a session."""
        self._sessions = {
            known: other for known, other in self._sessions.items() if other is not session
        }

    @property
    def anybody(self) -> bool:
        """True if a session is in use, or an unused token could still start one."""
        now = self._clock()
        waiting = any(until > now for until in self._tokens.values())
        return waiting or any(self.seconds_left(session) > 0 for session in self._sessions.values())


def equal_secrets(given: str, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return compare_digest(given.encode(), expected.encode())


class AttemptLimit:
    """Back-off on wrong passphrases: after a few, the wait doubles with each attempt."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong = 0
        self._next_at = 0.0

    @property
    def wait(self) -> float:
        """Seconds until the next attempt is allowed."""
        return max(0.0, self._next_at - self._clock())

    def wrong(self) -> None:
        """Count a wrong attempt."""
        self._wrong += 1
        if self._wrong >= _FREE_TRIES:
            self._next_at = self._clock() + min(
                2.0 ** (self._wrong - _FREE_TRIES + 1), _LONGEST_WAIT
            )

    def right(self) -> None:
        """Reset the count."""
        self._wrong = 0
        self._next_at = 0.0


def _known_by(secret: str) -> bytes:
    """Return the hash under which a secret is kept."""
    return sha256(secret.encode()).digest()


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""What a page may load: its own files. No inline script, no other host, no frame around it."""

HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with that, browsers say "null" for the origin of a form, and could not be
    # told from others.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), clipboard-read=()",
}
"""Of every answer."""

_READS = ("GET", "HEAD")
_OWN_SITES = ("same-origin", "none")  # none: typed into the address bar, or from a bookmark


ENTER = "/enter"
"""Path of the entrance: a one-time token becomes a session there."""


class PageGuard:
    """ASGI middleware that refuses requests that do not come from our own page.

    Args:
        host: Name and port by which browsers must address us.
        public: Paths that other sites may link to, because they show nothing.
    """

    def __init__(self, app: App, host: str, public: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._host = host
        self._origin = f"http://{host}"
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [
                    *message["headers"],
                    *(pair for pair in more if pair[0] not in given),
                ]
            await send(message)

        why = self._refused(scope)
        if why is None:
            await self._app(scope, receive, with_headers)
            return
        body = why.encode()
        head = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
        ]
        await with_headers({"type": "http.response.start", "status": 403, "headers": head})
        await with_headers({"type": "http.response.body", "body": body})

    def _refused(self, scope: Scope) -> str | None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if headers.get("host") != [self._host]:
            return "This page has another address."
        origins = headers.get("origin", [])
        # A form in a file of the command has no origin; whoever sends one here needs a token.
        own = (self._origin, "null") if scope["path"] == ENTER else (self._origin,)
        if any(origin not in own for origin in origins):
            return "This request comes from another page."
        if scope["method"] not in _READS:
            return None if origins else "This request does not say which page it comes from."
        site = headers.get("sec-fetch-site", ["none"])
        if scope["path"] not in self._public and any(kind not in _OWN_SITES for kind in site):
            return "Another site leads here; open the page from its own link."
        return None


BODY_SECONDS = 60.0
"""Seconds that a body may take to come. It comes from this machine, or from a proxy beside it."""

_MOST_FIELDS = 50
_LONGEST_TOKEN = 1000


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request; nothing where it is longer than it may be, or does not come."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    return b""
    except (ClientDisconnect, TimeoutError):
        return b""
    return bytes(body)


def json_fields(data: bytes) -> dict[str, str]:
    """The fields of an object in JSON; none where it is something else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if isinstance(found, dict):
        return {_text(name): _text(value) for name, value in found.items()}
    return {}


async def entry_token(request: Request) -> tuple[str, bool]:
    """Return the token of a request at the entrance, and True if a script sent it, not a form.

    The link has it behind the #, which a script reads; the command's own file has it in a form,
    because browsers keep addresses in their history.
    """
    body = await read_body(request, _LONGEST_TOKEN)
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    by_form = kind == "application/x-www-form-urlencoded"
    fields = form_fields(body) if by_form else json_fields(body)
    return fields.get("token", ""), not by_form


def form_fields(data: bytes) -> dict[str, str]:
    """The fields of a form; none where it is something else."""
    try:
        return dict(
            parse_qsl(
                data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
            )
        )
    except ValueError:
        return {}


def _text(value: object) -> str:
    """Return text; JSON strings may contain lone surrogates, which are replaced."""
    return str(value).encode("utf-8", "replace").decode()


_TRIES = 20
_PORTS = range(10_240, 32_768)
"""Below those that systems give to outgoing connections, so that a port is free the next time,
too."""

_BACKLOG = 128
_IDLE_SECONDS = 15
_GRACE_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Loopback:
    """Sockets on the loopback addresses of this machine, all with one port.

    Cookies know names, not ports: under ``127.0.0.1`` every program of every user of this machine
    would get ours. So ``host`` is a random name under ``localhost``, which leads to loopback.
    """

    host: str
    port: int
    sockets: tuple[socket.socket, ...]

    @classmethod
    def listen(cls, port: int = 0, name: str = "") -> Loopback:
        """Listen on IPv4 and, if there is IPv6, on both; port 0 takes any that is free.

        Without ``name`` the host gets a new one.
        """
        name = name or f"p{secrets.token_hex(8)}"
        for _ in range(1 if port else _TRIES):
            chosen = port or secrets.choice(_PORTS)
            first = _bound(socket.AF_INET, "127.0.0.1", chosen)
            if first is None:
                continue
            try:
                # Browsers may try IPv6 first: whoever had this port there would get what is meant
                # for us.
                second = _bound(socket.AF_INET6, "::1", chosen)
            except OSError:  # there is no IPv6 here, for anybody
                return cls(f"{name}.localhost:{chosen}", chosen, (first,))
            if second is not None:
                return cls(f"{name}.localhost:{chosen}", chosen, (first, second))
            first.close()
        raise ConfigError(f"port {port} of this machine is taken; choose another one, or 0 for any")

    def close(self) -> None:
        """Close the sockets."""
        for listener in self.sockets:
            listener.close()


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket | None:
    """Return a listening socket; None if the port is taken. OSError: no such address here."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise


def local_server(app: App, ready: Callable[[], None] = lambda: None) -> WebServer:
    """Return a server; ``run(sockets=...)`` serves until SIGTERM, SIGINT or ``should_exit``."""
    return WebServer(settings(app, "h11", idle=_IDLE_SECONDS, grace=_GRACE_SECONDS), ready)


_FORM = (
    '<!doctype html><meta charset="utf-8"><title>hdpmf</title>'
    '<form method="post" action="{entrance}"><input type="hidden" name="token" value="{token}">'
    "<button>Open my page</button></form><script>document.forms[0].submit()</script>"
)


@dataclass(frozen=True)
class OneTimeLink:
    """The link to a page on this machine; each one works once."""

    sessions: BrowserSessions
    host: str

    def make(self) -> str:
        """Return a new link."""
        return f"http://{self.host}{ENTER}#{self.sessions.token()}"


@contextmanager
def browser_opener(browser: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that opens a link without showing it to other users of this machine.

    They see the arguments of every program, so the link goes through a file. That has the token in
    a form: an address would stay in the browser's history.

    Args:
        browser: Without it the function does nothing.
    """
    if not browser:
        yield lambda address: None
        return
    with tempfile.TemporaryDirectory(prefix="hdpmf-") as folder:  # readable by its owner only

        def show(address: str) -> None:
            page = Path(folder) / "open.html"
            descriptor = os.open(page, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            entrance, _, token = address.partition("#")
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(_FORM.format(entrance=entrance, token=token))
            webbrowser.open(page.as_uri())

        yield show
