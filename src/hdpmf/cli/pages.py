"""``hdpmf device open`` and ``hdpmf recommender page``: pages in the browser."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from hdpmf.cli.device.store import OldCopy, PassphraseFile, first_line
from hdpmf.cli.options.common import RecommenderFolder, SameHost, argument, command, option
from hdpmf.cli.output import Result, emit, note
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.web.browser import OneTimeLink
    from hdpmf.common.web.local_server import App
    from hdpmf.private.page.address import PageAddress
    from hdpmf.untrusted.service.page.http import ProxyLogin


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
class PageStore:
    """The store of a page; without one the usual one of this user."""

    path: Annotated[
        Path | None, argument("The device's file; without it the usual one of yours.", "[STORE]")
    ] = None
    passphrase_file: PassphraseFile = None
    old_copy: OldCopy = False


@command
def open_(
    target: PageStore,
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
    install it as an app. Where there is no store yet, the page makes one, or takes in one that you
    bring from another machine. Recommenders that you have joined are answered until this command
    ends; if it runs already, a second one opens the page once more.
    """
    from hdpmf.common.web.browser import browser_opener
    from hdpmf.private.page.address import PageAddress
    from hdpmf.private.page.serving import PageServing, default_store, only_server

    if target.old_copy:
        raise ConfigError(
            "the page does not open old copies; open the store once with another command and "
            "--old-copy"
        )
    if every is not None and not 1 <= every <= 86_400:
        raise ConfigError("--every takes 1 to 86400 seconds")
    path = target.path or default_store()
    given = None if target.passphrase_file is None else first_line(target.passphrase_file)
    with only_server(path) as running:
        if running is not None and background:
            raise ConfigError(f"the page of {path} is served already")
        if running is not None:
            _show_running(running, PageAddress.of(path), path, options)
            return
        serving = PageServing(
            port=options.port,
            idle=options.idle * 60,
            every=every,
            same_host=same_host,
            passphrase=given,
            log=note,
            relink=(lambda link: None) if background else _say_link,
        )
        with browser_opener(options.browser and not background) as show:

            def ready(link: OneTimeLink, address: PageAddress) -> None:
                if background:  # logs are read by others, too
                    note(f"The page of {path} is at http://{address.host}/")
                    return
                once = link.make()
                text = [
                    f"Your page: {once}",
                    "The link works once. Ctrl-C ends it; nothing is lost by that.",
                ]
                emit(Result(_link_fields(once, address, path), text))
                show(once)

            serving.serve(path, ready)


def _say_link(link: str) -> None:
    """Print a new link after the page was locked."""
    note(f"The page was locked. Open it again: {link}")


def _show_running(link: str, address: PageAddress, store: Path, options: PageOptions) -> None:
    """Open a page that another process serves."""
    from hdpmf.common.web.browser import browser_opener
    from hdpmf.private.page.serving import BROWSER_SECONDS

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
    with browser_opener(options.browser, BROWSER_SECONDS) as show:
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
    from hdpmf.common.web.browser import OneTimeLink, browser_opener
    from hdpmf.common.web.local_server import BrowserSessions, Loopback, listen_on
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.page.http import OperatorPage, TokenLogin

    service = ServiceFolder(folder, only_read=True)
    login = proxy.login()

    def announce(address: str, port: int, words: str) -> None:
        text = [
            f"The operator's page: {address}",
            f"{words} Ctrl-C ends it; the service continues.",
        ]
        emit(Result({"link": address, "port": port, "folder": str(folder)}, text), compact=True)

    if login is None:
        loopback = Loopback.listen(options.port)
        link = OneTimeLink(BrowserSessions(options.idle * 60), loopback.host)
        by_token = TokenLogin(link.sessions, link.host, lambda: _say_link(link.make()))
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
