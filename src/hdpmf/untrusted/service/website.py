"""The public files over HTTPS. Devices ask for the index now and then; what they have, they do
not load again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.extras import needs
from hdpmf.common.net.http_limits import Connections, HttpLimits, LimitedServer, allow_connections
from hdpmf.common.net.tls import server_context
from hdpmf.common.net.web_server import WebServer, listen, settings
from hdpmf.errors import TransportError
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.publish import INDEX, is_public, public_file

with needs("starlette"):
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

LIMITS = HttpLimits(
    connections=4_000,
    per_address=None,  # a proxy, or a whole town behind one address
    header_seconds=10.0,
    body_seconds=10.0,  # there is none
    life_seconds=300.0,  # nobody keeps a connection by reading a byte a minute
)

IDLE_SECONDS = 30
_GRACE_SECONDS = 2
_START_SECONDS = 20.0
_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True, repr=False)
class _Held:
    """A file as it is sent."""

    data: bytes
    headers: dict[str, str]


class Website:
    """Answers for a folder of public files; those that never change are kept in memory while the
    index is the same.

    Args:
        folder: Of ``PublicFiles``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index: tuple[int, int] = (0, 0)
        self._held: dict[str, _Held] = {}
        self.app = Starlette(routes=[Route("/{name}", self._answer, methods=["GET", "HEAD"])])

    async def _answer(self, request: Request) -> Response:
        found = self._find(request.path_params["name"])
        if found is None:
            return Response(status_code=404)
        if _has(request.headers.get("if-none-match", ""), found.headers["etag"]):
            kept = ("etag", "cache-control")
            return Response(status_code=304, headers={name: found.headers[name] for name in kept})
        return Response(found.data, headers=found.headers, media_type="application/octet-stream")

    def _find(self, name: str) -> _Held | None:
        if not is_public(name):
            return None
        try:
            stat = (self._folder / INDEX).stat()
        except OSError:
            return None
        if (stat.st_mtime_ns, stat.st_ino) != self._index:
            self._held, self._index = {}, (stat.st_mtime_ns, stat.st_ino)
        if name not in self._held:
            data = public_file(self._folder, name)
            if data is None:
                return None
            self._held[name] = _Held(data, _headers(name, data))
        return self._held[name]


def _headers(name: str, data: bytes) -> dict[str, str]:
    digest = sha256(data).digest()
    return {
        "etag": f'"{digest.hex()}"',
        "content-digest": f"sha-256=:{base64.b64encode(digest).decode()}:",
        "cache-control": "no-cache" if name == INDEX else _FOREVER,
        "x-content-type-options": "nosniff",
    }


def _has(known: str, tag: str) -> bool:
    """Whether the tags that a device has are of what it asks for."""
    tags = [part.strip().removeprefix("W/") for part in known.split(",")]
    return tag in tags or tags == ["*"]


@contextlib.contextmanager
def served(service: ServiceFolder) -> Iterator[str]:
    """Serve the public files while inside; the address.

    Raises:
        ConfigError: The port cannot be had.
        TransportError: The web server did not start.
    """
    config = service.config
    paths = ensure_certificates(service.transport_folder / "tls", config.names)
    allow_connections(LIMITS.connections)
    listener = listen(config.host, config.port)
    told = settings(
        Website(service.path / "public").app,
        Connections(LIMITS).protocol,
        idle=IDLE_SECONDS,
        grace=_GRACE_SECONDS,
    )
    server = LimitedServer(told, server_context(str(paths.server), str(paths.key)), lambda: None)
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True
    )
    thread.start()
    try:
        _await_start(server, thread)
        yield f"https://{config.names[0]}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _await_start(server: WebServer, thread: threading.Thread) -> None:
    end = time.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > end:
            raise TransportError("the public files cannot be served: the web server did not start")
        time.sleep(0.01)
