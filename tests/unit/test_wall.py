"""What is really loaded when one side is imported, and when a device has sent a report: a package's
``__init__`` and the first call can bring in what no import line names.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.private.device.pinned_servers import pin_servers
from tests.unit.device.reporting_world import SERVERS, START, World, make_store, make_task
from tests.world import issuer

PROBE = """
import json, pkgutil, sys
from importlib import import_module
for name in sys.argv[1:]:
    package = import_module(name)
    for module in pkgutil.walk_packages(getattr(package, "__path__", ()), name + "."):
        import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""

PRIVATE = {"hdpmf.private"}
UNTRUSTED = {"hdpmf.untrusted"}
BOTH_SIDES = {"hdpmf.models", "hdpmf.lab", "hdpmf.cli", "hdpmf.private.kernels.gpu"}
# What one person's device can do without.
HEAVY = {
    *("dask", "flwr", "joblib", "llvmlite", "narwhals", "numba", "pandas", "polars"),
    *("pooch", "pyarrow", "ray", "rich", "scipy", "sklearn", "sqlalchemy", "torch", "typer"),
}


def loaded(*packages: str) -> set[str]:
    """What a fresh interpreter has loaded with every module of these packages."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *packages], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_the_private_side_loads_nothing_of_the_recommender() -> None:
    sides = [f"hdpmf.private.{package}" for package in ("client", "device", "page")]
    assert not loaded(*sides) & (UNTRUSTED | BOTH_SIDES)


def test_a_device_and_its_page_load_nothing_heavy() -> None:
    assert not loaded("hdpmf.private.device", "hdpmf.private.page") & HEAVY


REPORT = """
import json, sys
from pathlib import Path
from hdpmf.common.net.web_client import WebClient
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.store.device_store import DeviceStore
path, address, authority, now = *sys.argv[1:4], float(sys.argv[4])
end = now + 8000
with DeviceStore.open(path, serving=True) as store:
    web = WebClient(address, Path(authority).read_bytes())
    device = Participant(
        store, web, recommender=address, clock=lambda: now, uniform=lambda: 0.5, log=print
    )
    while now < end:
        now += device.step()
print(json.dumps(sorted(sys.modules)))
"""


class Site(BaseHTTPRequestHandler):
    """The recommender's files and tokens, and the leader's health and reports."""

    protocol_version = "HTTP/1.1"
    world: ClassVar[World]
    reports: ClassVar[list[bytes]] = []

    def log_message(self, *_: object) -> None:
        pass

    def _say(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"]))

    def do_GET(self) -> None:
        self._say(200, self.world.files.get(self.path[1:], b""))

    def do_POST(self) -> None:
        self._say(200, issuer().sign(self._body()))

    def do_PUT(self) -> None:
        self.reports.append(self._body())
        self._say(201)


def test_a_device_that_has_sent_a_report_has_loaded_nothing_heavy(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path / "tls", ["localhost"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.server, made.key)
    Site.world = World()
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        site.socket = tls.wrap_socket(site.socket, server_side=True)
        threading.Thread(target=site.serve_forever, daemon=True).start()
        address = f"https://localhost:{site.server_port}"
        leader = replace(SERVERS.leader, url=address, authority=made.authority.read_text())
        servers = replace(SERVERS, leader=leader)
        Site.world.publish(task=make_task(servers=servers))
        with make_store(path=tmp_path / "me") as store:
            pin_servers(store, servers, same_host=True)
        given = [str(tmp_path / "me"), address, str(made.authority), str(START)]
        done = subprocess.run(
            [sys.executable, "-c", REPORT, *given], capture_output=True, text=True, timeout=120
        )
        site.shutdown()
    assert done.returncode == 0, done.stderr
    assert len(Site.reports) == 1, done.stdout
    found = set(json.loads(done.stdout.splitlines()[-1]))
    assert found & (HEAVY | UNTRUSTED | BOTH_SIDES) == set()


def test_the_untrusted_side_loads_nothing_private() -> None:
    assert not loaded("hdpmf.untrusted") & (PRIVATE | BOTH_SIDES)


def test_what_both_sides_use_knows_neither() -> None:
    assert not loaded("hdpmf.common") & (PRIVATE | UNTRUSTED | BOTH_SIDES)


def test_the_probe_sees_what_a_package_brings_along() -> None:
    """A wall that nothing can hit would pass, too."""
    expected = {
        "hdpmf.models",
        "hdpmf.untrusted.recommender",
        "hdpmf.private.client",
        "hdpmf.private.kernels.gpu",
    }
    found = loaded("hdpmf.models")
    assert expected <= found
    assert {"joblib", "numba"} & found
