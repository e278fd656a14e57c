"""The device's store: options that open it, and ``passphrase``, ``rotate``, ``forget``, ``export``,
``import`` and ``unmove``.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.options.common import Json, read_text, with_option_groups
from hdpmf.cli.output import confirm, note, print_json, print_lines
from hdpmf.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from hdpmf.private.device.store.device_store import DeviceStore


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
        "--old-copy",
        help="Take an old or uncounted copy: what was sent since it was made may be sent again.",
    ),
]

User = Annotated[
    str, typer.Option("--user", metavar="NAME", help="Whose, on a device of several users.")
]


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
        from hdpmf.private.device.store.device_store import DeviceStore

        return DeviceStore.open(
            self.path,
            passphrase=self.passphrase(),
            serving=serving,
            old_copy=self.old_copy,
            moved=moved,
        )

    def passphrase(self) -> str | None:
        """What opens the store; None where it is not encrypted."""
        from hdpmf.private.device.store.device_store import DeviceStore

        if DeviceStore.is_encrypted(self.path):
            found = find_passphrase(self.passphrase_file)
            return found or str(
                typer.prompt(f"Passphrase of {self.path}", hide_input=True, err=True)
            )
        if self.passphrase_file is not None:
            raise ConfigError(
                f"{self.path} is not encrypted, so it needs no passphrase; leave out "
                "--passphrase-file"
            )
        return None


@dataclass(frozen=True)
class RecommenderStoreOptions(StoreOptions):
    """Which store, and which of the recommenders that were joined: each has a catalogue and a
    model of its own.
    """

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
        from hdpmf.private.device.joined import at_recommender

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
    """A new passphrase beside one that opens the store, so never from the environment: from a
    file, or asked for.
    """
    if passphrase_file is not None:
        return first_line(passphrase_file)
    if not sys.stdin.isatty():
        raise PrivacyError(
            f"a new passphrase is needed: give {option} FILE, or run this in a terminal"
        )
    return _ask_new(words)


def first_line(passphrase_file: Path) -> str:
    """The passphrase in a file."""
    lines = read_text(passphrase_file, "the passphrase").splitlines()
    if not lines or not lines[0]:
        raise ConfigError(
            f"the first line of {passphrase_file} is empty; it should be the passphrase"
        )
    return lines[0]


def _ask_new(words: str) -> str:
    passphrase = str(typer.prompt(words, hide_input=True, confirmation_prompt=True, err=True))
    note("There is no way back into the store without this passphrase: write it down.")
    return passphrase


def find_passphrase(passphrase_file: Path | None) -> str | None:
    """The passphrase from a file or the environment; None where it has to be asked for, and can
    be.
    """
    if passphrase_file is not None:
        return first_line(passphrase_file)
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    if not sys.stdin.isatty():
        raise PrivacyError(
            f"a passphrase is needed: set {VARIABLE}, give --passphrase-file, or run this "
            "in a terminal"
        )
    return None


@with_option_groups
def passphrase(
    target: StoreOptions,
    new_passphrase_file: Annotated[
        Path | None,
        typer.Option(
            "--new-passphrase-file",
            metavar="FILE",
            help="The first line of FILE is the new passphrase. Otherwise a question.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Change a store's passphrase, or encrypt a store that has none. Everything in it is sealed
    anew.
    """
    from hdpmf.private.device.store.transfer import change_passphrase

    old = target.passphrase()
    new = second_passphrase(
        new_passphrase_file, "--new-passphrase-file", f"New passphrase of {target.path}"
    )
    change_passphrase(target.path, new, old=old, old_copy=target.old_copy)
    if json:
        print_json({"store": str(target.path), "encrypted": True, "was_encrypted": old is not None})
        return
    done = "sealed anew" if old is not None else "encrypted now"
    print_lines(f"{target.path} is {done} and opens with the new passphrase only.")
    note(
        "Copies of the file that were made before still open as they did then: delete "
        "them. Flash memory and snapshots "
        "of file systems may keep old blocks; nothing here reaches those."
    )


