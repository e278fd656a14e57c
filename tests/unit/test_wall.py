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
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.protocol.identity import Invitation
from hdpmf.private.device.state import Joined, Rated
from hdpmf.private.device.state_file import StateFile
from tests.unit.participant.outside import Outside
from tests.unit.participant.publishing import (
    FILMS,
    ITEMS,
    SERVERS,
    START,
    issuer,
    linear,
    pairs,
    published,
    state,
    task,
)

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
    sides = [f"hdpmf.private.{package}" for package in ("client", "device")]
    assert not loaded(*sides) & (UNTRUSTED | BOTH_SIDES)


def test_a_device_loads_nothing_heavy() -> None:
    assert not loaded("hdpmf.private.device") & HEAVY


REPORT = """
import json, sys
from hdpmf.private.device.carrier import WebCarrier
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.state_file import StateFile
path, now = sys.argv[1], float(sys.argv[2])
end = now + 8000
with StateFile.open(path) as file:
    carrier = WebCarrier([file.load().state.only().invitation], clock=lambda: now)
    device = Participant(file, carrier, clock=lambda: now, log=print)
    while now < end:
        now += device.step()
print(json.dumps(sorted(sys.modules)))
"""


class Site(BaseHTTPRequestHandler):
    """The recommender's files and tokens, and the leader's health and reports."""

    protocol_version = "HTTP/1.1"
    files: ClassVar[dict[str, bytes]] = {}
    reports: ClassVar[list[bytes]] = []

    def log_message(self, *_: object) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return ""  # the device's clock is not that of this machine

    def _say(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"]))

    def do_GET(self) -> None:
        self._say(200, self.files.get(self.path, b""))

    def do_POST(self) -> None:
        body = self._body()
        if self.path.endswith("/reports"):
            self.reports.append(body)
        self._say(200, issuer().sign(body) if self.path.startswith("/tokens/") else b"")


@pytest.mark.parametrize("sums", [linear(), pairs()], ids=["linear", "pairs"])
def test_a_device_that_has_sent_a_report_has_loaded_nothing_heavy(
    tmp_path: Path, sums: Any
) -> None:
    made = ensure_certificates(tmp_path / "tls", ["localhost"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.server, made.key)
    Site.reports = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        site.socket = tls.wrap_socket(site.socket, server_side=True)
        threading.Thread(target=site.serve_forever, daemon=True).start()
        address, authority = f"https://localhost:{site.server_port}", made.authority.read_text()
        servers = replace(SERVERS, leader=replace(SERVERS.leader, url=address, authority=authority))
        outside = Outside(published(task=task(servers=servers, sums=sums)))
        Site.files = {url.removeprefix(FILMS): data for url, data in outside.files.items()}
        invited = Invitation(address=address, servers=servers, authority=authority)
        device = replace(
            state(),
            joined=(Joined(invitation=invited),),
            ratings={address: {ITEMS[0]: Rated(5.0), ITEMS[2]: Rated(2.0)}},
        )
        StateFile.create(tmp_path / "me", device).close()
        done = subprocess.run(
            [sys.executable, "-c", REPORT, str(tmp_path / "me"), str(START)],
            capture_output=True,
            text=True,
            timeout=120,
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
