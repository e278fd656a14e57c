"""``hdpmf device open``: the owner's page in the browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hdpmf.cli.device.store import FILE_VARIABLE, first_line
from hdpmf.cli.options.common import SameHost, argument, command, option
from hdpmf.cli.output import Result, emit, note
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.web.browser import OneTimeLink
    from hdpmf.private.page.address import PageAddress


@command
def open_(
    store: Annotated[
        Path | None, argument("The device's file; without it the usual one of yours.", "[STORE]")
    ] = None,
    port: Annotated[
        int, option("Port on this machine; 0: one is chosen.", "N", min=0, max=65535)
    ] = 0,
    browser: Annotated[
        bool, option("Open the page, or only print its link.", None, "--browser/--no-browser")
    ] = True,
    idle: Annotated[
        float, option("Lock the page after so long without use.", "MINUTES", min=0.1, max=1440)
    ] = 15.0,
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

    path = store or default_store()
    secret = os.environ.get(FILE_VARIABLE)
    with only_server(path) as running:
        if running is not None and background:
            raise ConfigError(f"the page of {path} is served already")
        if running is not None:
            _show_running(running, PageAddress.of(path), path, port, browser)
            return
        serving = PageServing(
            port=port,
            idle=idle * 60,
            same_host=same_host,
            passphrase=None if secret is None else first_line(Path(secret)),
            log=note,
            relink=(lambda link: None) if background else _say_link,
        )
        with browser_opener(browser and not background) as show:

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


def _show_running(link: str, address: PageAddress, store: Path, port: int, browser: bool) -> None:
    """Open a page that another process serves."""
    from hdpmf.common.web.browser import browser_opener
    from hdpmf.private.page.serving import BROWSER_SECONDS

    if port not in (0, address.port):
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
    with browser_opener(browser, BROWSER_SECONDS) as show:
        show(link)


def _link_fields(link: str, address: PageAddress, store: Path) -> dict[str, object]:
    return {
        "link": link,
        "address": f"http://{address.host}/",
        "port": address.port,
        "store": str(store),
    }
