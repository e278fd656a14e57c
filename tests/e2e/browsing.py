"""Debian's Chromium, driven by Playwright: how to start it, what screens there are, what pages
wrote and asked for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

AXE = Path(__file__).with_name("axe.min.js")

DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "is_mobile": True,
    "has_touch": True,
}
SCREENS = {"desktop": DESKTOP, "phone": PHONE}

expect.set_options(timeout=30_000)  # a machine that is busy with other tests may take its time


def find_chromium() -> str:
    """The browser; without one a test is skipped, but on CI it fails instead."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        reason = "needs Chromium: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """A browser. While it runs, this thread cannot call ``asyncio.run``: Playwright's own loop
    is suspended in it.
    """
    path = find_chromium()
    with (
        sync_playwright() as driver,
        driver.chromium.launch(
            executable_path=path,
            args=["--disable-quic"],
            # As people have it: what Back shows after a page was locked matters.
            ignore_default_args=["--disable-back-forward-cache"],
        ) as browser,
    ):
        yield browser


class Heard:
    """What the pages of a context complained about, and every address that they asked for."""

    def __init__(self, context: BrowserContext) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.on("console", self._hear)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.complaints.append(message.text)


def settle(page: Page) -> None:
    """Wait until what the page has begun is drawn, and what it has written has arrived."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")


def accessible(page: Page, *, of_any_severity: bool = False) -> list[list[str]]:
    """What axe-core finds on the page that is serious or worse, or anything; also targets too
    small for a finger.
    """
    page.evaluate(AXE.read_text("utf-8"))
    # What is half-way in sight has half of its contrast.
    page.evaluate(
        "Promise.all(document.getAnimations().map((each) => each.finished.catch(() => {})))"
    )
    run = "axe.run({rules: {'target-size': {enabled: true}}})"
    found = page.evaluate(
        f"{run}.then(told => told.violations.map(v => [v.impact, v.id, v.nodes[0].html]))"
    )
    return [each for each in found if of_any_severity or each[0] in ("serious", "critical")]
