"""Opening a page in the browser."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opening(browser: bool) -> Iterator[Callable[[str], None]]:
    """A function that opens a link without showing it to other users, who see the arguments of every program.

    Args:
        browser: Without it the function does nothing.
    """
    if not browser:
        yield lambda address: None
        return
    with tempfile.TemporaryDirectory(prefix="hdpmf-") as folder:  # readable by its owner only

        def show(address: str) -> None:
            page = Path(folder) / "open.html"
            descriptor = os.open(page, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            refresh = f'<meta http-equiv="refresh" content="0; url={address}">'
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(f"<!doctype html>{refresh}<title>hdpmf</title>")
            webbrowser.open(page.as_uri())

        yield show
