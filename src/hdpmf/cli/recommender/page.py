"""``hdpmf recommender page``: the operator's page in the browser, which only reads."""

from __future__ import annotations

import json as json_text
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import hdpmf_version, note, print_lines
from hdpmf.cli.shared.pages import PageOptions, opening
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.page.login import ProxyLogin
    from hdpmf.web.guard import App


@dataclass(frozen=True)
class ProxyOptions:
    """A reverse proxy that asks who the operator is."""

    trusted_header: Annotated[
        str | None,
        typer.Option(
            "--trusted-header", metavar="NAME", help="Header in which a reverse proxy says who has logged in."
        ),
    ] = None
    behind_proxy: Annotated[
        str | None, typer.Option("--behind-proxy", metavar="ADDRESS", help="That proxy's IP address; no other counts.")
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="URL", help="What browsers know the page by at the proxy, as https://ops.example."
        ),
    ] = None
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="ADDRESS", help="Where the proxy reaches us.", show_default="loopback only"),
    ] = None

    def login(self) -> ProxyLogin | None:
        """How the proxy's word is taken; None without a proxy."""
        from hdpmf.service.page.login import ProxyLogin

        given = (self.trusted_header, self.behind_proxy, self.address)
        if given == (None, None, None):
            if self.listen is not None:
                raise ConfigError("--listen is for a proxy: a link is for this machine only; see --behind-proxy")
            return None
        if self.trusted_header is None or self.behind_proxy is None or self.address is None:
            raise ConfigError(
                "--trusted-header, --behind-proxy and --address go together: a header is only worth something from the "
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
        if not fits or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise ConfigError(f"--address takes an address such as https://ops.example, not {self.address!r}")
        return parts.scheme, parts.netloc.lower()


@grouped
def page(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    proxy: ProxyOptions,
    shown: PageOptions,
    json: Json = False,
) -> None:
    """Open the operator's page: runs, devices, the public model, what the service knows, certificates, alerts.

    It only reads FOLDER, also while serve runs. This machine serves it to itself, and its link works once. A reverse
    proxy can ask who it is instead (--trusted-header, --behind-proxy, --address).
    """
    from hdpmf.service.folder import ServiceFolder

    idle = shown.idle_seconds
    place, login = ServiceFolder(folder, only_read=True), proxy.login()
    if login is None:
        _serve_by_link(place, shown.port, idle, browser=shown.browser, json=json)
    else:
        _serve_behind(place, proxy, login, shown.port, json=json)


def _serve_by_link(place: ServiceFolder, port: int, idle: float, *, browser: bool, json: bool) -> None:
    from hdpmf.service.page.app import OperatorPage
    from hdpmf.service.page.login import TokenLogin
    from hdpmf.web.local_server import Loopback
    from hdpmf.web.sessions import PageDoor

    door, bound = PageDoor(idle), Loopback.listen(port)

    def link() -> str:
        return f"http://{bound.host}/enter#{door.token()}"

    login = TokenLogin(door, bound.host, lambda: note(f"The page was locked. Open it again: {link()}"))
    with opening(browser) as show:

        def ready() -> None:
            address = link()
            _tell(place, address, bound.port, "The link works once.", json=json)
            show(address)

        _serve(OperatorPage(place, login, bound.host).app(), ready, list(bound.sockets))


def _serve_behind(place: ServiceFolder, proxy: ProxyOptions, login: ProxyLogin, port: int, *, json: bool) -> None:
    from hdpmf.service.page.app import OperatorPage
    from hdpmf.web.local_server import Loopback, listen_on

    scheme, host = proxy.known_by()
    sockets = list(Loopback.listen(port).sockets) if proxy.listen is None else [listen_on(proxy.listen, port)]
    chosen = int(sockets[0].getsockname()[1])
    words = f"The proxy {proxy.behind_proxy} reaches it at port {chosen}."
    _serve(
        OperatorPage(place, login, host, scheme).app(),
        lambda: _tell(place, f"{scheme}://{host}/", chosen, words, json=json),
        sockets,
    )


def _tell(place: ServiceFolder, address: str, port: int, words: str, *, json: bool) -> None:
    if json:
        facts = {"link": address, "port": port, "folder": str(place.path), "hdpmf_version": hdpmf_version()}
        print_lines(json_text.dumps(facts))
    else:
        print_lines(f"The operator's page: {address}", f"{words} Ctrl-C ends it; the service goes on.")


def _serve(app: App, ready: Callable[[], None], sockets: list[socket.socket]) -> None:
    from hdpmf.web.local_server import local_server

    try:
        local_server(app, ready).run(sockets=sockets)
    finally:
        for listener in sockets:
            listener.close()
