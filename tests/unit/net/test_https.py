"""The HTTPS client, against servers that misbehave: limits, deadlines, certificates,
interruptions.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpcore
import pytest

from hdpmf.common.net import https
from hdpmf.common.net.certificates import Certificates, ensure_certificates
from hdpmf.common.net.https import MAX_PROBLEM, HttpsClient
from hdpmf.errors import ConfigError, TransportError
from hdpmf.untrusted.aggregator.aggregation_job_driver import backoff

CHUNKED = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n"
Talk = Callable[[ssl.SSLSocket], None]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])


@contextmanager
def server(certificates: Certificates, talk: Talk) -> Iterator[str]:
    """A server that reads the head of a request and then does as it likes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.key)

    def serve(raw: socket.socket) -> None:
        with suppress(OSError), raw, context.wrap_socket(raw, server_side=True) as wire:
            while wire.recv(65536):
                talk(wire)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def says(*parts: bytes, pause: float = 0.0) -> Talk:
    def talk(wire: ssl.SSLSocket) -> None:
        for part in parts:
            wire.sendall(part)
            time.sleep(pause)

    return talk


def answer(status: int, body: bytes, **headers: str) -> bytes:
    lines = {
        "content-length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body


def client(certificates: Certificates, **options: float) -> HttpsClient:
    return HttpsClient("the shop", certificates.authority.read_bytes(), **options)


@pytest.mark.parametrize("keep", [0.0, 10.0])
def test_status_headers_and_body_come_back(certificates: Certificates, keep: float) -> None:
    with server(
        certificates, says(answer(404, b"gone", Content_Type="Text/Plain; charset=x"))
    ) as url:
        made = client(certificates, keep=keep)
        for _ in range(2):
            got = made.request("GET", f"{url}/x", most=10)
            assert (got.status, got.body, got.media_type) == (404, b"gone", "text/plain")
        made.close()
        with pytest.raises(TransportError):
            made.request("GET", f"{url}/x", most=10)


@pytest.mark.parametrize(
    ("talk", "words"),
    [
        pytest.param(says(answer(200, b"x" * 11)), "longer than the 10 bytes", id="long"),
        pytest.param(
            says(answer(200, b"x" * 11, content_length="9" * 12)),
            "longer than the 10 bytes",
            id="said",
        ),
        pytest.param(says(CHUNKED, *[b"8\r\nxxxxxxxx\r\n"] * 9), "longer than the 10", id="chunks"),
        pytest.param(
            says(answer(500, bytes(MAX_PROBLEM + 1))), "longer than the 65,536", id="problem"
        ),
        pytest.param(says(answer(200, b"x", content_encoding="gzip")), "compressed", id="gzip"),
        pytest.param(says(answer(200, b"x", content_encoding="br")), "compressed", id="br"),
        pytest.param(says(b"no HTTP at all\r\n\r\n"), "cannot be reached", id="rubbish"),
        pytest.param(
            says(answer(200, b"x", content_length="5")[:-1], pause=0.2),
            "cannot be reached",
            id="short",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_answers_that_are_not_read(certificates: Certificates, talk: Talk, words: str) -> None:
    with server(certificates, talk) as url, pytest.raises(TransportError, match=words):
        client(certificates, timeout=2.0).request("GET", f"{url}/x", most=10)


@pytest.mark.parametrize("status", [204, 304])
def test_headers_about_a_body_that_never_comes_are_no_reason_to_refuse(
    certificates: Certificates, status: int
) -> None:
    """304 has the length and the encoding of what 200 would have sent; some say so with 204."""
    head = answer(status, b"", content_length="9" * 6, content_encoding="gzip")
    with server(certificates, says(head)) as url:
        got = client(certificates, timeout=2.0).request("GET", f"{url}/x", most=10)
    assert (got.status, got.body) == (status, b"")


def test_redirects_are_not_followed(certificates: Certificates) -> None:
    with server(certificates, says(answer(302, b"", location="https://elsewhere.example/"))) as url:
        assert client(certificates).request("GET", f"{url}/x", most=10).status == 302


@pytest.mark.parametrize("keep", [0.0, 10.0])
def test_an_answer_that_drips_ends_at_the_deadline(certificates: Certificates, keep: float) -> None:
    with server(
        certificates, says(answer(200, bytes(100))[:-100], *[b"x"] * 100, pause=0.1)
    ) as url:
        began = time.monotonic()
        with client(certificates, deadline=0.5, keep=keep) as made, pytest.raises(TransportError):
            made.request("GET", f"{url}/x", most=1000)
        assert time.monotonic() - began < 8.0  # and not the 10 of the whole answer


def test_only_the_pinned_authority_is_believed(certificates: Certificates, tmp_path: Path) -> None:
    other = ensure_certificates(tmp_path, ["127.0.0.1"]).authority.read_bytes()
    with server(certificates, says(answer(200, b""))) as url:
        for authority in (other, b""):
            with pytest.raises(
                TransportError, match="certificate of the shop is not from the pinned authority"
            ):
                HttpsClient("the shop", authority).request("GET", url, most=10)
        with pytest.raises(TransportError, match="certificate"):  # not for this name
            client(certificates).request("GET", url.replace("127.0.0.1", "127.1"), most=10)
    with pytest.raises(ConfigError, match="PEM"):
        HttpsClient("the shop", "-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/x", "file:///etc/passwd", "https://", "https://h:99999", "//h"]
)
def test_nothing_but_https(certificates: Certificates, url: str) -> None:
    with pytest.raises(TransportError):
        client(certificates).request("GET", url, most=10)


def test_pauses_double_up_to_a_limit_and_are_drawn() -> None:
    assert [backoff(tries, 1.0, 5.0, lambda: 0.5) for tries in range(5)] == [
        1.0,
        2.0,
        4.0,
        5.0,
        5.0,
    ]
    assert backoff(10_000, 1.0, 5.0, lambda: 1.0) == 7.5
    assert len({backoff(0, 1.0, 5.0) for _ in range(20)}) > 10


class Unreachable(httpcore.NetworkBackend):
    """Nobody answers; how long each attempt waited is noted."""

    def __init__(self) -> None:
        self.waited: list[float | None] = []
        self.then: Callable[[], object] = lambda: None

    def connect_tcp(self, *given: object, **named: object) -> httpcore.NetworkStream:
        self.waited.append(given[2])  # type: ignore[arg-type]
        self.then()
        raise httpcore.ConnectTimeout("nobody is there")


@pytest.mark.parametrize(
    ("timeout", "attempts"), [(4.0, [1.5, 1.5, 1.0]), (3.0, [1.5, 1.5]), (0.5, [0.5])]
)
def test_connecting_is_tried_for_as_long_as_it_may_take(
    timeout: float, attempts: list[float]
) -> None:
    sockets, nobody = https._Sockets(), Unreachable()
    sockets._backend = nobody  # type: ignore[assignment]
    with pytest.raises(httpcore.ConnectTimeout):
        sockets.connect_tcp("films.example.org", 443, timeout)
    assert nobody.waited == attempts


@pytest.mark.parametrize("how", ["cut", "end"])
def test_who_is_connecting_gives_up_when_it_is_interrupted(how: str) -> None:
    sockets, nobody = https._Sockets(), Unreachable()
    sockets._backend = nobody  # type: ignore[assignment]
    nobody.then = getattr(sockets, how)
    with pytest.raises(httpcore.ConnectError, match="interrupted"):
        sockets.connect_tcp("films.example.org", 443, 60.0)
    assert len(nobody.waited) == 1
    nobody.then = lambda: None
    expected = httpcore.ConnectError if how == "end" else httpcore.ConnectTimeout
    with pytest.raises(expected):
        sockets.connect_tcp("films.example.org", 443, 1.0)
