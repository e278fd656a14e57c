"""A page of somebody else's app, in a browser: it reads public files, enrols, and reports."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from hdpmf.common.aggregation.two_servers.dap.messages import MEDIA_TYPES, UploadRequest
from hdpmf.common.protocol.enrolment import SignedEnrolment
from hdpmf.common.protocol.identity import Identity
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.publish import PublicFiles
from hdpmf.untrusted.service.token_issuer import TokenIssuer
from hdpmf.untrusted.service.website import serve_website
from tests.aggregator.server_processes import HELPER, LEADER, Pair, make_task
from tests.unit.service.tables import table

pytestmark = pytest.mark.slow

_ASK = """async ([url, method, headers, body]) => {
    const bytes = body && Uint8Array.from(atob(body), (each) => each.charCodeAt(0));
    try {
        const answer = await fetch(url, {method, headers, body: bytes, credentials: "omit"});
        return [answer.status, (await answer.text()).length, answer.headers.get("date")];
    } catch (error) { return [String(error)]; }
}"""


class _App(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>app</title>")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def app() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _App) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(
    page: Page,
    url: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> list[Any]:
    sent = base64.b64encode(body).decode()
    return list(page.evaluate(_ASK, [url, method, headers or {}, sent or None]))


def test_an_app_of_another_origin_takes_part(
    tmp_path: Path, app: str, new_context: Callable[..., BrowserContext]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shop = ServiceFolder.create(tmp_path / "shop", Config(name="shop", port=port), table())
    PublicFiles(shop).write()
    with (
        Pair(tmp_path / "pair") as pair,
        shop.participants() as participants,
        serve_website(shop, TokenIssuer(participants)) as address,
    ):
        pair.start(HELPER, LEADER)
        asked = make_task(pair.servers, pair.collector.card, enrolled=True, minimum=2)
        pair.give(asked)
        page = new_context(ignore_https_errors=True).new_page()  # its authority is nobody's
        page.goto(f"{address}/join#digest.secret")
        assert page.get_by_role("heading").inner_text() == "You are invited"
        page.goto(app)
        status, length, _ = ask(page, f"{address}/index.json")
        assert (status, length) == (200, len((shop.path / "public" / "index.json").read_bytes()))
        assert ask(page, f"{address}/participants", "POST", {}, b"{}")[0] == 422
        enrolment = SignedEnrolment.make(Identity.generate(), address).to_bytes()
        assert ask(page, f"{address}/participants", "POST", {}, enrolment)[0] == 403
        token = {"hdpmf-device": "00", "hdpmf-signature": "00"}
        assert ask(page, f"{address}/tokens/AAAA", "POST", token, b"x")[0] == 404
        leader = pair.cards[LEADER]
        status, _, date = ask(page, leader.endpoint("/healthz"))
        assert status == 200
        assert date  # clocks can be compared
        assert ask(page, leader.endpoint("/hpke_config/signed"))[0] == 200
        report, shown = asked.admitted([1, 2, 3, 4])
        headers = shown | {"content-type": MEDIA_TYPES[UploadRequest]}
        assert ask(page, pair.reports_url(asked), "POST", headers, report)[0] == 200
        assert 'uploads_total{outcome="accepted"} 1.0' in pair.metrics(LEADER)
        # What takes a secret of the operator's is for no page.
        assert "TypeError" in ask(page, leader.endpoint("/metrics"), "DELETE")[0]
