"""The way of a page's link to its owner's browser."""

from __future__ import annotations

import os
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hdpmf.common.web.local_server import ENTER, BrowserSessions

_FORM = (
    '<!doctype html><meta charset="utf-8"><title>hdpmf</title>'
    '<form method="post" action="{entrance}"><input type="hidden" name="token" value="{token}">'
    "<button>Open my page</button></form><script>document.forms[0].submit()</script>"
)


@dataclass(frozen=True)
class OneTimeLink:
    """The link to a page on this machine; each one works once."""

    sessions: BrowserSessions
    host: str

    def make(self) -> str:
        """Return a new link."""
        return f"http://{self.host}{ENTER}#{self.sessions.token()}"


@contextmanager
def browser_opener(browser: bool, patience: float = 0.0) -> Iterator[Callable[[str], None]]:
    """Yield a function that opens a link without showing it to other users of this machine.

    They see the arguments of every program, so the link goes through a file. That has the token in
    a form: an address would stay in the browser's history.

    Args:
        browser: Without it the function does nothing.
        patience: Seconds that a browser gets to read the file before it is deleted.
    """
    if not browser:
        yield lambda address: None
        return
    with tempfile.TemporaryDirectory(prefix="hdpmf-") as folder:  # readable by its owner only

        def show(address: str) -> None:
            page = Path(folder) / "open.html"
            descriptor = os.open(page, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            entrance, _, token = address.partition("#")
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(_FORM.format(entrance=entrance, token=token))
            webbrowser.open(page.as_uri())
            time.sleep(patience)

        yield show
