"""``hdpmf recommender backup`` and ``restore``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import note, print_json, print_lines

_FOLDER = typer.Argument(metavar="FOLDER", help="The recommender's folder.")


def backup(
    folder: Annotated[Path, _FOLDER],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the backup goes.")],
    json: Json = False,
) -> None:
    """Write everything that a new machine needs to one file. The service may be running."""
    from hdpmf.service.backup import back_up

    made = back_up(folder, file)
    if json:
        print_json({"backup": str(file), "name": made.name, "made": made.made, "files": len(made.files)})
    else:
        print_lines(f"{file}: {made.name} as of {made.made}, {len(made.files)} files, readable by you only")
    note("Its secret keys are in it: whoever has this file can speak as this recommender.")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What backup wrote.")],
    folder: Annotated[Path, _FOLDER],
    json: Json = False,
) -> None:
    """Make a recommender's folder of a backup. The old one must not serve any more."""
    from hdpmf.service import backup as backups
    from hdpmf.service.folder import ServiceFolder

    made = backups.restore(file, folder)
    run = ServiceFolder(folder).unfinished()
    under_way = None if run is None else run.hex()
    if json:
        print_json({"folder": str(folder), "name": made.name, "made": made.made, "unfinished_run": under_way})
        return
    print_lines(f"{made.name} is in {folder} as it was at {made.made}")
    if under_way is not None:
        print_lines(
            f"run {under_way[:12]} was under way then. If it went on afterwards, devices repeat what they answered and "
            "refuse the rest, and nobody pays twice: serve goes on with it, or give it up: "
            "hdpmf recommender run FOLDER --give-up"
        )
