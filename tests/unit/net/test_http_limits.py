"""Nobody holds all connections, nor one for ever; where there is no room, the slowest gives way."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

import uvicorn

from hdpmf.common.net.server import MAX_HEADERS, Connections, HttpLimits, LimitedServer

LIMITS = HttpLimits(connections=4, per_address=3, header_seconds=5.0, body_seconds=5.0)
PUT = b"PUT / HTTP/1.1\r\nhost: here\r\ncontent-length: 5\r\n\r\n"


class Served:
    """A server that reads a body and says how long it was."""

    def __init__(self, limits: HttpLimits) -> None:
        self.turned_away: Counter[str] = Counter()
        self.connections = Connections(limits, lambda why: self.turned_away.update([why]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            self._answer,
            http=self.connections.protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
            loop="asyncio",
        )
        self._ready = threading.Event()
        self._server = LimitedServer(config, None, self._ready.set)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listener]))

    @staticmethod
    async def _answer(scope: Any, receive: Any, send: Any) -> None:
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                break
        body = str(size).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(
            self._listener.getsockname(), timeout=30.0, source_address=(source, 0)
        )

    @contextmanager
    def running(self) -> Iterator[Served]:
        self._thread.start()
        assert self._ready.wait(30)
        try:
            yield self
        finally:
            self._server.should_exit = True
            self._thread.join()
            self._listener.close()


def answered(stream: socket.socket) -> bool:
    """Whether a whole answer came, rather than the end."""
    got = b""
    with suppress(ConnectionError):
        while not got.endswith(b"\r\n\r\n5"):
            part = stream.recv(200)
            if not part:
                return False
            got += part
        return got.startswith(b"HTTP/1.1 200")
    return False


def ask(stream: socket.socket) -> bool:
    try:
        stream.sendall(PUT + b"12345")
    except ConnectionError:
        return False
    return answered(stream)


def test_one_address_and_all_together_hold_so_many() -> None:
    with Served(LIMITS).running() as served, ExitStack() as streams:
        first = [streams.enter_context(served.connect()) for _ in range(3)]
        assert all(map(ask, first))
        assert not ask(streams.enter_context(served.connect()))
        assert ask(streams.enter_context(served.connect("127.0.0.2")))
        assert not ask(streams.enter_context(served.connect("127.0.0.3")))
        assert served.turned_away == {"address": 1, "connections": 1}
        first[0].close()
        time.sleep(0.1)
        other = streams.enter_context(served.connect("127.0.0.3"))
        assert ask(other)  # a place that is given back is there for others
        other.close()
        time.sleep(0.1)
        assert ask(streams.enter_context(served.connect()))  # and for the same address


def test_without_a_limit_per_address_a_proxy_may_have_all() -> None:
    with Served(replace(LIMITS, per_address=None)).running() as served, ExitStack() as streams:
        assert all(ask(streams.enter_context(served.connect())) for _ in range(4))
        assert not ask(streams.enter_context(served.connect()))


@pytest.mark.parametrize("sent", [b"", PUT[:20], PUT + b"123"], ids=["nothing", "headers", "body"])
def test_whoever_is_slow_is_cut(sent: bytes) -> None:
    with Served(replace(LIMITS, header_seconds=0.2, body_seconds=0.2)).running() as served:
        with served.connect() as stream:
            stream.sendall(sent)
            begin = time.monotonic()
            assert not answered(stream)
            assert 0.1 < time.monotonic() - begin < 20.0
        assert served.turned_away == {"slow": 1}


def test_a_connection_ends_whatever_it_does() -> None:
    with Served(replace(LIMITS, life_seconds=0.3)).running() as served, served.connect() as stream:
        begin = time.monotonic()
        while ask(stream):
            time.sleep(0.02)
        assert 0.2 < time.monotonic() - begin < 20.0


def test_headers_have_an_end() -> None:
    with Served(LIMITS).running() as served, served.connect() as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * (MAX_HEADERS + 1000))
        assert b" 431 " in stream.recv(100)
        assert served.turned_away == {"headers": 1}
