"""A recommender that would like to know a device again when it fetches public files: it gives each
something of its own, and waits for it to come back.
"""

from __future__ import annotations

import itertools
import ssl
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec.structs import replace

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.state import Joined
from hdpmf.private.device.state_file import StateFile
from tests.unit.participant.outside import Outside, carrier_to
from tests.unit.participant.publishing import FILMS, invitation, model, published, state, task

LOOKS = 3


@dataclass
class Curious:
    """The files of a world, over HTTPS, with a mark on every answer."""

    world: Outside
    address: str = ""
    authority: bytes = b""
    heads: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    resumed: list[bool] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Curious]:
    made = ensure_certificates(tmp_path, ["127.0.0.1"])
    curious = Curious(Outside(), authority=made.authority.read_bytes())
    numbers = itertools.count(7_000_000)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            head = [f"{name}: {value}" for name, value in self.headers.items()]
            curious.heads[self.path].append("\n".join([self.requestline, *head]))
            curious.resumed.append(bool(self.connection.session_reused))  # type: ignore[attr-defined]
            mark = f"visitor-{next(numbers)}"
            curious.marks.append(mark)
            data = curious.world.files.get(FILMS + self.path)
            self.send_response(404 if data is None else 200)
            for name, value in {
                "etag": f'"{mark}"',
                "last-modified": "Wed, 21 Oct 2015 07:28:00 GMT",
                "cache-control": f'max-age=31536000, private="{mark}"',
                "set-cookie": f"id={mark}; Max-Age=31536000",
                "location": f"/{mark}",
                "content-location": f"/{mark}",
                "link": f"</{mark}>; rel=next",
                "refresh": f"0; url=/{mark}",
                "alt-svc": f'h2="{mark}.example:443"',
                "accept-ch": "device-memory, downlink",
                "content-length": str(len(data or b"")),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data or b"")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # with session tickets, unlike ours
    context.load_cert_chain(made.server, made.key)
    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.daemon_threads = True
    web.handle_error = lambda *_: None  # type: ignore[method-assign]
    web.socket = context.wrap_socket(web.socket, server_side=True)
    curious.address = f"https://127.0.0.1:{web.server_port}"
    thread = threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield curious
    web.shutdown()
    web.server_close()


def looks(file: StateFile, server: Curious) -> None:
    """Look a few times; afterwards as after a restart."""
    for _ in range(2):
        carrier = carrier_to(server.address, server.authority)
        device = Participant(file, carrier, clock=server.world.clock, every=60.0)
        for _ in range(LOOKS):
            device.step()
            server.world.now += 100


def test_nothing_that_a_server_gave_a_device_comes_back(server: Curious, tmp_path: Path) -> None:
    # The task is about other items, and asks for no report. A list of keys is not there.
    seen = published(model=model(), task=task(catalogue="another"))
    missing = replace(seen, index=replace(seen.index, keys="A" * 43))
    server.world.publish(missing)
    for number in range(2):
        made = replace(state(), joined=())
        made = made.with_joined(Joined(invitation=invitation(server.address), enrolled=True))
        with StateFile.create(tmp_path / f"device-{number}", made) as file:
            looks(file, server)
    assert len(server.heads["/index.json"]) == 2 * 2 * LOOKS
    assert len(server.heads) >= 4
    everything = "\n".join(head for heads in server.heads.values() for head in heads)
    assert not [mark for mark in server.marks if mark in everything]
    for path, heads in server.heads.items():
        host = server.address.removeprefix("https://")
        lines = ("Host: " + host, "accept-encoding: identity", "Content-Length: 0")
        # The same from every device, at every look: no cookie, no validator, not even our version.
        assert set(heads) == {"\n".join((f"GET {path} HTTP/1.1", *lines))}
    assert not any(server.resumed)
