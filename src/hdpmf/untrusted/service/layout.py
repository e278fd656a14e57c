"""The layouts that a recommender's folder has had, and the steps from each to the next
(``hdpmf.common.base.files``).

Layout 1 is that of version 0.1.0. In layout 2 every run has its number: the order of runs is that
of these, and no longer that of the files' times, which a plain copy of the folder forgets. A run by
masks that 0.1.0 has left unfinished is given up: devices of this version do not go on with what
0.1.0 has agreed to.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hdpmf.common.base.files import FolderLayout, atomic_write
from hdpmf.errors import StorageError

NUMBER = "number"
"""In the folder of a run: which one it is, counted from 1."""


def number_of(run: Path) -> int:
    """The number in the folder of a run."""
    try:
        return int((run / NUMBER).read_text("ascii"))
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{run / NUMBER} cannot be read ({type(error).__name__}); restore a backup"
        ) from None


def write_number(run: Path, number: int) -> None:
    """Say which run it is."""
    atomic_write(run / NUMBER, f"{number}\n".encode())


def begun_runs(folder: Path) -> list[Path]:
    """The folders of all runs that were begun, in no order."""
    return [path.parent for path in (folder / "runs").glob("*/settings.json") if path.is_file()]


def _from_0_1_0(folder: Path) -> None:
    runs = sorted(begun_runs(folder), key=lambda run: (run / "settings.json").stat().st_mtime_ns)
    for number, run in enumerate(runs, start=1):
        write_number(run, number)
        if not (run / "summary.json").exists() and not _by_servers(run):
            atomic_write(
                run / "summary.json", msgspec.json.encode({"run": run.name, "given_up": True})
            )


def _by_servers(run: Path) -> bool:
    """Whether two servers sum, which 0.1.0 did not know."""
    try:
        return (
            msgspec.json.decode((run / "settings.json").read_bytes(), type=_Record).settings.view
            == "two-servers"
        )
    except (OSError, msgspec.MsgspecError) as error:
        raise StorageError(
            f"the settings of run {run.name} are damaged ({error}); restore a backup"
        ) from error


class _Settings(msgspec.Struct):
    view: str


class _Record(msgspec.Struct):
    """As much of a run's settings as is needed here; what else is in them is for who reads them
    today.
    """

    settings: _Settings


LAYOUT = FolderLayout("a recommender's folder", steps=(_from_0_1_0,))
"""Whoever changes what is in the folder so that this version could not read what the last one
wrote adds a step.
"""
