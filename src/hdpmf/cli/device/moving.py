"""``hdpmf device export``, ``import`` and ``unmove``: a person moves to another machine, with one ledger."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.device.store import PassphraseFile, StoreOptions, StorePath, find_passphrase, second_passphrase
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import confirm, note, print_json, print_lines
from hdpmf.errors import ConfigError

_ONCE = (
    "Import it once. A copy of it that is imported elsewhere too has the same ratings and the same ledger, and what "
    "both send adds up; nobody can prevent that but you."
)


@grouped
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
    """Move this store to another machine: everything goes into a sealed FILE, and the store is closed here."""
    from hdpmf.device.moving import export_store

    passphrase = target.passphrase()
    new = second_passphrase(export_passphrase_file, "--export-passphrase-file", f"Passphrase of {file}")
    export_store(target.path, file, new, passphrase=passphrase, old_copy=target.old_copy)
    if json:
        print_json({"store": str(target.path), "export": str(file)})
        return
    print_lines(
        f"{target.path} is in {file} now, whole: ratings, weights, policy, ledger, keys, models. Here it is closed.",
        f"On the new machine: hdpmf device import {file.name} STORE. Then, here: hdpmf device forget {target.path} "
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
    from hdpmf.device.moving import import_store

    passphrase = find_passphrase(passphrase_file) or str(
        typer.prompt(f"Passphrase of {file}", hide_input=True, err=True)
    )
    import_store(file, path, passphrase)
    if json:
        print_json({"store": str(path), "export": str(file), "export_deleted": True})
        return
    print_lines(
        f"{path} is here, whole, with its ledger, and {file} is deleted. It opens with the export's passphrase "
        "(hdpmf device passphrase changes it).",
        f"It has the keys that it had, so nobody has to be told: hdpmf device join {path}",
    )


@grouped
def unmove(
    target: StoreOptions,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The export, as proof that it was not imported.")
    ] = None,
    lost: Annotated[
        bool, typer.Option("--lost", help="The export is lost: my word that it was never imported.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Use a store again that was exported and never imported. FILE is deleted."""
    from hdpmf.device.moving import take_back

    if lost and not yes:
        if not sys.stdin.isatty():
            raise ConfigError("if the export was imported after all, both stores spend: confirm --lost with --yes")
        confirm("Was the export never imported, by anybody, and is it gone for good?")
    take_back(target.path, file, lost=lost, passphrase=target.passphrase(), old_copy=target.old_copy)
    if json:
        print_json({"store": str(target.path), "export": None if file is None else str(file), "lost": lost})
        return
    print_lines(f"{target.path} can be used again." + ("" if file is None else f" {file} is deleted."))
