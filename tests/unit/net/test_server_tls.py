"""A server's certificate is renewed while it runs, and a bad one is not taken."""

from __future__ import annotations

import datetime
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from cryptography import x509
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from hdpmf.common.net import certificates, server
from hdpmf.common.net.certificates import (
    RENEW_DAYS,
    SERVER_DAYS,
    Certificates,
    ServerTls,
    ensure_certificates,
)
from hdpmf.common.net.server import HttpLimits, listen, serving

HOSTS = ("127.0.0.1",)
LIMITS = HttpLimits(connections=16, per_address=16, header_seconds=5.0, body_seconds=5.0)


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    real = datetime.datetime.now(datetime.UTC)
    monkeypatch.setattr(certificates, "_now", lambda: real + datetime.timedelta(days=days))


def connect(port: int, authority: Path) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(authority))
    stream = socket.create_connection(("127.0.0.1", port), timeout=5)
    return context.wrap_socket(stream, server_hostname="127.0.0.1")


def number(stream: ssl.SSLSocket) -> int:
    shown = stream.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def asks(stream: ssl.SSLSocket) -> bool:
    stream.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    return b"200 OK" in stream.recv(1000)


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Certificates]]:
    monkeypatch.setattr(server, "CHECK_SECONDS", 0.05)
    app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("here"))])
    paths = ensure_certificates(tmp_path, HOSTS)
    tls = ServerTls(lambda: ensure_certificates(tmp_path, HOSTS))
    with serving(app, listen("127.0.0.1", 0), tls, LIMITS, idle=30) as port:
        yield port, paths


def until_renewed(port: int, authority: Path, before: int) -> int:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with connect(port, authority) as stream:
            if number(stream) != before:
                assert asks(stream)
                return number(stream)
        time.sleep(0.05)
    raise AssertionError("the certificate stays")


def test_new_connections_get_the_new_certificate(running: tuple[int, Certificates]) -> None:
    port, paths = running
    with connect(port, paths.authority) as old:
        before = number(old)
        paths.server.unlink()
        ensure_certificates(paths.server.parent, HOSTS)
        after = until_renewed(port, paths.authority, before)
        assert after == x509.load_pem_x509_certificate(paths.server.read_bytes()).serial_number
        assert asks(old)


def test_one_that_nears_its_end_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ensure_certificates(tmp_path, HOSTS)
    tls = ServerTls(lambda: ensure_certificates(tmp_path, HOSTS))
    first = paths.server.read_bytes()
    later(monkeypatch, SERVER_DAYS - RENEW_DAYS - 1)
    tls.refresh()
    assert paths.server.read_bytes() == first
    later(monkeypatch, SERVER_DAYS - RENEW_DAYS + 1)
    tls.refresh()
    assert paths.server.read_bytes() != first


@pytest.mark.parametrize("damage", ["key", "certificate", "gone"])
def test_a_bad_certificate_is_not_taken(
    running: tuple[int, Certificates], damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context whose certificate does not fit its key would answer nobody."""
    port, paths = running
    with connect(port, paths.authority) as stream:
        before = number(stream)
    monkeypatch.setattr(certificates, "_still_good", lambda *given: True)  # nobody repairs it
    if damage == "key":
        paths.server.write_bytes(paths.authority.read_bytes())
    elif damage == "certificate":
        paths.server.write_bytes(b"no certificate")
    else:
        paths.server.unlink()
    time.sleep(0.3)
    with connect(port, paths.authority) as stream:
        assert number(stream) == before
        assert asks(stream)
