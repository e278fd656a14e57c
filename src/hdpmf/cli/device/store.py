"""Opening a device's store from the command line: where it is, and its passphrase."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.shared.files import read_text
from hdpmf.cli.shared.output import note
from hdpmf.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from hdpmf.device.store import DeviceStore

VARIABLE = "HDPMF_DEVICE_PASSPHRASE"

StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="The device's file.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help=f"The first line of FILE is the passphrase. Otherwise {VARIABLE}, or a question.",
    ),
]
OldCopy = Annotated[
    bool,
    typer.Option(
        "--old-copy", help="Take an old or uncounted copy: what was sent since it was made may be sent again."
    ),
]
User = Annotated[str, typer.Option("--user", metavar="NAME", help="Whose, on a device of several users.")]


@dataclass(frozen=True)
class StoreOptions:
    """Which store, and how to get into it."""

    path: StorePath
    passphrase_file: PassphraseFile = None
    old_copy: OldCopy = False

    def open(self, *, serving: bool = False, moved: bool = False) -> DeviceStore:
        """The store, opened. A passphrase is asked for only where one is needed.

        Args:
            serving: As in ``DeviceStore.open``.
            moved: Also one that was moved away: for what only reads, or deletes.
        """
        from hdpmf.device.store import DeviceStore

        return DeviceStore.open(
            self.path, passphrase=self.passphrase(), serving=serving, old_copy=self.old_copy, moved=moved
        )

    def passphrase(self) -> str | None:
        """What opens the store; None where it is not encrypted."""
        from hdpmf.device.store import DeviceStore

        if DeviceStore.is_encrypted(self.path):
            found = find_passphrase(self.passphrase_file)
            return found or str(typer.prompt(f"Passphrase of {self.path}", hide_input=True, err=True))
        if self.passphrase_file is not None:
            raise ConfigError(f"{self.path} is not encrypted, so it needs no passphrase; leave out --passphrase-file")
        return None


@dataclass(frozen=True)
class PlaceOptions(StoreOptions):
    """Which store, and which of the recommenders that were joined: each has a catalogue and a model of its own."""

    recommender: Annotated[
        str | None,
        typer.Option(
            "--recommender",
            metavar="ADDRESS",
            help="Whose items, where you have joined several; the one of last time by default.",
        ),
    ] = None

    def open(self, *, serving: bool = False, moved: bool = False) -> DeviceStore:
        """The store at the recommender's place."""
        from hdpmf.device.joined import at_recommender

        store = super().open(serving=serving, moved=moved)
        try:
            return at_recommender(store, self.recommender)
        except BaseException:
            store.close()
            raise


def new_passphrase(passphrase_file: Path | None) -> str:
    """The passphrase of a store that is going to be made."""
    return find_passphrase(passphrase_file) or _ask_new("New passphrase")


def second_passphrase(passphrase_file: Path | None, option: str, words: str) -> str:
    """A new passphrase beside one that opens the store, so never from the environment: from a file, or asked for."""
    if passphrase_file is not None:
        return first_line(passphrase_file)
    if not sys.stdin.isatty():
        raise PrivacyError(f"a new passphrase is needed: give {option} FILE, or run this in a terminal")
    return _ask_new(words)


def first_line(passphrase_file: Path) -> str:
    """The passphrase in a file."""
    lines = read_text(passphrase_file, "the passphrase").splitlines()
    if not lines or not lines[0]:
        raise ConfigError(f"the first line of {passphrase_file} is empty; it should be the passphrase")
    return lines[0]


def _ask_new(words: str) -> str:
    passphrase = str(typer.prompt(words, hide_input=True, confirmation_prompt=True, err=True))
    note("There is no way back into the store without this passphrase: write it down.")
    return passphrase


def find_passphrase(passphrase_file: Path | None) -> str | None:
    """The passphrase from a file or the environment; None where it has to be asked for, and can be."""
    if passphrase_file is not None:
        return first_line(passphrase_file)
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    if not sys.stdin.isatty():
        raise PrivacyError(f"a passphrase is needed: set {VARIABLE}, give --passphrase-file, or run this in a terminal")
    return None
