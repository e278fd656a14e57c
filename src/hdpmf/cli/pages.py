"""``hdpmf device open`` and ``hdpmf recommender page``: the owner's and the operator's page in
the browser.
"""

from __future__ import annotations

import json as json_text
import os
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from hdpmf.cli.device.store import StoreOptions, first_line
from hdpmf.cli.options.common import Json, with_option_groups
from hdpmf.cli.output import hdpmf_version, note, print_json, print_lines
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.web.guard import App
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.page.http import ProxyLogin


@dataclass(frozen=True)
class PageOptions:
    """Where a page is, and for how long."""

    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="N",
            min=0,
            max=65535,
            help="Port on this machine; 0: any that is free.",
        ),
    ] = 0
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page, or only print its link.")
    ] = True
    idle: Annotated[
        float,
        typer.Option("--idle", metavar="MINUTES", help="Lock the page after so long without use."),
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
def browser_opener(browser: bool) -> Iterator[Callable[[str], None]]:
    """A function that opens a link without showing it to other users, who see the arguments of
    every program.

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


@with_option_groups
def open_(
    target: StoreOptions,
    shown: PageOptions,
    every: Annotated[
        float | None,
        typer.Option(
            "--every",
            metavar="SECONDS",
            help="How often to look for something new.",
            show_default="300",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Open your own page in the browser: rate, see your list, set your privacy, see and decide what
    leaves.

    The page is served by this machine to itself. Its link works once; whoever else is on this
    machine cannot use it. Without a store it makes one. Recommenders that you have joined are
    answered until this command ends.
    """
    from hdpmf.common.web.local_server import Loopback, local_server
    from hdpmf.common.web.sessions import BrowserSessions
    from hdpmf.private.page.http import OwnerPage
    from hdpmf.private.page.owner import Owner

    if target.old_copy:
        raise ConfigError(
            "the page takes no old copy; open it with another command and --old-copy once"
        )
    if every is not None and not 1 <= every <= 86_400:
        raise ConfigError("--every takes 1 to 86400 seconds")
    given = None if target.passphrase_file is None else first_line(target.passphrase_file)
    owner, door, place = (
        Owner(target.path, note, every),
        BrowserSessions(shown.idle_seconds),
        Loopback.listen(shown.port),
    )
    if owner.made and (given is not None or not owner.encrypted):
        owner.open(given)

    def link() -> str:
        return f"http://{place.host}/enter#{door.token()}"

    def relink() -> None:
        note(f"The page was locked. Open it again: {link()}")

    with browser_opener(shown.browser) as show:

        def ready() -> None:
            address = link()
            if json:
                print_json({"link": address, "port": place.port, "store": str(target.path)})
            else:
                print_lines(
                    f"Your page: {address}",
                    "The link works once. Ctrl-C ends it; nothing is lost by that.",
                )
            show(address)

        page, stop = OwnerPage(owner, place.host, door, relink), threading.Event()
        threading.Thread(target=page.watch, args=(stop,), daemon=True).start()
        try:
            local_server(page.app(), ready).run(sockets=list(place.sockets))
        finally:
            stop.set()
            owner.end()
            place.close()


@dataclass(frozen=True)
class ProxyOptions:
    """A reverse proxy that asks who the operator is."""

    trusted_header: Annotated[
        str | None,
        typer.Option(
            "--trusted-header",
            metavar="NAME",
            help="Header in which a reverse proxy says who has logged in.",
        ),
    ] = None
    behind_proxy: Annotated[
        str | None,
        typer.Option(
            "--behind-proxy", metavar="ADDRESS", help="That proxy's IP address; no other counts."
        ),
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="URL",
            help="What browsers know the page by at the proxy, as https://ops.example.",
        ),
    ] = None
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="ADDRESS",
            help="Where the proxy reaches us.",
            show_default="loopback only",
        ),
    ] = None

    def login(self) -> ProxyLogin | None:
        """How the proxy's word is taken; None without a proxy."""
        from hdpmf.untrusted.service.page.http import ProxyLogin

        given = (self.trusted_header, self.behind_proxy, self.address)
        if given == (None, None, None):
            if self.listen is not None:
                raise ConfigError(
                    "--listen is for a proxy: a link is for this machine only; see --behind-proxy"
                )
            return None
        if self.trusted_header is None or self.behind_proxy is None or self.address is None:
            raise ConfigError(
                "--trusted-header, --behind-proxy and --address go together: a header is only "
                "worth something from the "
                "proxy, and under its name"
            )
        return ProxyLogin(self.trusted_header, self.behind_proxy)

    def known_by(self) -> tuple[str, str]:
        """Scheme and host that browsers use."""
        try:
            parts = urlsplit(self.address or "")
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        if (
            not fits
            or parts.path not in ("", "/")
            or parts.query
            or parts.fragment
            or "@" in parts.netloc
        ):
            raise ConfigError(
                f"--address takes an address such as https://ops.example, not {self.address!r}"
            )
        return parts.scheme, parts.netloc.lower()


