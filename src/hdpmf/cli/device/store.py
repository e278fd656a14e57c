"""The device's store: options that open it, and commands for its page, keys and deletion."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.options import Yes, argument, command, option, read_text
from hdpmf.cli.output import Result, confirm, emit, note
from hdpmf.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from hdpmf.common.web.local_server import OneTimeLink
    from hdpmf.private.device.store.device_store import DeviceStore
    from hdpmf.private.page.address import PageAddress

VARIABLE = "HDPMF_DEVICE_PASSPHRASE"
FILE_VARIABLE = "HDPMF_DEVICE_PASSPHRASE_FILE"
"""Names a file whose first line is the passphrase."""

StorePath = Annotated[Path, argument("The device's file.", "STORE")]


@dataclass(frozen=True)
class StoreOptions:
    """The store; its passphrase is in the environment, or asked for."""

    path: StorePath

    def open(self, *, serving: bool = False, old_copy: bool = False) -> DeviceStore:
        """Open the store. Ask for a passphrase only if one is needed."""
        from hdpmf.private.device.store.device_store import DeviceStore

        return DeviceStore.open(
            self.path,
            passphrase=self.passphrase(),
            serving=serving,
            old_copy=old_copy,
        )

    def passphrase(self) -> str | None:
        """Return the passphrase; None if the store is not encrypted."""
        from hdpmf.private.device.store.device_store import DeviceStore

        if DeviceStore.is_encrypted(self.path):
            return find_passphrase() or _ask(f"Passphrase of {self.path}")
        return None


@dataclass(frozen=True)
class RecommenderStoreOptions(StoreOptions):
    """The store, and one of its recommenders: each has a catalogue and a model of its own."""

    recommender: Annotated[
        str | None,
        option("Whose items, if you have joined several.", "ADDRESS", default="the last one used"),
    ] = None

    def open(self, *, serving: bool = False, old_copy: bool = False) -> DeviceStore:
        """Open the store for the recommender."""
        from hdpmf.private.device.memberships import at_recommender

        store = super().open(serving=serving, old_copy=old_copy)
        try:
            return at_recommender(store, self.recommender)
        except BaseException:
            store.close()
            raise


def new_passphrase() -> str:
    """Return the passphrase of a new store."""
    return find_passphrase() or _ask_new("New passphrase")


def second_passphrase(passphrase_file: Path | None, option: str, words: str) -> str:
    """Return a new passphrase, from a file or by a question.

    Never from the environment, which has the one that opens the store.
    """
    if passphrase_file is not None:
        return first_line(passphrase_file)
    if not sys.stdin.isatty():
        raise PrivacyError(
            f"a new passphrase is needed: give {option} FILE, or run this in a terminal"
        )
    return _ask_new(words)


def first_line(passphrase_file: Path) -> str:
    """Return the passphrase in a file."""
    lines = read_text(passphrase_file, "the passphrase").splitlines()
    if not lines or not lines[0]:
        raise ConfigError(
            f"the first line of {passphrase_file} is empty; it should be the passphrase"
        )
    return lines[0]


def find_passphrase() -> str | None:
    """Return the passphrase from the environment; None if it can be asked for."""
    if FILE_VARIABLE in os.environ:
        return first_line(Path(os.environ[FILE_VARIABLE]))
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    if not sys.stdin.isatty():
        raise PrivacyError(
            f"a passphrase is needed: set {VARIABLE} or {FILE_VARIABLE}, or run this in a terminal"
        )
    return None


def _ask(words: str) -> str:
    return str(typer.prompt(words, hide_input=True, err=True))


def _ask_new(words: str) -> str:
    passphrase = str(typer.prompt(words, hide_input=True, confirmation_prompt=True, err=True))
    note("There is no way back into the store without this passphrase: write it down.")
    return passphrase


@command
def passphrase(
    target: StoreOptions,
    new_passphrase_file: Annotated[
        Path | None,
        option("The first line of FILE is the new passphrase. Otherwise a question.", "FILE"),
    ] = None,
) -> Result:
    """Change a store's passphrase, or encrypt a store that has none."""
    from hdpmf.private.device.store.passphrase import change_passphrase

    old = target.passphrase()
    new = second_passphrase(
        new_passphrase_file, "--new-passphrase-file", f"New passphrase of {target.path}"
    )
    change_passphrase(target.path, new, old=old)
    done = "encrypted now" if old is None else "sealed again"
    return Result(
        {"store": str(target.path), "encrypted": True, "was_encrypted": old is not None},
        [f"{target.path} is {done} and opens with the new passphrase only."],
        notes=[
            "Copies of the file that were made before still open as they did then: delete them. "
            "Flash memory and snapshots of file systems may keep old blocks; nothing here reaches "
            "those."
        ],
    )


