"""The owner's page where it was yesterday: bookmarks, the app, what browsers keep of a link."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from playwright.sync_api import Browser, BrowserContext, expect

from hdpmf.common.data import RatingScale
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.own_items import load_catalogue
from tests.e2e.browsing import accessible, find_chromium
from tests.e2e.served_pages import enter, owner_page

pytestmark = pytest.mark.slow

PASSPHRASE = "correct horse"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "films.csv").write_text("item,title\n1,Zombie Opera\n")
    path = tmp_path / "me.sqlite"
    with new_device(path, scale=RatingScale(1.0, 5.0, 1.0), passphrase=PASSPHRASE) as made:
        load_catalogue(made, tmp_path / "films.csv")
        made.rate("1", 5.0)
    return path


@pytest.fixture
def profile(chromium: Browser, tmp_path: Path) -> Iterator[BrowserContext]:
    """A browser that keeps what people's browsers keep."""
    with chromium.browser_type.launch_persistent_context(
        tmp_path / "profile", executable_path=find_chromium(), args=["--disable-quic"]
    ) as context:
        yield context


def test_a_bookmark_leads_to_the_passphrase_after_a_restart(profile: BrowserContext, store: Path):
    page = profile.new_page()
    with owner_page(store) as served:
        enter(page, served)
        bookmark = page.url
        app = profile.new_cdp_session(page)
        assert app.send("Page.getAppManifest")["errors"] == []
        problems = app.send("Page.getInstallabilityErrors")["installabilityErrors"]
        assert [each["errorId"] for each in problems if each["errorId"] != "in-incognito"] == []
    with owner_page(store) as served:
        assert bookmark.startswith(served.origin)
        page.goto(bookmark)
        assert "Zombie" not in page.content()
        assert accessible(page) == []
        page.get_by_label("Passphrase").fill(PASSPHRASE)
        page.get_by_role("button", name="Unlock").click()
        expect(page).to_have_url(f"{served.origin}/rate")
        expect(page.get_by_role("strong")).to_have_text("Zombie Opera")


def test_a_spent_link_is_not_in_the_history(
    profile: BrowserContext, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The command opens the browser, whose files are searched for the token afterwards."""
    browser = tmp_path / "browser"
    opened = tmp_path / "opened.html"
    browser.write_text(
        f'#!/bin/sh\ncp "${{1#file://}}" {opened}.part && mv {opened}.part {opened}\n'
    )
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    page = profile.new_page()
    with owner_page(store, "--browser") as served:
        for _ in range(600):  # the command prints its link first
            if opened.exists():
                break
            page.wait_for_timeout(100)
        page.goto(opened.as_uri())
        expect(page).to_have_url(f"{served.origin}/unlock")
        page.goto(f"{served.origin}/rate")
    token = opened.read_text().partition('value="')[2].partition('"')[0]
    assert len(token) > 40
    profile.close()
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "profile", kept, ignore=shutil.ignore_patterns("Singleton*"))
    history = kept / "Default" / "History"
    assert served.origin.partition("//")[2].encode() in history.read_bytes()
    for file in kept.rglob("*"):
        if file.is_file():
            assert token.encode() not in file.read_bytes(), file.name