@with_option_groups
def page(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    proxy: ProxyOptions,
    shown: PageOptions,
    json: Json = False,
) -> None:
    """Open the operator's page: runs, devices, the public model, what the service knows,
    certificates, alerts.

    It only reads FOLDER, also while serve runs. This machine serves it to itself, and its link
    works once. A reverse proxy can ask who it is instead (--trusted-header, --behind-proxy,
    --address).
    """
    from hdpmf.untrusted.service.folder import ServiceFolder

    idle = shown.idle_seconds
    place, login = ServiceFolder(folder, only_read=True), proxy.login()
    if login is None:
        _serve_by_link(place, shown.port, idle, browser=shown.browser, json=json)
    else:
        _serve_behind(place, proxy, login, shown.port, json=json)


def _serve_by_link(
    place: ServiceFolder, port: int, idle: float, *, browser: bool, json: bool
) -> None:
    from hdpmf.common.web.local_server import Loopback
    from hdpmf.common.web.sessions import BrowserSessions
    from hdpmf.untrusted.service.page.http import OperatorPage, TokenLogin

    door, bound = BrowserSessions(idle), Loopback.listen(port)

    def link() -> str:
        return f"http://{bound.host}/enter#{door.token()}"

    login = TokenLogin(
        door, bound.host, lambda: note(f"The page was locked. Open it again: {link()}")
    )
    with browser_opener(browser) as show:

        def ready() -> None:
            address = link()
            _tell(place, address, bound.port, "The link works once.", json=json)
            show(address)

        _serve(OperatorPage(place, login, bound.host).app(), ready, list(bound.sockets))


def _serve_behind(
    place: ServiceFolder, proxy: ProxyOptions, login: ProxyLogin, port: int, *, json: bool
) -> None:
    from hdpmf.common.web.local_server import Loopback, listen_on
    from hdpmf.untrusted.service.page.http import OperatorPage

    scheme, host = proxy.known_by()
    sockets = (
        list(Loopback.listen(port).sockets)
        if proxy.listen is None
        else [listen_on(proxy.listen, port)]
    )
    chosen = int(sockets[0].getsockname()[1])
    words = f"The proxy {proxy.behind_proxy} reaches it at port {chosen}."
    _serve(
        OperatorPage(place, login, host, scheme).app(),
        lambda: _tell(place, f"{scheme}://{host}/", chosen, words, json=json),
        sockets,
    )


def _tell(place: ServiceFolder, address: str, port: int, words: str, *, json: bool) -> None:
    if json:
        facts = {
            "link": address,
            "port": port,
            "folder": str(place.path),
            "hdpmf_version": hdpmf_version(),
        }
        print_lines(json_text.dumps(facts))
    else:
        print_lines(
            f"The operator's page: {address}", f"{words} Ctrl-C ends it; the service goes on."
        )


def _serve(app: App, ready: Callable[[], None], sockets: list[socket.socket]) -> None:
    from hdpmf.common.web.local_server import local_server

    try:
        local_server(app, ready).run(sockets=sockets)
    finally:
        for listener in sockets:
            listener.close()
