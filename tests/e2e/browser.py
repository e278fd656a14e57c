"""A headless Chromium, spoken to over its DevTools pipe: no driver, no socket, no package beside Chromium itself."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-pipe",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--mute-audio",
)  # fmt: skip


def find_chromium() -> str:
    """The browser; without one a test is skipped, but on CI it fails instead."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        reason = "needs Chromium: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class Browser:
    """One browser with one page; use it as a context manager."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._commands = os.pipe()
        self._answers, from_browser = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; the shell puts our pipes there.
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        command = ["bash", "-c", script, "bash", find_chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._commands)
            os.close(self._answers)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come in between are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self._commands, data) :]
        deadline = time.monotonic() + 60
        while True:
            answer = self._read(deadline)
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page as a screen of this width would show it."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def wait_for(self, method: str, seconds: float = 60) -> None:
        """Wait for an event, which may have come already."""
        deadline = time.monotonic() + seconds
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._read(deadline))

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click on an element with the mouse."""
        place = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **place, button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        """Move the mouse over an element."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self._middle(selector))

    def key(self, name: str) -> None:
        """Press a key."""
        text = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, **(text if kind == "keyDown" else {}))

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of the screen, or of the whole page."""
        options: dict[str, Any] = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 15_000), "scale": 1}
            options = {"captureBeyondViewport": True, "clip": clip}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    def complaints(self) -> list[str]:
        """What the page wrote to its console as warning or error, and what it could not load."""
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown" or (
                method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert")
            ):
                found.append(json.dumps(params)[:400])
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def _middle(self, selector: str) -> dict[str, float]:
        quoted = json.dumps(selector)
        self.run(f"document.querySelector({quoted}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        place: dict[str, float] = self.run(
            f"(() => {{ const b = document.querySelector({quoted}).getBoundingClientRect();"
            " return {x: b.left + b.width / 2, y: b.top + b.height / 2}; })()"
        )
        return place

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise TimeoutError("Chromium has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
