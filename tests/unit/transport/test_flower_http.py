"""A hostile server cannot fill a device's memory, unpack a bomb in it or send it elsewhere."""

from __future__ import annotations

import contextlib
import gzip
import ssl
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from hdpmf.common.net.flower.gate import CLOCK_HEADER
from hdpmf.common.net.flower.http import bounded_client, said_plainly
from hdpmf.errors import TransportError

LIMIT = 1000


class _Hostile(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        status, headers, body = {
            "/fits": (200, {}, bytes(LIMIT)),
            "/long": (200, {}, bytes(LIMIT + 1)),
            "/endless": (200, {"no-length": ""}, bytes(50_000_000)),
            "/bomb": (200, {"content-encoding": "gzip"}, gzip.compress(bytes(100_000))),
            "/elsewhere": (307, {"location": "/fits"}, b""),
        }[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "no-length" not in headers:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):  # the client may have seen enough
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hostile) as running:
        thread = threading.Thread(
            target=running.serve_forever, args=(0.01,)
        )  # seconds between looks at shutdown
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with bounded_client(ssl.create_default_context(), LIMIT) as made:
        yield made


def test_an_answer_within_the_limit_is_read(server: str, client: httpx.Client):
    assert client.post(server + "/fits", content=b"").content == bytes(LIMIT)


@pytest.mark.parametrize("path", ["/long", "/endless", "/bomb"])
def test_what_is_longer_or_packed_is_not(server: str, client: httpx.Client, path: str):
    with pytest.raises(TransportError, match=r"longer than the limit|compressed"), said_plainly():
        client.post(server + path, content=b"")


def test_redirects_are_not_followed(server: str, client: httpx.Client):
    assert client.post(server + "/elsewhere", content=b"").status_code == 307


def test_failures_are_said_in_words(client: httpx.Client):
    with pytest.raises(TransportError, match="no connection to the recommender"), said_plainly():
        client.post("http://127.0.0.1:1/", content=b"")
    with pytest.raises(KeyboardInterrupt), said_plainly():
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (503, {}, "the recommender is starting or stopping"),
        # The answer to a question that waited for six seconds, from a server that ends.
        (500, {"date": -6.0}, "the recommender cannot answer at the moment (status 500)"),
        (401, {"date": -6.0, CLOCK_HEADER: 0.0}, "not enrolled"),
        (401, {"date": 0.0, CLOCK_HEADER: -60.0}, "clock is 60 s ahead of"),
        (401, {"date": 0.0, CLOCK_HEADER: 400.0}, "clock is 400 s behind"),
        (401, {"date": -60.0}, "s ahead of"),  # a SuperLink without our gate
        (401, {}, "not enrolled"),
    ],
)
def test_a_refusal_is_said_for_what_it_is(status: int, headers: dict[str, float], words: str):
    now = time.time()
    sent = {
        name: formatdate(now + ahead, usegmt=True) if name == "date" else f"{now + ahead:.3f}"
        for name, ahead in headers.items()
    }
    response = httpx.Response(
        status, headers=sent, request=httpx.Request("POST", "https://rec/v1/fleet/pull-messages")
    )
    with pytest.raises(TransportError) as caught, said_plainly():
        response.raise_for_status()
    assert words in str(caught.value)
    if "clock" not in words and "ahead" not in words:
        assert "clock" not in str(caught.value)


@pytest.mark.parametrize("said", ["nan", "inf", "noon", ""])
def test_nonsense_about_the_time_is_no_reason(said: str):
    request = httpx.Request("POST", "https://rec/v1/fleet/pull-messages")
    response = httpx.Response(401, headers={CLOCK_HEADER: said}, request=request)
    with pytest.raises(TransportError, match="not enrolled"), said_plainly():
        response.raise_for_status()
