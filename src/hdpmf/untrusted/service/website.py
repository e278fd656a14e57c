"""The recommender's web server: public files, the mailbox of participants, and their inbox.

Devices look at the index now and then, and load only files that they lack. Whoever polls the
mailbox is told the version of the index, and looks when it has changed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from hdpmf.common.aggregation.two_servers.tokens import RESPONSE_MEDIA_TYPE, TOKENS_PATH
from hdpmf.common.base.logs import event
from hdpmf.common.net.authority_rotation import names_of
from hdpmf.common.net.certificates import ServerTls, ensure_certificates
from hdpmf.common.net.mailbox import BODY_SECONDS, Mailbox
from hdpmf.common.net.server import HttpLimits, listen, serving
from hdpmf.common.net.signing import server_name
from hdpmf.common.protocol.task import DEVICE_HEADER, SIGNATURE_HEADER
from hdpmf.errors import StorageError, needs
from hdpmf.untrusted.service.aggregation.token_issuer import TokenIssuer
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.publish import INDEX, is_public, public_file

with needs("starlette"):
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LIMITS = HttpLimits(
    connections=4_000,
    per_address=None,  # a proxy, or a whole town behind one address
    header_seconds=10.0,
    body_seconds=BODY_SECONDS,
    life_seconds=300.0,  # nobody keeps a connection by reading a byte a minute
)

IDLE_SECONDS = 30
_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True, repr=False)
class _Held:
    """A file as it is sent."""

    data: bytes
    headers: dict[str, str]


class Desk(Protocol):
    """Takes messages of devices for a task: ``TokenIssuer``."""

    def refusal(self, task: str, device: str, length: int) -> int:
        """Return the status of a refusal before any of so many bytes is read, or 0."""

    def take(
        self, task: str, device: str, signature: bytes, body: bytes, /
    ) -> int | tuple[int, bytes]:
        """Return the status of the answer, with a body if there is one."""


class Website:
    """Serves a folder of public files, cached in memory while the index is the same.

    Args:
        folder: Of ``PublicFiles``.
        mailbox: Of participants that poll, if any.
        issuer: Gives tokens to devices that report to two servers, if any do.
        requests: Counts requests by status.
    """

    def __init__(
        self,
        folder: Path,
        mailbox: Mailbox | None = None,
        issuer: TokenIssuer | None = None,
        requests: Counter[int] | None = None,
    ) -> None:
        self._folder = folder
        self._index: tuple[int, int] = (0, 0)
        self._held: dict[str, _Held] = {}
        self._mailbox = mailbox
        files = Route("/{name}", self._answer, methods=["GET", "HEAD"])
        self._sending: set[tuple[str, str]] = set()
        routes = [] if mailbox is None else list(mailbox.routes)
        if issuer is not None:
            routes.append(Route(TOKENS_PATH, self._desk(issuer), methods=["POST"]))
        routed = Starlette(routes=[*routes, files])
        self.app: ASGIApp = routed if requests is None else _counting(routed, requests)
        if mailbox is not None:
            mailbox.files_version = self._version

    async def _answer(self, request: Request) -> Response:
        found = self._find(request.path_params["name"])
        if found is None:
            return Response(status_code=404)
        if self._mailbox is not None:
            self._mailbox.file_sent()
        if _has(request.headers.get("if-none-match", ""), found.headers["etag"]):
            kept = ("etag", "cache-control")
            return Response(status_code=304, headers={name: found.headers[name] for name in kept})
        return Response(found.data, headers=found.headers, media_type="application/octet-stream")

    def _desk(self, desk: Desk) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of messages that devices sign; strangers get no body read."""

        async def answer(request: Request) -> Response:
            task, device = request.path_params["task_id"], request.headers.get(DEVICE_HEADER, "")
            length = request.headers.get("content-length", "")
            if not (length.isdigit() and len(length) < 13):
                return _empty(411)
            sending = request.method, device
            try:
                status = desk.refusal(task, device, int(length))
            except StorageError:
                status = 507
            if not status and sending in self._sending:
                status = 429
            if status:
                return _empty(status)
            self._sending.add(sending)
            try:
                signature = bytes.fromhex(request.headers.get(SIGNATURE_HEADER, ""))
                body = await asyncio.wait_for(request.body(), BODY_SECONDS)
                found = await run_in_threadpool(desk.take, task, device, signature, body)
            except TimeoutError:
                return _empty(408)
            except ValueError:
                return _empty(401)
            except ClientDisconnect:
                return _empty(400)
            except StorageError:
                return _empty(507)
            finally:
                self._sending.discard(sending)
            if isinstance(found, int):
                return _empty(found)
            status, data = found
            return Response(data, media_type=RESPONSE_MEDIA_TYPE) if data else _empty(status)

        return answer

    def _version(self) -> str:
        index = self._find(INDEX)
        return "" if index is None else index.headers["etag"]

    def _find(self, name: str) -> _Held | None:
        if not is_public(name):
            return None
        try:
            stat = (self._folder / INDEX).stat()
        except OSError:
            return None
        if (stat.st_mtime_ns, stat.st_ino) != self._index:
            self._held = {}
            self._index = (stat.st_mtime_ns, stat.st_ino)
        if name not in self._held:
            data = public_file(self._folder, name)
            if data is None:
                return None
            self._held[name] = _Held(data, _headers(name, data))
        return self._held[name]


