"""The page that an invitation opens, in a browser: it hands the link on, and tells nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.server import listen, serving
from hdpmf.lab.simulate.deploy import free_port
from hdpmf.untrusted.service.join_page import join_page
from hdpmf.untrusted.service.participants import Participants
from hdpmf.untrusted.service.token_issuer import TokenIssuer
from hdpmf.untrusted.service.website import Website
from tests.e2e.browsing import PHONE, Heard, accessible

pytestmark = pytest.mark.slow

DIGEST, SECRET = "d" * 43, "s" * 32


@contextmanager
def recommender(folder: Path, app: str) -> Iterator[tuple[str, list[str]]]:
    """A recommender's website, and everything that it is asked, to the byte."""
    site = Website(folder, TokenIssuer(Participants()), app=app).app
    asked: list[str] = []

    async def heard(scope: Any, receive: Any, send: Any) -> None:
        asked.append(repr(scope))
        await site(scope, receive, send)

    port = free_port()
    tls = ensure_certificates(folder / "tls", ("localhost",))
    with serving(heard, listen("127.0.0.1", port), tls, idle=5):
        yield f"https://localhost:{port}", asked


def test_a_link_opens_in_the_app_and_its_secret_is_sent_to_nobody(
    tmp_path: Path, new_context: Callable[..., BrowserContext]
) -> None:
    context = new_context(**PHONE, ignore_https_errors=True)
    heard = Heard(context)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    with (
        recommender(tmp_path / "app", "") as (app, of_app),
        recommender(tmp_path / "shop", f"{app}/?from=a&b") as (shop, of_shop),
    ):
        link = f"{shop}/join#{DIGEST}.{SECRET}"
        page.goto(link)
        assert page.get_by_role("heading").inner_text() == "You are invited"
        assert page.get_by_role("textbox").input_value() == link
        expect(page.get_by_text("for one person")).to_be_visible()
        assert accessible(page, of_any_severity=True) == []
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == link
        assert heard.complaints == []
        page.get_by_role("link", name="Open in the app").click()
        page.wait_for_url(f"{app}/**")
        assert page.url == f"{app}/?from=a&b#{link}"
        assert page.evaluate("document.referrer") == ""
        context.close()  # before the servers: Chromium connects in advance
    assert len(of_shop) >= 1
    assert any("from=a&b" in each for each in of_app)
    told = "".join([*of_shop, *of_app])
    assert SECRET not in told
    assert DIGEST not in told


def test_without_an_app_people_paste_it_and_a_link_that_is_cut_off_is_told(
    tmp_path: Path, new_context: Callable[..., BrowserContext]
) -> None:
    page = new_context(ignore_https_errors=True).new_page()
    with recommender(tmp_path, "") as (shop, _):
        page.goto(f"{shop}/join#{DIGEST}")
        expect(page.get_by_text("paste it into the app")).to_be_visible()
        assert page.get_by_role("link").count() == 0
        expect(page.get_by_text("for one person")).to_be_hidden()
        page.goto("about:blank")
        page.goto(f"{shop}/join#{DIGEST[1:]}")
        expect(page.get_by_text("cut off")).to_be_visible()
        assert page.get_by_role("textbox").count() == 0
        page.context.close()


def test_an_address_is_only_text() -> None:
    assert '"https://a/"' in join_page("https://a/")
    assert "<b>" not in join_page('https://a/"><b>')
