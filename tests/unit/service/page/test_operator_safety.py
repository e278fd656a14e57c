"""The page is for the operator: a link that works once, or the word of one proxy. Everybody else
gets nothing.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.errors import ConfigError
from hdpmf.untrusted.service.page.http import REFRESH, ProxyLogin
from tests.unit.page.conftest import HOST, ORIGIN
from tests.unit.service.page.conftest import OWN, PAGES, Operator

PROXY, HEADER, PUBLIC = "192.0.2.7", "x-remote-user", "https://ops.example"


def shows_nothing(text: str) -> bool:
    return not any(word in text for word in ("town", "hdp-sum", "<table", "<nav"))


@pytest.mark.parametrize("path", ["/", *PAGES, "/enter", "/nothing", "/static/page.css"])
def test_without_a_link_nothing_is_shown(outside: Operator, path: str):
    for headers in (
        {},
        {"x-remote-user": "root"},
        {"cookie": "hdpmf-pabc=x"},
        {"authorization": "Basic cm9vdDo="},
    ):
        answer = outside.get(path, **headers)
        assert answer.status_code == (403 if path in PAGES else 404 if path == "/nothing" else 200)
        assert shows_nothing(answer.text)


def test_a_link_works_once_and_its_cookie_is_for_our_own_pages_only(outside: Operator):
    token = outside.sessions.token()
    answer = outside.enter(token)
    flags = answer.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=strict" in flags
    assert answer.json() == {"next": "/overview"}
    assert "town" in outside.get("/overview").text
    outside.client.cookies.clear()
    assert outside.enter(token).status_code == 403
    for nonsense in (b"", b"[]", b"{", b'{"token": 1}', b'{"token": null}', b"\xff", b"x" * 5000):
        answer = outside.client.post("/enter", content=nonsense, headers={"origin": ORIGIN})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    assert outside.get("/overview").status_code == 403


def test_a_link_is_too_old_after_a_while(outside: Operator):
    token = outside.sessions.token()
    outside.clock.now += 601
    assert outside.enter(token).status_code == 403


def test_another_site_and_another_name_get_nothing_although_the_browser_is_let_in(
    operator: Operator,
):
    for path in PAGES:
        assert operator.get(path).status_code == 200
        for headers in (
            {"origin": "http://evil.example"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"host": "evil.example"},
            {"host": "127.0.0.1:4711"},
        ):
            answer = operator.get(path, **headers)
            assert answer.status_code == 403
            assert shows_nothing(answer.text)
    assert (
        operator.get("/", **{"sec-fetch-site": "cross-site"}).status_code == 200
    )  # it shows nothing
    answer = operator.client.post(
        "/enter", json={"token": operator.sessions.token()}, headers={"origin": "http://evil.e"}
    )
    assert answer.status_code == 403


def test_no_answer_may_be_kept_embedded_or_read_elsewhere(operator: Operator):
    for path in ("/", *PAGES, "/nothing", "/static/page.css"):
        answer = operator.get(path)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in answer.headers
        assert " style=" not in answer.text
        assert "<script>" not in answer.text


def test_after_a_while_it_locks_and_a_new_link_is_the_key(operator: Operator):
    operator.clock.now += 59
    assert operator.get("/runs").status_code == 200
    operator.clock.now += 61
    answer = operator.get("/runs")
    assert answer.status_code == 403
    assert "Locked" in answer.text
    assert shows_nothing(answer.text)
    assert operator.links == [True]
    assert "Closed" in operator.get("/runs").text
    operator.enter()
    assert operator.get("/runs").status_code == 200


def test_a_page_that_refreshes_itself_does_not_keep_it_open(operator: Operator):
    for _ in range(6):
        operator.clock.now += 11
        answer = operator.get("/overview", **{REFRESH: "1"})
    assert answer.status_code == 403
    assert "Locked" in answer.text
    assert shows_nothing(answer.text)


def proxied(outside: Operator, address: str = PROXY):
    return outside.browser(ProxyLogin(HEADER, PROXY), address, PUBLIC)


def test_the_proxys_word_is_enough(outside: Operator):
    client = proxied(outside)
    for path in PAGES:
        assert client.get(path, headers=OWN | {HEADER: "ada"}).status_code == 200
    assert "town" in client.get("/overview", headers=OWN | {"X-Remote-User": "ada"}).text


def test_without_the_proxys_word_nobody_is_the_operator(outside: Operator):
    client = proxied(outside)
    cookies = {"cookie": f"hdpmf-pabc={outside.sessions.enter(outside.sessions.token())}"}
    for headers in (
        {},
        {HEADER: ""},
        {HEADER: "  "},
        {HEADER: "a" * 201},
        {"x-forwarded-user": "ada"},
        cookies,
    ):
        answer = client.get("/overview", headers=OWN | headers)
        assert answer.status_code == 403
        assert shows_nothing(answer.text)
    both = [*OWN.items(), (HEADER, "ada"), (HEADER, "mallory")]
    assert client.get("/overview", headers=both).status_code == 403  # type: ignore[arg-type]
    assert client.get("/enter", headers=OWN).status_code == 404  # there is no other way in


@pytest.mark.parametrize(
    "address", ["192.0.2.8", "127.0.0.1", "::1", "::ffff:192.0.2.8", "", "unix"]
)
def test_another_machine_cannot_speak_for_the_proxy(outside: Operator, address: str):
    client = proxied(outside, address)
    for more in (
        {},
        {"x-forwarded-for": PROXY},
        {"x-real-ip": PROXY},
        {"forwarded": f"for={PROXY}"},
    ):
        answer = client.get("/overview", headers=OWN | {HEADER: "ada"} | more)
        assert answer.status_code == 403
        assert shows_nothing(answer.text)


def test_the_proxy_is_the_same_in_both_spellings(outside: Operator):
    client = proxied(outside, f"::ffff:{PROXY}")
    assert client.get("/overview", headers=OWN | {HEADER: "ada"}).status_code == 200


def test_behind_a_proxy_the_name_is_the_proxys_own(outside: Operator):
    client = proxied(outside)
    for host in (HOST, "evil.example", "ops.example.evil.example", "ops.example:8080"):
        assert (
            client.get("/overview", headers=OWN | {HEADER: "ada", "host": host}).status_code == 403
        )
    assert (
        client.get(
            "/overview", headers=OWN | {HEADER: "ada", "origin": "http://ops.example"}
        ).status_code
        == 403
    )
    assert (
        client.get("/overview", headers={HEADER: "ada", "sec-fetch-site": "cross-site"}).status_code
        == 403
    )
    assert (
        "/overview" in client.get("/", headers={"sec-fetch-site": "cross-site"}).text
    )  # from a login elsewhere


@pytest.mark.parametrize(
    "header", ["", "Host", "cookie", "user-agent", "x remote", "x:y", "é", "x\r\ny"]
)
def test_a_header_that_every_browser_sends_says_nothing(header: str):
    with pytest.raises(ConfigError, match="only the proxy sets"):
        ProxyLogin(header, PROXY)


@given(st.text(max_size=20).filter(lambda text: not text.strip()[:1].isdigit() and ":" not in text))
def test_what_is_no_address_is_no_proxy(text: str):
    with pytest.raises(ConfigError, match="--behind-proxy"):
        ProxyLogin(HEADER, text)
