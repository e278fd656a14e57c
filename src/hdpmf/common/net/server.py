"""Web servers: uvicorn with its public settings.

In a trial a server has a certificate of its own authority. Otherwise TLS ends at a proxy in front
of it, with a public certificate; the proxy also limits connections, headers and their time.
"""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Literal

from hdpmf.common.base.files import allow_open_files
from hdpmf.common.net.certificates import Certificates
from hdpmf.common.net.https import DATE_HEADER
from hdpmf.common.protocol.task import DEVICE_HEADER, SIGNATURE_HEADER
from hdpmf.errors import ConfigError, TransportError, needs

with needs("uvicorn"), needs("httptools"), needs("starlette"):
    import httptools  # noqa: F401  # uvicorn's parser
    import uvicorn
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware


BACKLOG = 2048

CONNECTIONS = 4096
"""At a time, in each process; above this the answer is 503."""

PUBLIC = Middleware(
    CORSMiddleware,
    allow_origins=("*",),  # without credentials: no page can use somebody's cookies or certificates
    allow_methods=("GET", "POST", "PUT"),
    allow_headers=("authorization", "content-type", DEVICE_HEADER, SIGNATURE_HEADER),
    expose_headers=(DATE_HEADER, "retry-after"),
    max_age=86_400,
)
"""Pages of any origin may use a server: apps of others, and people's own."""

_GRACE_SECONDS = 2
_START_SECONDS = 20.0


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


def web_server(
    app: Any,
    tls: Certificates | None,
    *,
    idle: int,
    grace: int = _GRACE_SECONDS,
    lifespan: Literal["on", "off"] = "off",
) -> uvicorn.Server:
    """Return a server.

    Args:
        app: The ASGI application.
        tls: Its certificate; without one it speaks plain HTTP to the proxy in front of it.
        idle: Seconds that a connection may do nothing.
        grace: Seconds for open requests at the end.
        lifespan: Send the app lifespan events.
    """
    allow_open_files(CONNECTIONS + 256)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan=lifespan,
            log_config=None,
            log_level="critical",  # it would write addresses
            access_log=False,
            server_header=False,
            proxy_headers=False,  # no address is used for anything
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=idle,
            timeout_graceful_shutdown=grace,
            backlog=BACKLOG,
            ssl_certfile=None if tls is None else tls.server,
            ssl_keyfile=None if tls is None else tls.key,
        )
    )


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Go on after a server that SIGTERM or SIGINT has ended: uvicorn raises them once more."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def serving(
    app: Any, listener: socket.socket, tls: Certificates | None, *, idle: int
) -> Iterator[int]:
    """Serve an ASGI application from a thread while inside; yield the port, close the socket.

    Raises:
        TransportError: The web server did not start.
    """
    server = web_server(app, tls, idle=idle)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
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
