"""A page is reachable on this machine only, and under one name only."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from hdpmf.common.web.local_server import HEADERS, Loopback, PageGuard
from hdpmf.errors import ConfigError


def test_it_listens_on_loopback_only_with_a_name_that_nobody_can_guess():
    first, second = Loopback.listen(), Loopback.listen()
    try:
        addresses = {listener.getsockname()[0] for listener in first.sockets}
        assert addresses <= {"127.0.0.1", "::1"}
        assert "127.0.0.1" in addresses
        assert {listener.getsockname()[1] for listener in first.sockets} == {first.port}
        assert first.host.endswith(f".localhost:{first.port}")
        assert first.host.partition(".")[0] != second.host.partition(".")[0]
        assert len(first.host.partition(".")[0]) >= 16
    finally:
        first.close()
        second.close()


def test_a_port_that_is_taken_is_said():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match="is taken"):
            Loopback.listen(other.getsockname()[1])


def test_a_port_that_somebody_has_on_ipv6_is_not_used():
    with socket.socket(socket.AF_INET6) as other:
        try:
            other.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        other.listen()
        with pytest.raises(ConfigError, match="is taken"):
            Loopback.listen(other.getsockname()[1])


HOST = "pabc.localhost:4711"
OWN = {"host": HOST, "sec-fetch-site": "same-origin"}


def asked(
    method: str = "GET", path: str = "/rate", headers: dict[str, str] | list[tuple[str, str]] = OWN
):
    """The status that a request gets, and the headers of the answer; 200 if it came through."""
    sent: list[dict[str, Any]] = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"private"})

    async def send(message):
        sent.append(dict(message))

    async def receive():
        return {"type": "http.request"}

    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in pairs],
    }
    asyncio.run(PageGuard(app, HOST, frozenset({"/enter"}))(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_our_own_page_comes_through():
    assert asked()[0] == 200
    assert asked("POST", headers=OWN | {"origin": f"http://{HOST}"})[0] == 200
    assert asked(headers={"host": HOST})[0] == 200  # a browser that says nothing about sites
    assert asked(headers=OWN | {"sec-fetch-site": "none"})[0] == 200  # typed by the owner


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:4711",
        "127.0.0.1:4711",
        "localhost:4711",
        "pabc.localhost",
        "pabc.localhost:4712",
        "",
    ],
)
def test_another_name_that_leads_here_gets_nothing(host):
    for method in ("GET", "POST", "HEAD", "OPTIONS"):
        status, _, body = asked(method, headers={"host": host, "origin": f"http://{HOST}"})
        assert (status, b"private" in body) == (403, False)


def test_a_host_is_said_once():
    assert asked(headers=[("host", HOST), ("host", "evil.example")])[0] == 403
    assert asked(headers=[])[0] == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", f"https://{HOST}", "http://127.0.0.1:4711", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_another_origin_gets_nothing(method, origin):
    assert asked(method, headers=OWN | {"origin": origin})[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_what_may_change_something_says_where_it_comes_from(method):
    assert asked(method)[0] == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_leads_nowhere_but_to_the_entrance(site):
    assert asked(headers=OWN | {"sec-fetch-site": site})[0] == 403
    assert asked(path="/enter", headers=OWN | {"sec-fetch-site": site})[0] == 200


def test_every_answer_forbids_embedding_caching_and_foreign_scripts():
    for status, headers, _ in (asked(), asked(headers={"host": "evil.example"})):
        assert {
            name.decode(): value.decode() for name, value in headers.items()
        }.items() >= HEADERS.items(), status
        assert not any(name.startswith(b"access-control") for name in headers)
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert HEADERS["cache-control"] == "no-store"
