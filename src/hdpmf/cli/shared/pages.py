"""What commands that serve a page in the browser share."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hdpmf.errors import ConfigError


@dataclass(frozen=True)
class PageOptions:
    """Where a page is, and for how long."""

    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port on this machine; 0: any that is free.")
    ] = 0
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page, or only print its link.")] = (
        True
    )
    idle: Annotated[
        float, typer.Option("--idle", metavar="MINUTES", help="Lock the page after so long without use.")
    ] = 15.0

    @property
    def idle_seconds(self) -> float:
        """Until the page locks.

        Raises:
            ConfigError: It is too short or too long.
        """
        if not 0.1 <= self.idle <= 1440:
            raise ConfigError("--idle takes 0.1 to 1440 minutes")
        return self.idle * 60


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
