"""The recommender's web server: public files, enrolment, and tokens.

Devices look at the index now and then, and load only files that they lack.
"""

import asyncio
import base64
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from hdpmf.common.aggregation.two_servers.tokens import RESPONSE_MEDIA_TYPE, TOKENS_PATH
from hdpmf.common.base.logs import event
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.server import PUBLIC, listen, serving
from hdpmf.common.protocol.documents import from_base64
from hdpmf.common.protocol.enrolment import MAX_ENROLMENT, PARTICIPANTS_PATH, read_enrolment
from hdpmf.common.protocol.published import INDEX, INVITATION, is_public
from hdpmf.common.protocol.servers import plain_address
from hdpmf.common.protocol.task import DEVICE_HEADER, SIGNATURE_HEADER
from hdpmf.errors import ProtocolError, StorageError, needs
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.join_page import HEADERS, join_page
from hdpmf.untrusted.service.participants import Admission, EnrolmentDesk
from hdpmf.untrusted.service.publish import public_file
from hdpmf.untrusted.service.token_issuer import TokenIssuer

with needs("starlette"):
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_SECONDS = 30.0
"""Seconds that a request for a token may take to arrive."""

IDLE_SECONDS = 30
_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True, repr=False)
class _Held:
    """A file as it is sent."""

    data: bytes
    headers: dict[str, str]


class Website:
    """Serves a folder of public files, cached in memory while the index is the same.

    Args:
        folder: Of ``PublicFiles``.
        issuer: Gives tokens to participants.
        desk: Says who may enrol; nobody without one.
        requests: Counts requests by status.
        app: Address of the app that invitations open in; empty for none.
    """

    def __init__(
        self,
        folder: Path,
        issuer: TokenIssuer,
        requests: Counter[int] | None = None,
        desk: EnrolmentDesk | None = None,
        app: str = "",
    ) -> None:
        self._greeting = join_page(app)
        self._folder = folder
        self._issuer = issuer
        self._desk = desk
        self._admitted: list[tuple[Admission, asyncio.Future[int]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._index: tuple[int, int] = (0, 0)
        self._held: dict[str, _Held] = {}
        self._sending: set[str] = set()
        routed = Starlette(
            routes=[
                Route(TOKENS_PATH, self._give_token, methods=["POST"]),
                Route(PARTICIPANTS_PATH, self._enrol, methods=["POST"]),
                Route("/join", self._greet, methods=["GET"]),
                Route("/{name}", self._answer, methods=["GET", "HEAD"]),
            ],
            middleware=[PUBLIC],
        )
        self.app: ASGIApp = routed if requests is None else _counting(routed, requests)

    async def _answer(self, request: Request) -> Response:
        found = self._find(request.path_params["name"])
        if found is None:
            return Response(status_code=404)
        if _has(request.headers.get("if-none-match", ""), found.headers["etag"]):
            kept = ("etag", "cache-control")
            return Response(status_code=304, headers={name: found.headers[name] for name in kept})
        return Response(found.data, headers=found.headers, media_type="application/octet-stream")

    async def _greet(self, request: Request) -> Response:
        return Response(self._greeting, media_type="text/html", headers=HEADERS)

    async def _enrol(self, request: Request) -> Response:
        """Enrol a participant: 201, 200 if it is enrolled, or 403, 422, 429."""
        length = request.headers.get("content-length", "")
        if not (length.isdigit() and len(length) < 13):
            return _empty(411)
        if int(length) > MAX_ENROLMENT:
            return _empty(413)
        try:
            asked = read_enrolment(await asyncio.wait_for(request.body(), BODY_SECONDS))
        except TimeoutError:
            return _empty(408)
        except ClientDisconnect:
            return _empty(400)
        except ProtocolError:
            return _empty(422)
        admitted = 403 if self._desk is None else self._desk.admit(asked)
        return _empty(admitted if isinstance(admitted, int) else await self._written(admitted))

    async def _written(self, admitted: Admission) -> int:
        """Write a participant down, with others who came meanwhile; return the status."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._admitted.append((admitted, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await done

    async def _write(self) -> None:
        while self._admitted:
            batch, self._admitted = self._admitted, []
            everybody = [admitted for admitted, _ in batch]
            try:
                found = await run_in_threadpool(self._issuer.participants.add, everybody)
            except StorageError:
                found = [507] * len(batch)
            for (_, done), status in zip(batch, found, strict=True):
                if not done.done():
                    done.set_result(status)

    async def _give_token(self, request: Request) -> Response:
        """Answer a request that a device has signed; strangers get no body read."""
        issuer = self._issuer
        task, device = request.path_params["task_id"], request.headers.get(DEVICE_HEADER, "")
        length = request.headers.get("content-length", "")
        if not (length.isdigit() and len(length) < 13):
            return _empty(411)
        try:
            status = issuer.refusal(task, device, int(length))
        except StorageError:
            status = 507
        if not status and device in self._sending:
            status = 429
        if status:
            return _empty(status)
        self._sending.add(device)
        try:
            signature = from_base64(request.headers.get(SIGNATURE_HEADER, ""))
            body = await asyncio.wait_for(request.body(), BODY_SECONDS)
            status, data = await run_in_threadpool(issuer.take, task, device, signature, body)
        except TimeoutError:
            return _empty(408)
        except ProtocolError:
            return _empty(401)
        except ClientDisconnect:
            return _empty(400)
        except StorageError:
            return _empty(507)
        finally:
            self._sending.discard(device)
        return Response(data, media_type=RESPONSE_MEDIA_TYPE) if data else _empty(status)

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
        if name == INVITATION or name not in self._held:
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
        "cache-control": "no-cache" if name in (INDEX, INVITATION) else _FOREVER,
        "x-content-type-options": "nosniff",
    }


def _has(known: str, tag: str) -> bool:
    """Return whether one of these ETags matches."""
    tags = [part.strip().removeprefix("W/") for part in known.split(",")]
    return tag in tags or tags == ["*"]


@contextlib.contextmanager
def serve_website(
    service: ServiceFolder,
    issuer: TokenIssuer,
    requests: Counter[int] | None = None,
) -> Iterator[str]:
    """Serve the public files and tokens while inside; yield the address.

    ``requests`` counts requests by status.

    Raises:
        ConfigError: The port is not available.
        TransportError: The web server did not start.
    """
    config = service.config
    tls = None if config.proxy else ensure_certificates(service.tls_folder, config.names)
    desk = EnrolmentDesk(service.path, config.enrolment, plain_address(config.address))
    website = Website(service.path / "public", issuer, requests, desk, config.app)
    listener = listen(config.host, config.port)
    with serving(website.app, listener, tls, idle=IDLE_SECONDS):
        yield config.address