def _counting(app: ASGIApp, requests: Counter[int]) -> ASGIApp:
    """Return the application, which counts its answers by status."""

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                requests[message["status"]] += 1
                event("answered", logging.DEBUG, status=message["status"])
            await send(message)

        await app(scope, receive, answer)

    return counted


def _empty(status: int) -> Response:
    """An answer without a body; after a refusal nothing more of the request is read."""
    headers = {"content-length": "0"} | ({"connection": "close"} if status >= 400 else {})
    return Response(status_code=status, headers=headers)


def _headers(name: str, data: bytes) -> dict[str, str]:
    digest = sha256(data).digest()
    return {
        "etag": f'"{digest.hex()}"',
        "content-digest": f"sha-256=:{base64.b64encode(digest).decode()}:",
        "cache-control": "no-cache" if name == INDEX else _FOREVER,
        "x-content-type-options": "nosniff",
    }


def _has(known: str, tag: str) -> bool:
    """Return whether one of these ETags matches."""
    tags = [part.strip().removeprefix("W/") for part in known.split(",")]
    return tag in tags or tags == ["*"]


def mailbox_of(service: ServiceFolder, longest: Callable[[], int] | None = None) -> Mailbox:
    """Return a mailbox for the enrolled; ``longest`` returns the largest contribution in bytes."""
    tls = service.tls_folder
    names = service.config.names
    ensure_certificates(tls, names)
    called = [server_name(authority, "") for authority in names_of(tls)] + [
        server_name(b"", name) for name in names
    ]
    return Mailbox(called, service.enrolled.users, longest=longest)


@contextlib.contextmanager
def serve_website(
    service: ServiceFolder,
    mailbox: Mailbox | None = None,
    issuer: TokenIssuer | None = None,
    requests: Counter[int] | None = None,
    port: int | None = None,
) -> Iterator[str]:
    """Serve the public files and what else is given, while inside; yield the address.

    ``requests`` counts requests by status, ``port`` is another one than the configuration's.

    Raises:
        ConfigError: The port is not available.
        TransportError: The web server did not start.
    """
    config = service.config
    tls = ServerTls(lambda: ensure_certificates(service.tls_folder, config.names))
    website = Website(service.path / "public", mailbox, issuer, requests)
    listener = listen(config.host, config.port if port is None else port)
    try:
        with serving(website.app, listener, tls, LIMITS, idle=IDLE_SECONDS) as bound:
            yield f"https://{config.names[0]}:{bound}"
    finally:
        if mailbox is not None:
            mailbox.close()
