"""``hdpmf device open`` and ``hdpmf recommender page`` as processes, for tests in a browser."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from browser import Browser

AXE = Path(__file__).with_name("axe.min.js")


@dataclass
class OpenPage:
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
        return next(word for line in reversed(self.log) for word in line.split() if "/enter#" in word)


def owner_page(store: Path, *options: str) -> AbstractContextManager[OpenPage]:
    """Serve the page of a store, which need not be there, until the block ends."""
    return _served("device", "open", str(store), *options)


def operator_page(folder: Path, *options: str) -> AbstractContextManager[OpenPage]:
    """Serve the page of a recommender until the block ends."""
    return _served("recommender", "page", str(folder), *options)


@contextmanager
def _served(*arguments: str) -> Iterator[OpenPage]:
    command = [sys.executable, "-m", "hdpmf", *arguments, "--no-browser", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "400"}
    )
    assert process.stdout is not None
    assert process.stderr is not None
    page = OpenPage("", process)
    errors = process.stderr
    reader = threading.Thread(target=lambda: page.log.extend(iter(errors.readline, "")), daemon=True)
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


def enter(browser: Browser, page: OpenPage, link: str | None = None) -> None:
    """Open the link, and wait until the first page is there."""
    browser.open(link or page.link)
    until(browser, "location.pathname !== '/enter' && document.readyState === 'complete'")


def until(browser: Browser, condition: str, seconds: float = 20) -> None:
    """Wait until a condition holds on the page; while pages change there is none, which is waited for, too."""
    wait = "await new Promise(done => setTimeout(done, 25))"
    script = (
        f"(async () => {{ for (let n = 0; n < 20; n++) {{ if ({condition}) return true; {wait}; }} return false; }})()"
    )
    for _ in range(int(seconds * 2)):
        try:
            if browser.run(script):
                return
        except RuntimeError:
            continue
    told = browser.run("document.body.innerText")
    raise AssertionError(f"it never came true: {condition}; the page says: {told[:2000]}")


def submit(browser: Browser, script: str, path: str) -> None:
    """Do something that leads to a page, and wait until it is there."""
    browser.run("window.before = true")
    browser.run(script)
    until(browser, f"!window.before && location.pathname === {json.dumps(path)} && document.readyState === 'complete'")


def pictures(browser: Browser, page: OpenPage, name: str) -> None:
    """Four pictures of a page, if they are wanted (``HDPMF_PICTURES=FOLDER``): desktop and phone, light and dark."""
    folder = os.environ.get("HDPMF_PICTURES")
    if not folder:
        return
    for screen, width, height in (("desktop", 1100, 820), ("phone", 390, 780)):
        for scheme in ("light", "dark"):
            browser.open(f"{page.origin}/{name}", width=width, height=height, dark=scheme == "dark")
            data = browser.call("Page.captureScreenshot", format="webp", quality=60)["data"]
            place = Path(folder) / f"{name}-{screen}-{scheme}.webp"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(base64.b64decode(data))
    browser.open(f"{page.origin}/{name}")


def accessible(browser: Browser) -> list[list[str]]:
    """What axe-core finds on the page that is serious or worse."""
    browser.run(AXE.read_text("utf-8"))
    found = browser.run("axe.run().then(told => told.violations.map(v => [v.impact, v.id, v.nodes[0].html]))")
    return [each for each in found if each[0] in ("serious", "critical")]


def choose_file(browser: Browser, selector: str, file: Path) -> None:
    """Choose a file, as a person would in the browser's dialogue."""
    root = browser.call("DOM.getDocument")["root"]["nodeId"]
    node = browser.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
    browser.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])
