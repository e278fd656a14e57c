"""``hdpmf device open`` and ``hdpmf recommender page``: pages in the browser."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from hdpmf.cli.device.store import StoreOptions, first_line
from hdpmf.cli.options.common import RecommenderFolder, SameHost, command, option
from hdpmf.cli.output import Result, emit, note
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.web.local_server import App, BrowserSessions
    from hdpmf.private.page.address import PageAddress
    from hdpmf.untrusted.service.page.http import ProxyLogin


_BROWSER_PATIENCE = 10.0

_FORM = (
    '<!doctype html><meta charset="utf-8"><title>hdpmf</title>'
    '<form method="post" action="{entrance}"><input type="hidden" name="token" value="{token}">'
    "<button>Open my page</button></form><script>document.forms[0].submit()</script>"
)


@dataclass(frozen=True)
class PageOptions:
    """The port of a page, and how long it stays open."""

    port: Annotated[
        int, option("Port on this machine; 0: one is chosen.", "N", min=0, max=65535)
    ] = 0
    browser: Annotated[
        bool, option("Open the page, or only print its link.", None, "--browser/--no-browser")
    ] = True
    idle: Annotated[float, option("Lock the page after so long without use.", "MINUTES")] = 15.0

    def __post_init__(self) -> None:
        if not 0.1 <= self.idle <= 1440:
            raise ConfigError("--idle takes 0.1 to 1440 minutes")


@dataclass(frozen=True)
class _OneTimeLink:
    """The link to a page on this machine; each one works once."""

    sessions: BrowserSessions
    host: str

    def make(self) -> str:
        """Return a new link."""
        return f"http://{self.host}/enter#{self.sessions.token()}"

    def renew(self) -> None:
        """Print a new link after the page was locked."""
        note(f"The page was locked. Open it again: {self.make()}")


@command
def open_(
    target: StoreOptions,
    options: PageOptions,
    every: Annotated[
        float | None, option("How often to look for something new.", "SECONDS", default="300")
    ] = None,
    same_host: SameHost = False,
    background: Annotated[
        bool, option("As a service: print no link, open no browser.", None, "--background")
    ] = False,
) -> None:
    """Open your own page in the browser: rate, see your list, set your privacy, decide what leaves.

    The page is served by this machine to itself. Its link works once; whoever else is on this
    machine cannot use it. The page's address stays the same, so that you can bookmark it, or
    install it as an app. Without a store it makes one. Recommenders that you have joined are
    answered until this command ends; if it runs already, a second one opens the page once more.
    """
    from hdpmf.common.web.local_server import BrowserSessions
    from hdpmf.private.page.address import PageAddress
    from hdpmf.private.page.http import OwnerPage
    from hdpmf.private.page.owner import Owner

    if target.old_copy:
        raise ConfigError(
            "the page takes no old copy; open it with another command and --old-copy once"
        )
    if every is not None and not 1 <= every <= 86_400:
        raise ConfigError("--every takes 1 to 86400 seconds")
    given = None if target.passphrase_file is None else first_line(target.passphrase_file)
    address = PageAddress.of(target.path)
    running = address.running_link()
    if running is not None and background:
        raise ConfigError(f"the page of {target.path} is served already")
    if running is not None:
        _show_running(running, address, target.path, options)
        return
    owner = Owner(target.path, note, every, same_host=same_host)
    before = address.port
    address, loopback = address.listen(options.port)
    if before not in (0, address.port):
        note(f"This page is at http://{address.host}/ now; bookmarks of port {before} are old.")
    link = _OneTimeLink(BrowserSessions(options.idle * 60), address.host)
    if owner.exists and (given is not None or not owner.encrypted):
        owner.open(given)
    page = OwnerPage(owner, address, link.sessions, (lambda: None) if background else link.renew)
    stop = threading.Event()
    threading.Thread(target=page.watch, args=(stop,), daemon=True).start()
    with browser_opener(options.browser and not background) as show:

        def ready() -> None:
            if background:  # logs are read by others, too
                note(f"The page of {target.path} is at http://{address.host}/")
                return
            once = link.make()
            text = [
                f"Your page: {once}",
                "The link works once. Ctrl-C ends it; nothing is lost by that.",
            ]
            emit(Result(_link_fields(once, address, target.path), text))
            show(once)

        try:
            _serve(page.app(), ready, list(loopback.sockets))
        finally:
            stop.set()
            owner.end()


def _show_running(link: str, address: PageAddress, store: Path, options: PageOptions) -> None:
    """Open a page that another process serves."""
    if options.port not in (0, address.port):
        raise ConfigError(
            f"the page of {store} is open already, at port {address.port}; end that one first, or "
            "leave out --port"
        )
    emit(
        Result(
            _link_fields(link, address, store),
            [f"Your page is open already: {link}", "The link works once."],
        )
    )
    with browser_opener(options.browser, _BROWSER_PATIENCE) as show:
        show(link)


def _link_fields(link: str, address: PageAddress, store: Path) -> dict[str, object]:
    return {
        "link": link,
        "address": f"http://{address.host}/",
        "port": address.port,
        "store": str(store),
    }


@dataclass(frozen=True)
class ProxyOptions:
    """A reverse proxy that logs the operator in."""

    trusted_header: Annotated[
        str | None, option("Header in which a reverse proxy says who has logged in.", "NAME")
    ] = None
    behind_proxy: Annotated[
        str | None, option("That proxy's IP address; no other counts.", "ADDRESS")
    ] = None
    address: Annotated[
        str | None, option("The page's address at the proxy, as https://ops.example.", "URL")
    ] = None
    listen: Annotated[
        str | None, option("Where the proxy reaches us.", "ADDRESS", default="loopback only")
    ] = None

    def login(self) -> ProxyLogin | None:
        """Return the login by the proxy; None without a proxy."""
        from hdpmf.untrusted.service.page.http import ProxyLogin

        if (self.trusted_header, self.behind_proxy, self.address) == (None, None, None):
            if self.listen is not None:
                raise ConfigError(
                    "--listen is for a proxy: a link is for this machine only; see --behind-proxy"
                )
            return None
        if self.trusted_header is None or self.behind_proxy is None or self.address is None:
            raise ConfigError(
                "--trusted-header, --behind-proxy and --address go together: a header is only "
                "worth something from the proxy, and under its name"
            )
        return ProxyLogin(self.trusted_header, self.behind_proxy)

    def public_address(self) -> tuple[str, str]:
        """Return the scheme and the host that browsers use."""
        try:
            parts = urlsplit(self.address or "")
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        extra = fits and (parts.path not in ("", "/") or parts.query or parts.fragment)
        if not fits or extra or "@" in parts.netloc:
            raise ConfigError(
                f"--address takes an address such as https://ops.example, not {self.address!r}"
            )
        return parts.scheme, parts.netloc.lower()


@command
def page(folder: RecommenderFolder, proxy: ProxyOptions, options: PageOptions) -> None:
    """Open the operator's page: runs, devices, the public model, certificates, alerts.

    It only reads FOLDER, also while serve runs. This machine serves it to itself, and its link
    works once. A reverse proxy can log the operator in instead (--trusted-header, --behind-proxy,
    --address).
    """
    from hdpmf.common.web.local_server import BrowserSessions, Loopback, listen_on
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.page.http import OperatorPage, TokenLogin

    service = ServiceFolder(folder, only_read=True)
    login = proxy.login()

    def announce(address: str, port: int, words: str) -> None:
        text = [f"The operator's page: {address}", f"{words} Ctrl-C ends it; the service goes on."]
        emit(Result({"link": address, "port": port, "folder": str(folder)}, text), compact=True)

    if login is None:
        loopback = Loopback.listen(options.port)
        link = _OneTimeLink(BrowserSessions(options.idle * 60), loopback.host)
        by_token = TokenLogin(link.sessions, link.host, link.renew)
        with browser_opener(options.browser) as show:

            def ready() -> None:
                address = link.make()
                announce(address, loopback.port, "The link works once.")
                show(address)

            app = OperatorPage(service, by_token, link.host).app()
            _serve(app, ready, list(loopback.sockets))
        return
    scheme, host = proxy.public_address()
    if proxy.listen is None:
        sockets = list(Loopback.listen(options.port).sockets)
    else:
        sockets = [listen_on(proxy.listen, options.port)]
    port = int(sockets[0].getsockname()[1])
    words = f"The proxy {proxy.behind_proxy} reaches it at port {port}."
    app = OperatorPage(service, login, host, scheme).app()
    _serve(app, lambda: announce(f"{scheme}://{host}/", port, words), sockets)


def _serve(app: App, ready: Callable[[], None], sockets: list[socket.socket]) -> None:
    from hdpmf.common.web.local_server import local_server

    try:
        local_server(app, ready).run(sockets=sockets)
    finally:
        for listener in sockets:
            listener.close()


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
