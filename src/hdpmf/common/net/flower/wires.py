"""Connections that another thread can cut: who talks to a server that sends a byte now and then
can still leave.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import Any

from hdpmf.common.net.flower.environment import needs_flower

with needs_flower():
    import httpcore

_CONNECTING = 1.5  # seconds of one attempt, after which it is asked whether to go on


class Wires(httpcore.NetworkBackend):
    """Opens the connections of an HTTP client, and knows those that are open."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()
        self._open: set[_Wire] = set()
        self._cuts = 0
        self._ended = False
        self._guard = threading.Lock()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        """As in ``NetworkBackend``."""
        left = 60.0 if timeout is None else timeout
        cuts = self._cuts
        while True:
            if self._ended or self._cuts > cuts:
                raise httpcore.ConnectError("this device is leaving")
            try:
                stream = self._backend.connect_tcp(
                    host, port, min(left, _CONNECTING), local_address, socket_options
                )
            except httpcore.ConnectTimeout:
                left -= _CONNECTING
                if left <= 0:
                    raise
            else:
                return self.watched(stream, stream.get_extra_info("socket").dup())

    def watched(self, stream: httpcore.NetworkStream, handle: socket.socket) -> _Wire:
        """A connection that can be cut. TLS takes the socket over, so that a second handle of it
        is kept.
        """
        wire = _Wire(self, stream, handle)
        with self._guard:
            self._open.add(wire)
            ended = self._ended
        if ended:
            wire.cut()
        return wire

    def closed(self, wire: _Wire) -> None:
        """A connection is gone."""
        with self._guard:
            self._open.discard(wire)

    def cut(self) -> None:
        """Whoever waits on a connection that is open now gets an error."""
        with self._guard:
            self._cuts += 1
            for wire in self._open:
                wire.cut()

    def end(self) -> None:
        """The same, and no new connections."""
        with self._guard:
            self._ended = True
        self.cut()


class _Wire(httpcore.NetworkStream):
    def __init__(self, wires: Wires, stream: httpcore.NetworkStream, handle: socket.socket) -> None:
        self._wires = wires
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
        self._wires.closed(self)
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
