"""``hdpmf device open``: the owner's page in the browser, and what answers recommenders meanwhile."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from hdpmf.cli.device.store import StoreOptions, first_line
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import note, print_json, print_lines
from hdpmf.cli.shared.pages import PageOptions, opening
from hdpmf.errors import ConfigError


@grouped
def open_(
    target: StoreOptions,
    shown: PageOptions,
    every: Annotated[
        float | None,
        typer.Option("--every", metavar="SECONDS", help="How often to look for something new.", show_default="300"),
    ] = None,
    json: Json = False,
) -> None:
    """Open your own page in the browser: rate, see your list, set your privacy, see and decide what leaves.

    The page is served by this machine to itself. Its link works once; whoever else is on this machine cannot use it.
    Without a store it makes one. Recommenders that you have joined are answered until this command ends.
    """
    from hdpmf.page.app import OwnerPage
    from hdpmf.page.owner import Owner
    from hdpmf.web.local_server import Loopback, local_server
    from hdpmf.web.sessions import PageDoor

    if target.old_copy:
        raise ConfigError("the page takes no old copy; open it with another command and --old-copy once")
    if every is not None and not 1 <= every <= 86_400:
        raise ConfigError("--every takes 1 to 86400 seconds")
    given = None if target.passphrase_file is None else first_line(target.passphrase_file)
    owner, door, place = Owner(target.path, note, every), PageDoor(shown.idle_seconds), Loopback.listen(shown.port)
    if owner.made and (given is not None or not owner.encrypted):
        owner.open(given)

    def link() -> str:
        return f"http://{place.host}/enter#{door.token()}"

    def relink() -> None:
        note(f"The page was locked. Open it again: {link()}")

    with opening(shown.browser) as show:

        def ready() -> None:
            address = link()
            if json:
                print_json({"link": address, "port": place.port, "store": str(target.path)})
            else:
                print_lines(f"Your page: {address}", "The link works once. Ctrl-C ends it; nothing is lost by that.")
            show(address)

        page, stop = OwnerPage(owner, place.host, door, relink), threading.Event()
        threading.Thread(target=page.watch, args=(stop,), daemon=True).start()
        try:
            local_server(page.app(), ready).run(sockets=list(place.sockets))
        finally:
            stop.set()
            owner.end()
            place.close()
