"""HTTPS servers with limits on connections, their duration and the size of headers.

uvicorn has a time-out for idle connections only, and its fast parser takes headers of any size:
clients that send a byte a minute, or a header without an end, would hold memory and every
connection there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from hdpmf.common.base.files import allow_open_files
from hdpmf.common.net.certificates import CHECK_SECONDS, ServerTls
from hdpmf.common.net.https import DATE_HEADER
from hdpmf.common.protocol.task import DEVICE_HEADER, SIGNATURE_HEADER
from hdpmf.errors import ConfigError, TransportError, needs

with needs("uvicorn"), needs("httptools"), needs("starlette"):
    import uvicorn
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


BACKLOG = 2048

PUBLIC = Middleware(
    CORSMiddleware,
    allow_origins=("*",),  # without credentials: no page can use somebody's cookies or certificates
    allow_methods=("GET", "POST", "PUT"),
    allow_headers=("authorization", "content-type", DEVICE_HEADER, SIGNATURE_HEADER),
    expose_headers=(DATE_HEADER, "retry-after"),
    max_age=86_400,
)
"""Pages of any origin may use a server: apps of others, and people's own."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: The address is not available.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another host or port "
            "in config.toml"
        ) from None


def settings(
    app: Any, http: Any, *, idle: int, grace: int, lifespan: Literal["on", "off"] = "off"
) -> uvicorn.Config:
    """Return the configuration of uvicorn for our servers.

    Args:
        app: The ASGI application.
        http: uvicorn's name of a protocol, or a class.
        idle: Seconds that a connection may do nothing.
        grace: Seconds for open requests at the end.
        lifespan: Send the app lifespan events.
    """
    return uvicorn.Config(
        app,
        http=http,
        ws="none",
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody may say that it comes from another address
        timeout_keep_alive=idle,
        timeout_graceful_shutdown=grace,
    )


class WebServer(uvicorn.Server):
    """A server that calls ``ready`` when it listens, and stops in order."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal ends it; uvicorn would raise the signal once more after that."""
        before = {}
        with suppress(ValueError):  # not in the main thread, whose signals they are
            before = {
                number: signal.signal(number, self.handle_exit)
                for number in (signal.SIGTERM, signal.SIGINT)
            }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it."""
        await super().startup(sockets)
        self._ready()


MAX_HEADERS = 16 << 10

_WRITE_BUFFER = 128 << 10  # bytes for a slow reader, on each connection; no mutant: a choice
_HANDSHAKE_SECONDS = 10.0

_GRACE_SECONDS = 2

_START_SECONDS = 20.0

_GOODBYE_SECONDS = 1.0  # for the other side's end of a TLS connection

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)

# Not uvicorn's own, which others in this process may want.
_QUIET = logging.getLogger(f"{__name__}.connections")

_QUIET.setLevel(logging.CRITICAL)


def _not_counted(why: str) -> None:
    """Nobody counts."""


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Limits on the connections to a server.

    Attributes:
        connections: At a time.
        per_address: Of these, from one address; None where many people may share one (a proxy).
        header_seconds: For a request's headers.
        body_seconds: For the rest of it.
        life_seconds: Of a connection; None for no limit.
    """

    connections: int
    per_address: int | None
    header_seconds: float
    body_seconds: float
    life_seconds: float | None = None


class Connections:
    """The connections of one server.

    Args:
        turned_away: Called with the reason for closing one: ``connections`` and ``address`` (too
            many of them), ``headers`` (too large), ``slow`` (too late).
    """

    def __init__(
        self, limits: HttpLimits, turned_away: Callable[[str], None] = _not_counted
    ) -> None:
        self.limits = limits
        self.turned_away = turned_away
        self._addresses: Counter[str] = Counter()

    @property
    def protocol(self) -> type[asyncio.Protocol]:
        """For uvicorn (``http``)."""
        return type("LimitedProtocol", (_LimitedProtocol,), {"among": self})

    def came(self, address: str, open_now: int) -> bool:
        """Return whether one more connection from there is accepted; ``open_now`` includes it."""
        limits = self.limits
        if limits.per_address is not None and self._addresses[address] >= limits.per_address:
            self.turned_away("address")
            return False
        if open_now > limits.connections:
            self.turned_away("connections")
            return False
        self._addresses[address] += 1
        return True

    def release(self, address: str) -> None:
        """A connection that was taken is gone."""
        self._addresses[address] -= 1
        if self._addresses[address] <= 0:
            del self._addresses[address]


