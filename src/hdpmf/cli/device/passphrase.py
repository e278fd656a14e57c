"""``hdpmf device passphrase``: seal a store with another passphrase."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.device.store import StoreOptions, second_passphrase
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import note, print_json, print_lines


@grouped
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
    """Change a store's passphrase, or encrypt a store that has none. Everything in it is sealed anew."""
    from hdpmf.device.rekey import change_passphrase

    old = target.passphrase()
    new = second_passphrase(new_passphrase_file, "--new-passphrase-file", f"New passphrase of {target.path}")
    change_passphrase(target.path, new, old=old, old_copy=target.old_copy)
    if json:
        print_json({"store": str(target.path), "encrypted": True, "was_encrypted": old is not None})
        return
    done = "sealed anew" if old is not None else "encrypted now"
    print_lines(f"{target.path} is {done} and opens with the new passphrase only.")
    note(
        "Copies of the file that were made before still open as they did then: delete them. Flash memory and snapshots "
        "of file systems may keep old blocks; nothing here reaches those."
    )
