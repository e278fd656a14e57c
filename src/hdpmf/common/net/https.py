"""The HTTPS client of this project: pinned, bounded, and with a deadline.

It talks to untrusted servers: no redirects, no proxies or other settings of the environment, no
compressed answers, no more of an answer than its limit, and a deadline however slowly the other
side sends. Another thread can interrupt it at any time.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Self

from hdpmf.errors import ConfigError, TooLongError, TransportError, needs

with needs("httpcore"):
    import httpcore


TIMEOUT = 20.0
"""Seconds that a connection, or a part of an answer, may take."""

DEADLINE = 300.0
"""Seconds that a whole request may take."""

MAX_PROBLEM = 64 << 10
"""Bytes of an answer that is not a success."""

_CONNECTING = 1.5  # seconds of one attempt to connect, after which it is checked whether to go on


@dataclass(frozen=True, slots=True, repr=False)
class HttpsAnswer:
    """An answer of any status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """The content type without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def date(self) -> float | None:
        """The time at the other side, to the second; None if the answer does not say it."""
        return date_of(self.headers)


DATE_HEADER = "date"

HEALTH_PATH = "/healthz"
"""Of a server: anybody may ask, and its answer has a date."""


def date_of(headers: Mapping[str, str]) -> float | None:
    """Return the time in a message's ``Date`` header, seconds since 1970; None without one."""
    try:
        return parsedate_to_datetime(headers[DATE_HEADER]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None


class HttpsClient:
    """Sends requests to servers whose certificates come from one authority.

    Args:
        peer: The other side's name, for error messages.
        authority: Certificates (PEM) that the server's must come from; the public authorities if
            empty.
        timeout: Seconds for a connection, or a part of an answer.
        deadline: Seconds for a whole request.
        keep: Seconds that an idle connection is kept; 0 for a connection per request.

    One request's deadline also interrupts others that are under way.

    Raises:
        ConfigError: The authority is not a certificate.
    """

    def __init__(
        self,
        peer: str,
        authority: str | bytes = "",
        *,
        timeout: float = TIMEOUT,
        deadline: float = DEADLINE,
        keep: float = 0.0,
    ) -> None:
        self._peer = peer
        self._timeout = timeout
        self._deadline = deadline
        self._sockets = _Sockets()
        self._pool = httpcore.ConnectionPool(
            ssl_context=client_context(authority),
            network_backend=self._sockets,
            keepalive_expiry=keep,
            max_keepalive_connections=None if keep else 0,
            max_connections=None,
        )

    def __repr__(self) -> str:
        return f"HttpsClient({self._peer})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def request(
        self,
        method: str,
        url: str,
        *,
        most: int,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> HttpsAnswer:
        """Send a request and return the answer.

        Args:
            method: ``GET``, ``PUT``, ...
            url: ``https://host:port/path``.
            most: Largest answer in bytes; one that is not a success has ``MAX_PROBLEM`` at most.

        Raises:
            TransportError: The server is unreachable, or its answer too long, compressed or too
                late.
        """
        if not url.startswith("https://"):
            raise TransportError("only https:// is spoken")
        sent = {"accept-encoding": "identity", **(headers or {})}
        if body or method in ("PUT", "POST"):
            sent["content-length"] = str(len(body))
        came = bytearray()
        with self._before_deadline(), _said_plainly(self._peer, came):
            given: list[tuple[str | bytes, str | bytes]] = list(sent.items())
            with self._pool.stream(
                method, url, headers=given, content=body, extensions=self._timeouts()
            ) as answer:
                found = {
                    name.decode("latin-1").lower(): value.decode("latin-1")
                    for name, value in answer.headers
                }
                limit = most if 200 <= answer.status < 300 else MAX_PROBLEM
                if answer.status not in (204, 304):
                    self._read(answer, found, limit, came)
                return HttpsAnswer(answer.status, found, bytes(came))

    def close(self) -> None:
        """End all connections; no new ones are opened."""
        self._sockets.end()
        with contextlib.suppress(Exception):  # a request under way notices by itself
            self._pool.close()

    def _read(self, answer: Any, headers: Mapping[str, str], most: int, body: bytearray) -> None:
        if headers.get("content-encoding", "identity") != "identity":
            raise TransportError(f"{self._peer} sent a compressed answer, which is not read")
        length = headers.get("content-length", "0")
        # int() must not read millions of digits.
        endless = len(length) > 15  # no mutant: nothing of 15 digits may come
        if not length.isdigit() or endless or int(length) > most:
            raise TooLongError(
                f"the answer of {self._peer} is longer than the {most:,} bytes that it may have"
            )
        for part in answer.iter_stream():
            body += part
            if len(body) > most:
                raise TooLongError(
                    f"the answer of {self._peer} is longer than the {most:,} bytes that it may have"
                )

    def _timeouts(self) -> dict[str, Any]:
        return {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._timeout)}

    @contextlib.contextmanager
    def _before_deadline(self) -> Iterator[None]:
        """Interrupt what is inside at the deadline."""
        timer = threading.Timer(self._deadline, self._sockets.cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextlib.contextmanager
def _said_plainly(peer: str, came: bytearray) -> Iterator[None]:
    """Turn failures of the network into a ``TransportError``, with how much had come."""
    try:
        with _plain_errors(peer):
            yield
    except TransportError as error:
        error.received = len(came)
        raise


@contextlib.contextmanager
def _plain_errors(peer: str) -> Iterator[None]:
    try:
        yield
    except (
        httpcore.NetworkError,
        httpcore.TimeoutException,
        httpcore.ProtocolError,
        OSError,
        ValueError,
    ) as error:
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise TransportError(
                f"the certificate of {peer} is not from the pinned authority, or not for its "
                f"address ({cause})"
            ) from error
        raise TransportError(f"{peer} cannot be reached ({cause})") from error
    except (httpcore.UnsupportedProtocol, httpcore.ConnectionNotAvailable, RuntimeError) as error:
        raise TransportError(f"{peer} cannot be reached ({type(error).__name__})") from error


class _Sockets(httpcore.NetworkBackend):
    """Opens connections and remembers them, so that another thread can cut them."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()
        self._open: set[_Connection] = set()
        self._cuts = 0
        self._ended = False
        self._guard = threading.RLock()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        """As in ``NetworkBackend``."""
        left = TIMEOUT if timeout is None else timeout
        cuts = self._cuts
        while True:
            if self._ended or self._cuts > cuts:
                raise httpcore.ConnectError("interrupted")
            try:
                stream = self._backend.connect_tcp(
                    host, port, min(left, _CONNECTING), local_address, socket_options
                )
            except httpcore.ConnectTimeout:
                left -= _CONNECTING
                if left <= 0:
                    raise
            else:
                return self._watched(stream)

    def closed(self, connection: _Connection) -> None:
        """Remove a connection that is closed."""
        with self._guard:
            self._open.discard(connection)

    def cut(self) -> None:
        """Shut down all connections that are open, or being opened."""
        with self._guard:
            self._cuts += 1
            for connection in self._open:
                connection.cut()

    def end(self) -> None:
        """Cut, and open no connections any more."""
        with self._guard:
            self._ended = True
        self.cut()

    def _watched(self, stream: httpcore.NetworkStream) -> _Connection:
        # TLS takes the socket over, so a second handle of it is kept.
        connection = _Connection(self, stream, stream.get_extra_info("socket").dup())
        with self._guard:
            self._open.add(connection)
            ended = self._ended
        if ended:
            connection.cut()
        return connection


class _Connection(httpcore.NetworkStream):
    def __init__(
        self, sockets: _Sockets, stream: httpcore.NetworkStream, handle: socket.socket
    ) -> None:
        self._sockets = sockets
        self._stream = stream
        self._handle = handle

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self._handle.shutdown(socket.SHUT_RDWR)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._sockets.closed(self)
        self._handle.close()
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        try:
            self._stream = self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            self.close()
            raise
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def client_context(authority: str | bytes = "") -> ssl.SSLContext:
    """Return a context that trusts these certificates (PEM) only; the public authorities if empty.

    Raises:
        ConfigError: It is not a certificate.
    """
    text = authority if isinstance(authority, str) else authority.decode("ascii", "replace")
    try:
        return ssl.create_default_context(cadata=text or None)  # TLS 1.2 or newer, with host names
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            "the authority that certificates must come from is no certificate (PEM)"
        ) from None
