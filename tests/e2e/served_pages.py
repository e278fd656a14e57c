"""``hdpmf device open`` as a process, for tests in a browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page


@dataclass
class ServedPage:
    """A page that is served.

    Attributes:
        link: The link that works once.
        log: What the command wrote for its owner.
    """

    link: str
    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)

    @property
    def origin(self) -> str:
        """Where it is."""
        return f"http://{urlsplit(self.link).netloc}"

    def new_link(self) -> str:
        """The last link that the command wrote after the first."""
        return next(
            word for line in reversed(self.log) for word in line.split() if "/enter#" in word
        )


def owner_page(store: Path, *options: str) -> AbstractContextManager[ServedPage]:
    """Serve the page of a store, which need not be there, until the block ends."""
    return _served("device", "open", str(store), *options)


@contextmanager
def _served(*arguments: str) -> Iterator[ServedPage]:
    quiet = [] if "--browser" in arguments else ["--no-browser"]
    command = [sys.executable, "-m", "hdpmf", *arguments, *quiet, "--json"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "400"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    page = ServedPage("", process)
    errors = process.stderr
    reader = threading.Thread(
        target=lambda: page.log.extend(iter(errors.readline, "")), daemon=True
    )
    reader.start()
    try:
        text = ""
        for line in process.stdout:
            text += line
            if line.startswith("}") or line.rstrip().endswith("}"):
                break
        assert text, page.log
        page.link = json.loads(text)["link"]
        yield page
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(10)
        process.stdout.close()
        errors.close()


def enter(page: Page, served: ServedPage, link: str | None = None) -> None:
    """Open the link, and wait until the first page is there."""
    page.goto(link or served.link)
    page.wait_for_url(lambda url: urlsplit(url).path != "/enter")


def history(page: Page) -> list[dict[str, Any]]:
    """What the browser keeps about where this page was."""
    found: list[dict[str, Any]] = page.context.new_cdp_session(page).send(
        "Page.getNavigationHistory"
    )["entries"]
    return found
