"""``hdpmf health``: exit code 0 where something serves and answers, else words and another one."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.net.certificates import Certificates, ensure_certificates
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator.config import AggregatorConfig
from hdpmf.untrusted.aggregator.folder import AggregatorFolder
from hdpmf.untrusted.service.folder import Config, ServiceFolder

from .conftest import Call


@contextmanager
def answering(certificates: Certificates, port: int, status: int) -> Iterator[int]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 500)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *given: object) -> None: ...

    server = HTTPServer(("127.0.0.1", port), Answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def free_port() -> int:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return server.server_port


def test_a_server(call: Call, tmp_path: Path) -> None:
    port = free_port()
    config = AggregatorConfig(
        role="leader", organisation="x", name="localhost", host="0.0.0.0", port=port
    )
    place = AggregatorFolder.create(tmp_path / "a", config)
    sick = call("health", place.path)
    assert sick.code == 12
    assert "nothing answers well" in sick.err
    with answering(place.certificates(), port, 200):
        assert call("health", place.path, "--json").json["kind"] == "leader"
    with answering(place.certificates(), port, 503):
        assert "answers 503" in call("health", place.path).err
    others = ensure_certificates(tmp_path / "others", ("localhost",))
    with answering(others, port, 200):  # somebody else's process on that port
        assert call("health", place.path).code == 12


def test_a_recommender(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, port = synthetic_world(5, 5, 10, rng=0), free_port()
    place = ServiceFolder.create(
        tmp_path / "r",
        Config(name="shop", port=port),
        catalogue_table(world.items, world.scale, world.item_table),
    )
    made = ensure_certificates(place.tls_folder, place.config.names)
    assert "nothing serves" in call("health", place.path).err
    with place.serving():
        assert call("health", place.path).code == 12
        with answering(made, port, 404):  # the engine knows no such path, and says so
            monkeypatch.setenv("HDPMF_FOLDER", str(place.path))
            assert call("health", "--json").json["healthy"]


def test_a_device(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "me.sqlite"
    DeviceStore.create(path).close()
    sick = call("health", path)
    assert (sick.code, "nothing answers a recommender" in sick.err) == (12, True)
    with DeviceStore.open(path, serving=True):
        assert call("health", path, "--json").json["kind"] == "device"
    assert call("health", path).code == 12
    assert call("health", tmp_path / "nothing").code == 2
