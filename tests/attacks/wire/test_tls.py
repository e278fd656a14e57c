"""Somebody on the network would like an older TLS, or none, or has a certificate of the right
authority for another name: devices do not speak with them (the recommender: test_wire.py).
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from hdpmf.common.net.certificates import Certificates, ensure_certificates
from hdpmf.errors import TransportError
from tests.unit.participant.outside import carrier_to, sealed

OLD = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1]
GOOD = ssl.TLSVersion.TLSv1_2


def only(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    """A context that speaks this version and would take any cipher for it."""
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    return context


def client(authority: bytes, version: ssl.TLSVersion) -> ssl.SSLContext:
    return only(ssl.create_default_context(cadata=authority.decode("ascii")), version)


@contextlib.contextmanager
def _server(certificates: Certificates, version: ssl.TLSVersion | None) -> Iterator[int]:
    """Somebody with the right key who speaks this version only, or no TLS at all."""
    context = None
    if version is not None:
        context = only(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), version)
        context.load_cert_chain(certificates.server, certificates.key)

    def talk() -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = listener.accept()
                with raw, contextlib.suppress(OSError):
                    raw.settimeout(5.0)
                    wire = raw if context is None else context.wrap_socket(raw, server_side=True)
                    with wire:
                        heard.append(_whole_request(wire))
                        wire.sendall(
                            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n"
                            b"\r\n"
                        )

    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10.0)
    # Headers with a signature are for nobody but a server that was told from others.
    assert any(b"GET" in part for part in heard) == (version == GOOD)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])


@pytest.mark.slow
@pytest.mark.parametrize("version", [*OLD, GOOD, None], ids=lambda one: one.name if one else "none")
def test_a_device_speaks_to_no_older_server(
    certificates: Certificates, version: ssl.TLSVersion | None
) -> None:
    authority = certificates.authority.read_bytes()
    with _server(certificates, version) as port:
        if version is not None:  # the control: this server does speak its version
            with (
                socket.create_connection(("127.0.0.1", port), timeout=30.0) as raw,
                client(authority, version).wrap_socket(raw, server_hostname="127.0.0.1") as wire,
            ):
                assert wire.version() == version.name.replace("_", ".")
        said = _fetches(f"https://127.0.0.1:{port}", authority)
        assert ("was 404" if version == GOOD else "cannot be reached") in said


@contextlib.contextmanager
def _another_name(folder: Path, names: Sequence[str]) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """A server with a certificate for these names; its port, its authority, and what it hears."""
    certificates = ensure_certificates(folder, names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.key)
    heard: list[bytes] = []

    def talk() -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = listener.accept()
                with raw, contextlib.suppress(OSError):
                    raw.settimeout(5.0)
                    with context.wrap_socket(raw, server_side=True) as wire:
                        heard.append(_whole_request(wire))
                        wire.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        yield listener.getsockname()[1], certificates.authority.read_bytes(), heard
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10.0)


def _whole_request(wire: ssl.SSLSocket) -> bytes:
    """Read a request with its body: closing on unread bytes would break the answer off."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = wire.recv(65536)
        if not more:
            return data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    left = int(length[1]) - len(body) if length else 0
    while left > 0:
        more = wire.recv(65536)
        if not more:
            break
        data += more
        left -= len(more)
    return data


def _fetches(address: str, authority: bytes) -> str:
    with pytest.raises(TransportError) as error:
        carrier_to(address, authority).read(f"{address}/index.json", 1000)
    return str(error.value)


def _uploads(address: str, authority: bytes) -> str:
    carrier = carrier_to("https://127.0.0.1:9", authority, leader=address)
    try:
        told = carrier.send(sealed("POST", f"{address}/tasks/x/reports", {}, b"x" * 99))
    except TransportError as error:
        return str(error)
    return f"status {told.status}"


@pytest.mark.parametrize("way", [_fetches, _uploads], ids=["fetches", "uploads"])
def test_a_certificate_is_for_a_name(tmp_path: Path, way: Callable[[str, bytes], str]) -> None:
    """The pinned authority issues more than one certificate: whoever runs another machine of the
    recommender's, or got its old key, is not the recommender.
    """
    with _another_name(tmp_path / "good", ["127.0.0.1"]) as (port, authority, heard):
        said = way(f"https://127.0.0.1:{port}", authority)  # the control: this one is spoken with
        assert "not for its address" not in said
        assert any(heard)
    for name in ("recommender.example", "127.0.0.2"):
        with _another_name(tmp_path / name, [name]) as (port, authority, heard):
            assert "not for its address" in way(f"https://127.0.0.1:{port}", authority)
        assert not any(heard)
