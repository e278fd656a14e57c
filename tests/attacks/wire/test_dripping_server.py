"""A server that answers byte by byte, or never: a device that is told to end does so within
seconds.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net.certificates import Certificates, ensure_certificates
from hdpmf.common.net.polling import PollingDevice
from hdpmf.common.net.signing import OFFERS
from tests.federation.deployed import recommender

SECONDS = 12.0  # one until what is under way is cut, one for a goodbye; the rest for a busy machine
Drip = Callable[[socket.socket, str], None]


def _slowly(wire: socket.socket, data: bytes) -> None:
    for at in range(len(data)):
        wire.sendall(data[at : at + 1])
        time.sleep(0.3)


def _request(wire: socket.socket) -> str:
    data = b""
    while b"\r\n\r\n" not in data:
        part = wire.recv(4096)
        if not part:
            raise OSError("hung up")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += wire.recv(4096)
    return head.split()[1].decode()


def _answer(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nhdpmf-offer: 1\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def head(wire: socket.socket, path: str) -> None:
    _slowly(wire, _answer(b"") + bytes(10_000))


def body(wire: socket.socket, path: str) -> None:
    wire.sendall(_answer(bytes(10_000))[:-10_000])
    _slowly(wire, bytes(10_000))


def silence(wire: socket.socket, path: str) -> None:
    time.sleep(60)


def after_an_offer(drip: Drip) -> Drip:
    def behave(wire: socket.socket, path: str) -> None:
        if path.endswith(OFFERS):
            wire.sendall(_answer(b"a message"))
        else:
            drip(wire, path)

    return behave


class Dripping:
    def __init__(self, certificates: Certificates, drip: Drip | None) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.server, certificates.key)
        self._drip = drip
        self.asked = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(
                    target=self._talk, args=(self.listener.accept()[0],), daemon=True
                ).start()

    def _talk(self, raw: socket.socket) -> None:
        with contextlib.suppress(OSError), raw:
            if self._drip is None:  # no handshake
                self.asked.set()
                time.sleep(60)
                return
            with self._context.wrap_socket(raw, server_side=True) as wire:
                while True:
                    path = _request(wire)
                    if not path.endswith(OFFERS):
                        self.asked.set()
                    threading.Timer(1.0, self.asked.set).start()
                    self._drip(wire, path)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])


@contextlib.contextmanager
def served(
    certificates: Certificates, port: int, stop: threading.Event
) -> Iterator[threading.Thread]:
    device = PollingDevice(
        f"https://127.0.0.1:{port}", certificates.authority.read_bytes(), DeviceIdentity.generate()
    )
    thread = threading.Thread(target=device.serve, args=(lambda data: data, stop), daemon=True)
    thread.start()
    yield thread
    begun = time.monotonic()
    stop.set()
    thread.join(20.0)
    assert not thread.is_alive()
    assert time.monotonic() - begun < SECONDS


@pytest.mark.parametrize(
    "drip",
    [
        # The others wait seconds longer until the device gives up.
        pytest.param(after_an_offer(silence), id="later-silence"),
        pytest.param(None, id="handshake", marks=pytest.mark.slow),
        pytest.param(silence, id="silence", marks=pytest.mark.slow),
        pytest.param(head, id="head", marks=pytest.mark.slow),
        pytest.param(body, id="body", marks=pytest.mark.slow),
        pytest.param(after_an_offer(head), id="later-head", marks=pytest.mark.slow),
        pytest.param(after_an_offer(body), id="later-body", marks=pytest.mark.slow),
    ],
)
def test_a_device_leaves_a_dripping_server(certificates: Certificates, drip: Drip | None) -> None:
    server = Dripping(certificates, drip)
    with server.listener, served(certificates, server.listener.getsockname()[1], threading.Event()):
        assert server.asked.wait(60.0)


@pytest.mark.slow
def test_a_device_leaves_a_server_that_does_not_let_it_in(certificates: Certificates) -> None:
    """The queue of connections is full: the system lets whoever comes wait."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listener,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(3):
            other = stack.enter_context(socket.socket())
            other.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                other.connect(listener.getsockname())
        with served(certificates, listener.getsockname()[1], threading.Event()):
            time.sleep(0.5)


@pytest.mark.slow
def test_the_answer_that_ends_it_still_goes_out(tmp_path: Path) -> None:
    """``device join --once`` stops in the middle of an answer, which may take its time, and its
    reply is heard.
    """
    identity, stop = DeviceIdentity.generate(), threading.Event()
    name = identity.public.hex()
    with recommender(tmp_path, [identity]) as made:
        device = PollingDevice(made.address, made.authority, identity)

        def answer(data: bytes) -> bytes:
            stop.set()
            time.sleep(2.5)
            return b"done"

        thread = threading.Thread(target=device.serve, args=(answer, stop), daemon=True)
        thread.start()
        assert [reply.data for reply in made.mailbox.exchange({name: b"the last"}, 20.0)] == [
            b"done"
        ]
        thread.join(5.0)
        assert not thread.is_alive()
