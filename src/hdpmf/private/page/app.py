"""The program that a person double-clicks: it opens the page of the store, without a terminal.

It takes no arguments. A second start opens the page that runs. What goes wrong is shown in the
browser, and is in a log beside the store: kinds of errors and where they happened, nothing of what
is in the store.
"""

from __future__ import annotations

import html
import logging
import os
import sys
import tempfile
import threading
import webbrowser
from contextlib import nullcontext
from importlib.metadata import version
from logging.handlers import RotatingFileHandler
from pathlib import Path

from hdpmf.common.base.files import atomic_write, folder_lock
from hdpmf.common.base.logs import event, log_to
from hdpmf.common.web.local_server import OneTimeLink, browser_opener
from hdpmf.common.web.templates import Wording
from hdpmf.errors import HdpmfError
from hdpmf.private.page.address import PageAddress
from hdpmf.private.page.serving import BROWSER_SECONDS, PageServing, default_store, only_server

_LOG = "hdpmf.log"
_MOST_LOG = 200_000
_END_AFTER = 3600.0
_PROBLEM = (
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width"><meta name="color-scheme" '
    'content="light dark"><title>{title}</title><body style="font: 1.1rem/1.5 sans-serif; '
    'margin: 3rem auto; max-width: 40rem; padding: 0 1rem"><h1>{title}</h1><p>{words}</p>'
    "<p>{log}</p></body></html>"
)


def main() -> int:
    """Open the page, and serve it until it is stopped."""
    _unfreeze()
    place = Path(tempfile.gettempdir())
    try:
        store = default_store()
        place = store.parent
        _log_to_file(place / _LOG)
        with _unpacked(), only_server(store) as running:
            if running is None:
                _serve(store)
            else:
                with browser_opener(True, BROWSER_SECONDS) as show:
                    show(running)
    except HdpmfError as error:
        event("problem", logging.ERROR, error)
        _show_problem(place, str(error))
        return error.exit_code
    except Exception as error:
        event("problem", logging.ERROR, error)
        t = Wording("hdpmf.private.page")
        _show_problem(place, t("stopped.bug"))
        return 1
    return 0


def _serve(store: Path) -> None:
    event("start", version=version("hdpmf"), system=sys.platform)
    with browser_opener(True) as show:

        def ready(link: OneTimeLink, address: PageAddress) -> None:
            event("ready", port=address.port)
            show(link.make())

        PageServing(end_after=_END_AFTER).serve(store, ready)
    event("end")


def _unfreeze() -> None:
    """Undo what PyInstaller's starter set up, where that would reach programs that we start."""
    for name in ("stdout", "stderr"):  # without a console there are none, and libraries write
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
    if getattr(sys, "frozen", False) and "LD_LIBRARY_PATH" in os.environ:
        before = os.environ.pop("LD_LIBRARY_PATH_ORIG", "")
        os.environ.pop("LD_LIBRARY_PATH")  # a browser needs the system's libraries, not ours
        if before:
            os.environ["LD_LIBRARY_PATH"] = before


def _unpacked() -> nullcontext[None]:
    """Keep the folder that a single file unpacks itself to.

    Systems that clean up old temporary files spare one that is locked.
    """
    folder = getattr(sys, "_MEIPASS", None)
    if folder is None or os.name != "posix":
        return nullcontext()
    return folder_lock(Path(folder))  # type: ignore[return-value]


def _log_to_file(file: Path) -> None:
    handler = RotatingFileHandler(file, maxBytes=_MOST_LOG, backupCount=1, encoding="utf-8")
    file.chmod(0o600)
    log_to(handler)
    threading.excepthook = lambda said: event(
        "thread", logging.ERROR, said.exc_value if isinstance(said.exc_value, Exception) else None
    )


def _show_problem(folder: Path, words: str) -> None:
    """Show what went wrong in the browser: there may be no terminal."""
    t = Wording("hdpmf.private.page")
    page = folder / "problem.html"
    text = _PROBLEM.format(
        title=html.escape(t("stopped.problem")),
        words=html.escape(words),
        log=html.escape(t("stopped.log", file=folder / _LOG)),
    )
    atomic_write(page, text.encode(), mode=0o600)
    webbrowser.open(page.as_uri())


if __name__ == "__main__":
    sys.exit(main())
