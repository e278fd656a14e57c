"""HTTP with limits: how many connections, from where, how long, how large their headers.

uvicorn has a time-out for idle connections only, and its fast parser takes headers of any size. So a client that sends
a byte a minute, or a header without an end, would cost memory for as long as it likes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hdpmf.aggregator.config import Limits
from hdpmf.aggregator.metrics import AggregatorMetrics
from hdpmf.transport.extras import needs

with needs("uvicorn", "servers"), needs("httptools", "servers"):
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADERS = 16 << 10
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def limited_protocol(limits: Limits, metrics: AggregatorMetrics) -> type[asyncio.Protocol]:
    """The protocol class for uvicorn, with these limits."""
    addresses: Counter[str] = Counter()

    class LimitedProtocol(HttpToolsProtocol):
        """One connection."""

        _counted: str | None = None
        _deadline: asyncio.TimerHandle | None = None
        _header_bytes = 0
        _in_headers = True

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            address = self.client[0] if self.client else ""
            why = _too_many(len(self.connections), addresses[address], limits)
            if why:
                metrics.turned_away.labels(why).inc()
                transport.abort()
                return
            addresses[address] += 1
            self._counted = address
            self._set_deadline(limits.header_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self._clear_deadline()
            if self._counted is not None:
                addresses[self._counted] -= 1
                if addresses[self._counted] <= 0:
                    del addresses[self._counted]
                self._counted = None
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._counted is None:
                return
            if self._in_headers:
                room = MAX_HEADERS - self._header_bytes
                head, data = data[:room], data[room:]
                self._header_bytes += len(head)
                if head:
                    super().data_received(head)
                if not data or self.transport.is_closing():
                    return
                if self._in_headers and self._header_bytes >= MAX_HEADERS:
                    metrics.turned_away.labels("headers").inc()
                    self.transport.write(_TOO_LARGE)
                    self.transport.close()
                    return
            super().data_received(data)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._set_deadline(limits.header_seconds)

        def on_headers_complete(self) -> None:
            self._in_headers = False
            self._set_deadline(limits.body_seconds)
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._clear_deadline()
            self._in_headers, self._header_bytes = True, 0
            super().on_message_complete()

        def _set_deadline(self, seconds: float) -> None:
            self._clear_deadline()
            self._deadline = self.loop.call_later(seconds, self._too_late)

        def _clear_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_late(self) -> None:
            metrics.turned_away.labels("slow").inc()
            self.transport.abort()

    return LimitedProtocol


def _too_many(connections: int, from_there: int, limits: Limits) -> str:
    """Why there is no room for one more connection; nothing if there is."""
    if connections > limits.connections:
        return "connections"
    return "address" if from_there >= limits.per_address else ""