class _LimitedProtocol(HttpToolsProtocol):
    """One connection. Connection errors are not logged."""

    among: Connections
    _counted: str | None = None
    _deadline: asyncio.TimerHandle | None = None
    _life: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _in_headers = True

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._limits = self.among.limits
        self.logger = _QUIET

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if not self.among.came(address, len(self.connections)):
            transport.abort()
            return
        self._counted = address
        transport.set_write_buffer_limits(_WRITE_BUFFER)
        self._set_deadline(self._limits.header_seconds)
        if self._limits.life_seconds is not None:
            self._life = self.loop.call_later(self._limits.life_seconds, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        if self._life is not None:
            self._life.cancel()
        if self._counted is not None:
            self.among.release(self._counted)
            self._counted = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._counted is None:
            return
        if self._in_headers:
            room = MAX_HEADERS - self._header_bytes
            head = data[:room]
            data = data[room:]
            self._header_bytes += len(head)
            if head:
                super().data_received(head)
            if not data or self.transport.is_closing():
                return
            if self._in_headers and self._header_bytes >= MAX_HEADERS:
                self.among.turned_away("headers")
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._set_deadline(self._limits.header_seconds)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._set_deadline(self._limits.body_seconds)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.cycle.body:
            self.cycle.body = bytearray()  # grows in place; bytes would be copied at every part
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._clear_deadline()
        self._in_headers = True
        self._header_bytes = 0
        super().on_message_complete()

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self.among.turned_away("slow")
        self.transport.abort()


class LimitedServer(WebServer):
    """A server that also limits the time of TLS handshakes.

    Args:
        config: Of uvicorn; with the protocol of ``Connections``.
        tls: Its certificate, which is renewed while it runs; None without TLS, for measuring what
            it costs.
        ready: Called when it listens.
    """

    def __init__(
        self, config: uvicorn.Config, tls: ServerTls | None, ready: Callable[[], None]
    ) -> None:
        super().__init__(config, ready)
        self._tls = tls
        self._renewal: asyncio.TimerHandle | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        loop = asyncio.get_running_loop()
        tls = self._tls
        self.servers = [
            await loop.create_server(
                self._protocol,
                sock=listener,
                backlog=BACKLOG,
                ssl=None if tls is None else tls.context,
                ssl_handshake_timeout=None if tls is None else _HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=None if tls is None else _GOODBYE_SECONDS,
            )
            for listener in sockets or []
        ]
        if tls is not None:
            self._renewal = loop.call_later(CHECK_SECONDS, self._renew, tls)
        self.started = True
        self._ready()

    def _renew(self, tls: ServerTls) -> None:
        """Look at the certificate now and then."""
        tls.refresh()
        self._renewal = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._renew, tls)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it."""
        if self._renewal is not None:
            self._renewal.cancel()
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        kind: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return kind(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


@contextlib.contextmanager
def serving(
    app: Any, listener: socket.socket, tls: ServerTls, limits: HttpLimits, *, idle: int
) -> Iterator[int]:
    """Serve an ASGI application from a thread while inside; yield the port, close the socket.

    Raises:
        TransportError: The web server did not start.
    """
    allow_connections(limits.connections)
    config = settings(app, Connections(limits).protocol, idle=idle, grace=_GRACE_SECONDS)
    server = LimitedServer(config, tls, lambda: None)
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True
    )
    thread.start()
    try:
        end = time.monotonic() + _START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > end:
                raise TransportError("the web server did not start")
            time.sleep(0.01)
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def allow_connections(wanted: int) -> None:
    """Each takes a file descriptor."""
    allow_open_files(wanted + 256)
