"""A device's way out over HTTPS, against a real server that misbehaves."""

from __future__ import annotations

import gzip
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import MEDIA_TYPES, UploadRequest
from hdpmf.common.net import https
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.protocol.servers import check_address
from hdpmf.errors import ConfigError, TransportError
from hdpmf.private.device.carrier import WebCarrier
from hdpmf.private.device.seal import Sealed
from tests.unit.participant.outside import carrier_to, sealed

REPORT = bytes(range(256)) * 600
HEADERS = {"content-type": MEDIA_TYPES[UploadRequest], "hdpmf-device": "ab"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[tuple[str, str, dict[str, str], bytes]]] = []
    order: ClassVar[list[str]] = []

    def log_message(self, *_: object) -> None:
        pass

    def _note(self, body: bytes = b"") -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked.append((self.command, self.path, headers, body))

    def _say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"content-length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._note()
        match self.path.rpartition("/")[2]:
            case "file":
                self._say(200, b"hello", etag='"1"')
            case "elsewhere":
                self._say(302, location="/file")
            case "large":
                self._say(200, b"x", content_length="3000000000")
            case "endless":
                self.send_response(200)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                try:
                    while True:
                        self.wfile.write(b"10000\r\n" + bytes(65536) + b"\r\n")
                except OSError:
                    pass
            case "dripping":
                self.send_response(200)
                self.send_header("content-length", "1000")
                self.end_headers()
                try:
                    for _ in range(1000):
                        self.wfile.write(b"x")
                        self.wfile.flush()
                        threading.Event().wait(0.05)
                except OSError:
                    pass
            case "packed":
                self._say(200, gzip.compress(bytes(10_000_000)), content_encoding="gzip")
            case _:
                self._say(404)

    def do_POST(self) -> None:
        self.order.append("headers here")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.order.append("body here")
        self._note(body)
        self._say(307 if "elsewhere" in self.path else 201, location="/tasks/other/reports")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    made = ensure_certificates(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])
    return made.authority, made.server, made.key


@pytest.fixture
def address(tls: tuple[Path, Path, Path]) -> Iterator[str]:
    Handler.asked, Handler.order = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls[1], tls[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def client(address: str, tls: tuple[Path, Path, Path]) -> WebCarrier:
    return carrier_to(address, tls[0].read_text())


def report(address: str, path: str = "/tasks/x/reports") -> Sealed:
    return sealed("POST", address + path, HEADERS, REPORT)


def test_files_come(client: WebCarrier, address: str) -> None:
    assert client.read(f"{address}/file", 5) == b"hello"
    assert Handler.asked[0][2].get("accept-encoding") == "identity"  # nothing is unpacked here


@pytest.mark.parametrize("name", ["elsewhere", "large", "endless", "packed", "absent"])
def test_what_is_no_file_of_the_right_size_is_refused(
    client: WebCarrier, address: str, name: str
) -> None:
    with pytest.raises(TransportError):
        client.read(f"{address}/{name}", 1000)
    # Redirects are not followed.
    assert [path for _, path, _, _ in Handler.asked if path.endswith("/file")] == []


def test_a_file_that_drips_ends(
    client: WebCarrier, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(https.HttpsClient.__init__.__kwdefaults__, "deadline", 0.3)
    with pytest.raises(TransportError):
        client.read(f"{address}/dripping", 1000)


def test_only_the_pinned_authority_is_believed(
    address: str, tls: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    other = ensure_certificates(tmp_path, ["127.0.0.1"]).authority.read_text()
    for authority in (other, ""):
        with pytest.raises(TransportError):
            carrier_to(address, authority).read(f"{address}/file", 5)
        with pytest.raises(TransportError):
            carrier_to(address, authority).send(report(address))
    assert Handler.asked == []


def test_a_report_leaves_after_the_clocks_were_compared(client: WebCarrier, address: str) -> None:
    assert client.send(report(address)).status == 201
    (first, health, before, _), (method, path, headers, body) = Handler.asked
    assert (first, health) == ("GET", "/healthz")
    assert not HEADERS.keys() & before.keys()  # the same for everybody
    assert (method, path, body) == ("POST", "/tasks/x/reports", REPORT)
    assert HEADERS.items() <= headers.items()
    assert "transfer-encoding" not in headers


def test_a_leader_that_points_elsewhere_is_not_followed(client: WebCarrier, address: str) -> None:
    assert client.send(report(address, "/elsewhere")).status == 307
    assert [method for method, *_ in Handler.asked] == ["GET", "POST"]


@pytest.mark.parametrize(("wrong", "how"), [(3600.0, "ahead of"), (-3600.0, "behind")])
def test_nothing_leaves_while_the_clock_is_wrong(
    address: str, tls: tuple[Path, Path, Path], wrong: float, how: str
) -> None:
    """A report that comes too early or too late counts for nothing."""
    off = [wrong]
    client = carrier_to(address, tls[0].read_text(), clock=lambda: time.time() + off[0])
    with pytest.raises(TransportError, match=f"clock is 3[56].. s {how} the leader's"):
        client.send(report(address))
    assert [method for method, *_ in Handler.asked] == ["GET"]
    off[0] = wrong / 3600.0 * 60.0
    assert client.send(report(address)).status == 201


def test_nobody_there(tls: tuple[Path, Path, Path]) -> None:
    gone = "https://127.0.0.1:9"
    client = carrier_to(gone, tls[0].read_text())
    with pytest.raises(TransportError):
        client.read(f"{gone}/file", 5)
    with pytest.raises(TransportError):
        client.send(report(gone))


@pytest.mark.parametrize(
    "url",
    ["https://elsewhere.example/x", "https://127.0.0.1.elsewhere.example/x", "http://127.0.0.1/x"],
)
def test_nothing_goes_to_an_origin_that_was_not_joined(client: WebCarrier, url: str) -> None:
    with pytest.raises(TransportError, match="nobody that was joined"):
        client.read(url, 1000)
    with pytest.raises(TransportError, match="nobody that was joined"):
        client.send(sealed("POST", url, HEADERS, REPORT))
    assert Handler.asked == []


def test_nothing_is_sent_that_was_not_sealed(client: WebCarrier, address: str) -> None:
    class Alike:
        method, url, headers, body = "POST", f"{address}/tasks/x/reports", HEADERS, REPORT

    with pytest.raises(TypeError, match="sealed"):
        client.send(Alike())  # type: ignore[arg-type]
    assert Handler.asked == []


@pytest.mark.parametrize(
    "address", ["http://h:1", "h:1", "https://", "https://u@h", "https://h?x", "https://h:99999"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        check_address(address)


def test_a_folder_may_be_below() -> None:
    assert check_address("https://films.example/public/") == "https://films.example/public"
