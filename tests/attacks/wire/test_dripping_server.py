"""A server that answers byte by byte, or never: a device waits as long as it has said, and no
longer.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable

import pytest

from hdpmf.common.net import https
from hdpmf.common.net.certificates import Certificates, ensure_certificates
from hdpmf.errors import TransportError
from tests.unit.participant.outside import carrier_to

DEADLINE = 1.0
SECONDS = 6.0  # a busy machine
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n"
Drip = Callable[[socket.socket], None]


def _slowly(wire: socket.socket, data: bytes) -> None:
    for at in range(len(data)):
        wire.sendall(data[at : at + 1])
        time.sleep(0.2)


def head(wire: socket.socket) -> None:
    _slowly(wire, HEAD)


def body(wire: socket.socket) -> None:
    wire.sendall(HEAD)
    _slowly(wire, bytes(10_000))


def silence(wire: socket.socket) -> None:
    time.sleep(60)


class Dripping:
    """A server over TLS; without a drip it never ends the handshake."""

    def __init__(self, certificates: Certificates, drip: Drip | None) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.server, certificates.key)
        self._drip = drip
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._talk, daemon=True).start()

    def _talk(self) -> None:
        with contextlib.suppress(OSError), self.listener.accept()[0] as raw:
            if self._drip is None:
                time.sleep(60)
                return
            with self._context.wrap_socket(raw, server_side=True) as wire:
                wire.recv(4096)
                self._drip(wire)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])


@pytest.mark.parametrize("drip", [None, silence, head, body])
def test_a_device_leaves_a_dripping_server(
    certificates: Certificates, drip: Drip | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Dripping(certificates, drip)
    with server.listener:
        address = f"https://127.0.0.1:{server.listener.getsockname()[1]}"
        client = carrier_to(address, certificates.authority.read_bytes())
        monkeypatch.setitem(https.HttpsClient.__init__.__kwdefaults__, "deadline", DEADLINE)
        begun = time.monotonic()
        with pytest.raises(TransportError):
            client.read(f"{address}/index.json", 20_000)
        assert time.monotonic() - begun < SECONDS
