"""uvicorn as everything of ours runs it: it logs no request, believes no proxy, and stops in
order at a signal.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import uvicorn

from hdpmf.errors import ConfigError

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        ConfigError: The address cannot be had.
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
    """What a server of ours is told.

    Args:
        app: What answers.
        http: uvicorn's name of a protocol, or a class.
        idle: Seconds that a connection may do nothing.
        grace: Seconds that requests have at the end.
        lifespan: Whether the app is told of the beginning and the end.
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
    """Says when it listens, and stops in order.

    Args:
        config: Of ``settings``.
        ready: Called when it listens.
    """

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
