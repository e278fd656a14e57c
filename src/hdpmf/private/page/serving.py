"""Serving the owner's page: one process for each store, until it is stopped."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hdpmf.common.base.files import lock_file, storage_errors
from hdpmf.common.web.local_server import IDLE_SECONDS, BrowserSessions, OneTimeLink, local_server
from hdpmf.errors import ConfigError, needs
from hdpmf.private.device.store.device_store import MovedError
from hdpmf.private.page.address import PageAddress
from hdpmf.private.page.http import OwnerPage
from hdpmf.private.page.owner import Owner

BROWSER_SECONDS = 10.0
"""How long a browser gets to read a link from its file, where the command ends after that."""

_STORE = "store.sqlite"
_LOCK = ".page-lock"
_PATIENCE = 30.0
_LOOK = 0.1


def default_store() -> Path:
    """Return the store of who names none, in the folder that this system has for such data."""
    with needs("platformdirs", "page"):
        from platformdirs import user_data_path
    folder = user_data_path("hdpmf", appauthor=False)
    with storage_errors(f"cannot make {folder}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / _STORE


@contextmanager
def only_server(store: Path) -> Iterator[str | None]:
    """Let one process at a time serve the page of a store.

    Yields:
        None to that one. To any other the link to the page that is served already; one that is
        only just starting is waited for.
    """
    with storage_errors(f"cannot use the folder of {store}"):
        beside = os.open(store.with_name(store.name + _LOCK), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        until = time.monotonic() + _PATIENCE
        while not _locked(beside):
            link = PageAddress.of(store).running_link()
            if link is not None:
                yield link
                return
            if time.monotonic() > until:
                raise ConfigError(
                    f"another process has the page of {store} and does not answer; end it, or "
                    "restart this machine, and open the page again"
                )
            time.sleep(_LOOK)
        yield PageAddress.of(store).running_link()
    finally:
        os.close(beside)


def _locked(descriptor: int) -> bool:
    try:
        lock_file(descriptor)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class PageServing:
    """The way a page is served.

    Attributes:
        port: On this machine; 0: the same as before, or any.
        idle: Seconds without use after which the page locks.
        every: Seconds between two looks at what recommenders publish; the usual ones by default.
        passphrase: Opens the store at once.
        end_after: Seconds after which it ends by itself, when nobody uses the page and nobody has
            to be answered; None: never.
        log: Told what happens, in lines for the owner. They hold no rating.
        relink: Told a new link when the page was locked and has no passphrase.
    """

    port: int = 0
    idle: float = IDLE_SECONDS
    every: float | None = None
    passphrase: str | None = None
    end_after: float | None = None
    log: Callable[[str], None] = lambda line: None
    relink: Callable[[str], None] = lambda link: None

    def serve(self, store: Path, ready: Callable[[OneTimeLink, PageAddress], None]) -> None:
        """Serve the page of a store until it is stopped; call ``ready`` when it listens."""
        owner = Owner(store, self.log, self.every)
        address = PageAddress.of(store)
        before = address.port
        address, loopback = address.listen(self.port)
        if before not in (0, address.port):
            self.log(f"This page is at http://{address.host}/ now; port {before} was taken.")
        link = OneTimeLink(BrowserSessions(self.idle), address.host)
        stop = threading.Event()
        try:
            if owner.exists and (self.passphrase is not None or not owner.encrypted):
                with suppress(MovedError):  # the page says so
                    owner.open(self.passphrase)
            page = OwnerPage(
                owner,
                address,
                link.sessions,
                lambda: self.relink(link.make()),
                lambda: setattr(server, "should_exit", True),
            )
            server = local_server(page.app(), lambda: ready(link, address))
            watch = threading.Thread(target=page.watch, args=(stop, self.end_after), daemon=True)
            watch.start()
            server.run(sockets=list(loopback.sockets))
        finally:
            stop.set()
            loopback.close()
            owner.end()
