"""A server on loopback only, under a host name that nobody can guess."""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from hdpmf.common.net.extras import needs
from hdpmf.common.web.guard import App
from hdpmf.errors import ConfigError

with needs("uvicorn", "page"):
    from hdpmf.common.net.server import WebServer, settings

_TRIES = 20
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
    def listen(cls, port: int = 0) -> Loopback:
        """Listen on IPv4 and, if there is IPv6, on both; port 0 takes any that is free."""
        for _ in range(_TRIES):
            first = _bound(socket.AF_INET, "127.0.0.1", port)
            if first is None:
                break
            chosen = int(first.getsockname()[1])
            try:
                # Browsers may try IPv6 first: whoever had this port there would get what is meant
                # for us.
                second = _bound(socket.AF_INET6, "::1", chosen)
            except OSError:  # there is no IPv6 here, for anybody
                return cls(_name(chosen), chosen, (first,))
            if second is not None:
                return cls(_name(chosen), chosen, (first, second))
            first.close()
            if port:
                break
        raise ConfigError(f"port {port} of this machine is taken; choose another one, or 0 for any")

    def close(self) -> None:
        """Close the sockets."""
        for listener in self.sockets:
            listener.close()


def listen_on(address: str, port: int) -> socket.socket:
    """Listen on one address of this machine; raise ConfigError if that is not possible."""
    try:
        found = ip_address(address)
        listener = _bound(socket.AF_INET if found.version == 4 else socket.AF_INET6, address, port)
    except (ValueError, OSError):
        raise ConfigError(
            f"{address} is no address of this machine; give one, such as 127.0.0.1"
        ) from None
    if listener is None:
        raise ConfigError(f"port {port} of {address} is taken; choose another one, or 0 for any")
    return listener


def _name(port: int) -> str:
    return f"p{secrets.token_hex(8)}.localhost:{port}"


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