_LEDGER_STAYS = (
    "The ledger stays: it is what keeps a rating from being spent twice, should it come back. It "
    "holds no rating."
)
_LEDGER_GOES = (
    "This deletes the ledger too. A new store knows nothing of what was sent: the same ratings "
    "would be spent a second time, and what recommenders have learned from both times adds up. The "
    "identity goes as well: a new device has to be enrolled anew."
)


@command
def forget(
    target: StoreOptions,
    ratings: Annotated[bool, option("Ratings, weights, vectors and the run under way.")] = False,
    vectors: Annotated[bool, option("Your vectors, the model, the run under way.")] = False,
    model: Annotated[bool, option("As --vectors, and the catalogue: to take a new one.")] = False,
    everything: Annotated[bool, option("The whole store: ledger and identity too.")] = False,
    yes: Yes = False,
) -> Result:
    """Delete ratings, vectors, the model or everything, for good. There is no way back."""
    chosen = {"ratings": ratings, "vectors": vectors, "model": model}
    if not everything and not any(chosen.values()):
        raise ConfigError("choose what to forget: --ratings, --vectors, --model or --everything")
    parts = "everything" if everything else ", ".join(name for name in chosen if chosen[name])
    with target.open(serving=True) as store:  # not while a run is being answered
        note(_LEDGER_GOES if everything else _LEDGER_STAYS)
        confirm(
            f"Forget {parts} of {target.path}?",
            yes=yes,
            otherwise=f"forgetting cannot be undone: confirm with --yes that {parts} should go",
        )
        if everything:
            store.destroy()
        else:
            store.forget(ratings=ratings, model=model)
    return Result(
        {"store": str(target.path), "forgotten": parts, "ledger_kept": not everything},
        [f"Forgotten: {parts}."],
    )


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
) -> None:
    """Open your own page in the browser: rate, see your list, set your privacy, decide what leaves.

    The page is served by this machine to itself. Its link works once; whoever else is on this
    machine cannot use it. The page's address stays the same, so that you can bookmark it, or
    install it as an app. Where there is no store yet, the page makes one. Recommenders that you
    have joined are answered until this command ends.
    """
    from hdpmf.common.web.local_server import browser_opener
    from hdpmf.private.page.address import default_store
    from hdpmf.private.page.http import PageServing

    path = store or default_store()
    secret = os.environ.get(FILE_VARIABLE)
    serving = PageServing(
        port=port,
        idle=idle * 60,
        passphrase=None if secret is None else first_line(Path(secret)),
        log=note,
        relink=lambda link: note(f"The page was locked. Open it again: {link}"),
    )
    with browser_opener(browser) as show:

        def ready(link: OneTimeLink, address: PageAddress) -> None:
            once = link.make()
            fields = {
                "link": once,
                "address": f"http://{address.host}/",
                "port": address.port,
                "store": str(path),
            }
            text = [
                f"Your page: {once}",
                "The link works once. Ctrl-C ends it; nothing is lost by that.",
            ]
            emit(Result(fields, text))
            show(once)

        serving.serve(path, ready)