@with_option_groups
def rotate(
    target: StoreOptions,
    card: Annotated[
        Path | None,
        typer.Option(
            "--card",
            metavar="FILE",
            help="Where the signed card goes.",
            show_default="STORE.signed.json",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Give this device a new identity and a new node key, and write a card that the old identity
    has signed.
    """
    from hdpmf.common.base.files import atomic_write
    from hdpmf.private.device import device_identity

    place = target.path.with_name(target.path.name + ".signed.json") if card is None else card
    with target.open(serving=True) as store:
        note(
            "Until its new card is enrolled in place of the old one, this device cannot "
            "take part in anything."
        )
        if not yes:
            if not sys.stdin.isatty():
                raise ConfigError("new keys cannot be undone: confirm with --yes")
            confirm(f"Make new keys for {target.path}?")
        old = store.identity.public.hex()
        made = device_identity.rotate(store)
        atomic_write(place, made.to_json())
    new = made.links[-1].card
    if json:
        facts = {
            "store": str(target.path),
            "card": str(place),
            "name": new.name,
            "identity": new.identity,
            "was": old,
        }
        print_json(facts)
        return
    print_lines(
        f"{new.name} has new keys: identity {new.identity} (was {old[:16]}...).",
        f"Hand {place} to the recommender: hdpmf recommender enroll FOLDER {place.name} "
        f"--replaces {new.name}",
        "That changes the roster, for every device: compare the new digest, then join "
        "with --roster FILE --new-roster",
    )


_LEDGER_STAYS = (
    "The ledger stays: it is what keeps a rating from being spent twice, should it "
    "come back. What was refused "
    "and receipts stay, too: they are about recommenders. None of it holds a rating."
)

_LEDGER_GOES = (
    "This deletes the ledger too. A new store knows nothing of what was sent: the "
    "same ratings would be spent a second "
    "time, and what recommenders have learned from both times adds up. The "
    "identity goes as well: a new device has to "
    "be enrolled anew."
)


@with_option_groups
def forget(
    target: StoreOptions,
    ratings: Annotated[
        bool, typer.Option("--ratings", help="Ratings, weights, vectors and the run under way.")
    ] = False,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Your vectors, the model, the run under way.")
    ] = False,
    model: Annotated[
        bool, typer.Option("--model", help="As --vectors, and the catalogue: to take a new one.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--everything", help="The whole store: ledger and identity too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Take ratings, vectors, the model or everything out of the store, for good. There is no way
    back.
    """
    if not (ratings or vectors or model or everything):
        raise ConfigError("say what to forget: --ratings, --vectors, --model or --everything")
    what = (
        "everything"
        if everything
        else ", ".join(
            word
            for word, chosen in (("ratings", ratings), ("vectors", vectors), ("model", model))
            if chosen
        )
    )
    with target.open(serving=True, moved=True) as store:  # not while a run is being answered
        note(_LEDGER_GOES if everything else _LEDGER_STAYS)
        if not yes:
            if not sys.stdin.isatty():
                raise ConfigError(
                    f"forgetting cannot be undone: confirm with --yes that {what} should go"
                )
            confirm(f"Forget {what} of {target.path}?")
        if everything:
            store.destroy()
        else:
            store.forget(ratings=ratings, model=model)
    if json:
        print_json({"store": str(target.path), "forgotten": what, "ledger_kept": not everything})
        return
    print_lines(f"Forgotten: {what}.")


_ONCE = (
    "Import it once. A copy of it that is imported elsewhere too has the same "
    "ratings and the same ledger, and what "
    "both send adds up; nobody can prevent that but you."
)


@with_option_groups
def export(
    target: StoreOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the export goes.")],
    export_passphrase_file: Annotated[
        Path | None,
        typer.Option(
            "--export-passphrase-file",
            metavar="FILE",
            help="The first line of FILE is the export's passphrase. Otherwise a question.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Move this store to another machine: everything goes into a sealed FILE, and the store is
    closed here.
    """
    from hdpmf.private.device.store.transfer import export_store

    passphrase = target.passphrase()
    new = second_passphrase(
        export_passphrase_file, "--export-passphrase-file", f"Passphrase of {file}"
    )
    export_store(target.path, file, new, passphrase=passphrase, old_copy=target.old_copy)
    if json:
        print_json({"store": str(target.path), "export": str(file)})
        return
    print_lines(
        f"{target.path} is in {file} now, whole: ratings, weights, policy, ledger, "
        "keys, models. Here it is closed.",
        f"On the new machine: hdpmf device import {file.name} STORE. Then, here: hdpmf "
        f"device forget {target.path} "
        "--everything",
    )
    note(_ONCE)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The export (hdpmf device export).")],
    path: StorePath,
    passphrase_file: PassphraseFile = None,
    json: Json = False,
) -> None:
    """Bring a store in from another machine. FILE is deleted: it is imported once."""
    from hdpmf.private.device.store.transfer import import_store

    passphrase = find_passphrase(passphrase_file) or str(
        typer.prompt(f"Passphrase of {file}", hide_input=True, err=True)
    )
    import_store(file, path, passphrase)
    if json:
        print_json({"store": str(path), "export": str(file), "export_deleted": True})
        return
    print_lines(
        f"{path} is here, whole, with its ledger, and {file} is deleted. It opens with "
        "the export's passphrase "
        "(hdpmf device passphrase changes it).",
        f"It has the keys that it had, so nobody has to be told: hdpmf device join {path}",
    )


@with_option_groups
def unmove(
    target: StoreOptions,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The export, as proof that it was not imported."),
    ] = None,
    lost: Annotated[
        bool, typer.Option("--lost", help="The export is lost: my word that it was never imported.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Use a store again that was exported and never imported. FILE is deleted."""
    from hdpmf.private.device.store.transfer import take_back

    if lost and not yes:
        if not sys.stdin.isatty():
            raise ConfigError(
                "if the export was imported after all, both stores spend: confirm --lost with --yes"
            )
        confirm("Was the export never imported, by anybody, and is it gone for good?")
    take_back(
        target.path, file, lost=lost, passphrase=target.passphrase(), old_copy=target.old_copy
    )
    if json:
        print_json(
            {"store": str(target.path), "export": None if file is None else str(file), "lost": lost}
        )
        return
    print_lines(
        f"{target.path} can be used again." + ("" if file is None else f" {file} is deleted.")
    )
