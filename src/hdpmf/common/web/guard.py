"""Request checks of a page on this machine: host and origin, response headers, bounded bodies.

A web page on loopback is reachable by every page that the browser shows and by every user of the
machine. So a request must name our host exactly (another name that leads here is DNS rebinding) and
come from our own pages, and responses forbid embedding, reading, caching and extending them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from hdpmf.common.net.extras import needs

with needs("starlette", "page"):
    from starlette.requests import ClientDisconnect, Request


Scope = MutableMapping[str, Any]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
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


class PageGuard:
    """ASGI middleware that refuses requests that do not come from our own page.

    Args:
        app: The guarded application.
        host: Name and port by which browsers must address us.
        public: Paths that other sites may link to, because they show nothing.
        scheme: ``https`` behind a proxy that has a certificate.
    """

    def __init__(
        self, app: App, host: str, public: frozenset[str] = frozenset(), scheme: str = "http"
    ) -> None:
        self._app = app
        self._host = host
        self._origin = f"{scheme}://{host}"
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
        """Return the reason to refuse a request, or None."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if headers.get("host") != [self._host]:
            return "This page has another address."
        origins = headers.get("origin", [])
        if any(origin != self._origin for origin in origins):
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
    return (
        {_text(name): _text(value) for name, value in found.items()}
        if isinstance(found, dict)
        else {}
    )


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
