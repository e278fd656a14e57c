"""Somebody on the network would like an older TLS, or none: devices do not speak it (the
recommender: test_wire.py).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator

import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net.certificates import Certificates, ensure_certificates
from hdpmf.common.net.polling import PollingDevice

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
                        heard.append(wire.recv(100))
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
        said: list[str] = []
        stop = threading.Event()

        def log(line: str) -> None:
            said.append(line)
            stop.set()

        PollingDevice(
            f"https://127.0.0.1:{port}", authority, DeviceIdentity.generate(), log=log
        ).serve(bytes, stop)
        assert ("status 404" if version == GOOD else "cannot be reached") in said[0]
